"""Layers that repeat are traced once: equal stretches of Dynamo's graph become calls of one graph.

AOTAutograd takes a tenth of a second for the layer of a transformer. PyTorch's `invoke_subgraph`
lets it trace one for all; what is recorded of the layers is the same. Where anything could tell the
difference (what is written, views that leave a layer, sizes that vary, regions of autocast or of
other modes), the graph stays as it is.
"""

import operator
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._C import _log_api_usage_once, _set_grad_enabled
from torch._subclasses.fake_tensor import FakeTensor
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

from torch_tpu import _C
from torch_tpu.compiler import checks, layouts

try:
    from torch._higher_order_ops.passes import inline_invoke_subgraph as passes
except ImportError:  # PyTorch before 2.13, which cannot take layers apart again
    passes = None  # type: ignore[assignment]

INVOKE = torch.ops.higher_order.invoke_subgraph
LEAST = 4  # equal layers: for fewer, what PyTorch does once is more than what it is spared
SHORTEST = 8  # nodes of a layer
# What may stand before layers or behind them, but not within.
APART = (operator.setitem, _log_api_usage_once, _set_grad_enabled, _enter_autocast, _exit_autocast)


class Repetition(NamedTuple):
    """Items from `first` on are `times` times the same `period`; it may begin `slack` later."""

    first: int
    period: int
    times: int
    slack: int


class Stretch(NamedTuple):
    """Consecutive nodes, with what they read of others, and those that others read."""

    nodes: list[fx.Node]
    inputs: list[fx.Node]
    outputs: list[fx.Node]
    wiring: Any


def outlined(graph: fx.GraphModule) -> bool:
    """Lets equal layers of a graph of Dynamo's be one, in place. False: there are none."""
    nodes = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]
    if passes is None or len(nodes) < LEAST * SHORTEST:
        return False
    plain = {node for node in graph.graph.nodes if _is_plain(node)}
    if not all(node in plain or node.target in APART for node in graph.graph.nodes):
        return False
    if torch.is_autocast_enabled("tpu") or torch.is_autocast_enabled("cpu"):
        return False
    numbers: dict[Any, int] = {}
    keys = (_key(node) if node in plain else node for node in nodes)
    items = [numbers.setdefault(key, len(numbers)) for key in keys]
    found = Repetition(*_C.find_repetition(items, LEAST, SHORTEST))
    if not found.times:
        return False
    begin = _begin(nodes, found)
    if _is_region_open(nodes[:begin]):
        return False
    ends = range(begin, begin + found.times * found.period, found.period)
    stretches = [_stretch(nodes[end : end + found.period]) for end in ends]
    [(wiring, count)] = Counter(one.wiring for one in stretches).most_common(1)
    equal = [one for one in stretches if one.wiring == wiring]
    if count < LEAST:
        return False
    layer = _layer(equal[0])
    if not _keeps_to_itself(layer):
        return False
    _replace(graph, layer, equal)
    return True


def settled(graph: fx.GraphModule) -> fx.GraphModule:
    """Has what AOTAutograd made call its layers as modules, in place; or puts them back.

    To put all back takes as long as it was to save. Where there is more to be done with the nodes
    than to run them (sizes that vary, tensors on the host, effects), they stand in the graph.
    """
    if passes is None or not passes.count_subgraph_uses(graph):
        return graph
    parts = layouts.parts(graph)
    if all(_only_runs(node) for part in parts for node in part.graph.nodes):
        for part in parts:
            _call_modules(part)
    else:
        _share_constants(graph)
        passes.inline_invoke_subgraph(graph)
        graph.recompile()
    return graph


def nodes(graph: fx.GraphModule) -> Iterator[fx.Node]:
    """The nodes that run, in order: those of a layer once for each call of it."""
    for node in graph.graph.nodes:
        if node.op == "call_module":
            layer = graph.get_submodule(str(node.target))
            assert isinstance(layer, fx.GraphModule)
            yield from (one for one in nodes(layer) if one.op not in ("placeholder", "output"))
        else:
            yield node


def _only_runs(node: fx.Node) -> bool:
    """It makes tensors of fixed sizes on the device, and has no effects."""
    made = node.meta.get("val")
    for value in made if isinstance(made, tuple | list) else (made,):
        if isinstance(value, torch.Tensor):
            sizes = (*value.shape, *value.stride(), value.storage_offset())
            if value.device.type != "tpu" or not all(type(size) is int for size in sizes):
                return False
        elif value is not None:
            return False
    return not checks.has_effect(node)


def _call_modules(graph: fx.GraphModule) -> None:
    calls = graph.graph.find_nodes(op="call_function", target=INVOKE)
    for call in calls:
        layer, _, *operands = call.args
        with graph.graph.inserting_before(call):
            made = graph.graph.call_module(layer.target, tuple(operands))
        made.meta = call.meta
        call.replace_all_uses_with(made)
        graph.graph.erase_node(call)
        if not layer.users:
            graph.graph.erase_node(layer)
    if calls:
        graph.recompile()


def _share_constants(graph: fx.GraphModule) -> None:
    """What a layer made of numbers becomes the graph's own: PyTorch inlines its name alone."""
    for name, layer in list(graph.named_children()):
        if not isinstance(layer, fx.GraphModule):
            continue
        for node in layer.graph.find_nodes(op="get_attr"):
            value, node.target = getattr(layer, node.target), f"{name}_{node.target}"
            setattr(graph, node.target, value)
            setattr(layer, node.target, value)


def _values(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta.get("example_value")
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _is_region_open(nodes: list[fx.Node]) -> bool:
    """Whether what follows is in a region of autocast, or with gradients otherwise than before."""
    targets = [node.target for node in nodes]
    gradients = [node.args[0] for node in nodes if node.target is _set_grad_enabled]
    changed = gradients and gradients[-1] != torch.is_grad_enabled()
    return targets.count(_enter_autocast) != targets.count(_exit_autocast) or bool(changed)


def _is_plain(node: fx.Node) -> bool:
    """A tensor of fixed sizes, or several; nothing that changes how others are computed."""
    if node.op == "output":
        return True
    if node.op not in ("placeholder", "call_function", "call_method"):
        return False
    for value in _values(node):
        if type(value) is not FakeTensor and type(value) is not torch.nn.Parameter:
            return False
        if not all(type(size) is int for size in value.shape):
            return False
    if "out" in node.kwargs:  # it is written; PyTorch looks for that among the others
        return False
    return not node.is_impure() or node.op == "placeholder"


def _key(node: fx.Node) -> Any:
    """Equal for nodes that do the same to operands that are alike."""

    def form(arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return fx.Node
        if isinstance(arg, tuple | list):
            return (type(arg), *map(form, arg))
        if isinstance(arg, dict):
            return tuple((key, form(value)) for key, value in arg.items())
        if isinstance(arg, slice):
            return (slice, form(arg.start), form(arg.stop), form(arg.step))
        return (type(arg), repr(arg))

    made = tuple(
        (one.dtype, one.device, tuple(one.shape), one.stride(), one.requires_grad)
        for one in _values(node)
    )
    return (node.op, node.target, form(node.args), form(node.kwargs), made)


def _begin(nodes: list[fx.Node], found: Repetition) -> int:
    """Where the fewest values cross from one layer to the next."""
    places = {node: i for i, node in enumerate(nodes)}
    change = [0] * (len(nodes) + 2)
    for i, node in enumerate(nodes):
        last = max((places.get(user, len(nodes)) for user in node.users), default=i)
        change[i + 1] += 1
        change[last + 1] -= 1
    across = list(accumulate(change))

    def crossing(begin: int) -> int:
        return sum(across[begin + i * found.period] for i in range(found.times + 1))

    return min(range(found.first, found.first + found.slack + 1), key=crossing)


def _stretch(nodes: list[fx.Node]) -> Stretch:
    local = {node: i for i, node in enumerate(nodes)}
    inputs: dict[fx.Node, int] = {}

    def number(node: fx.Node) -> int:
        return local[node] if node in local else -1 - inputs.setdefault(node, len(inputs))

    wiring = tuple(tuple(map(number, node.all_input_nodes)) for node in nodes)
    outputs = [node for node in nodes if any(user not in local for user in node.users)]
    return Stretch(nodes, list(inputs), outputs, (wiring, tuple(local[one] for one in outputs)))


def _layer(stretch: Stretch) -> fx.GraphModule:
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for i, node in enumerate(stretch.inputs):
        copies[node] = graph.placeholder(f"arg{i}")
        copies[node].meta["example_value"] = node.meta["example_value"]
    for node in stretch.nodes:
        copies[node] = graph.node_copy(node, lambda one: copies[one])
    graph.output(tuple(copies[node] for node in stretch.outputs))
    return fx.GraphModule({}, graph)


def _keeps_to_itself(layer: fx.GraphModule) -> bool:
    """It writes nothing that it is given, and its results share no memory with that."""
    from torch._higher_order_ops.utils import has_potential_input_alias_or_mutation

    inputs = [node.meta["example_value"] for node in layer.graph.find_nodes(op="placeholder")]
    last: Any = layer.graph.output_node().args[0]
    outputs = [node.meta["example_value"] for node in last]
    if not all(isinstance(one, torch.Tensor) for one in (*inputs, *outputs)):
        return False
    try:
        return not any(has_potential_input_alias_or_mutation(layer, inputs))
    except AssertionError:  # a list is written (`_foreach_mul_`), of which it cannot tell
        return False


def _replace(graph: fx.GraphModule, layer: fx.GraphModule, equal: list[Stretch]) -> None:
    name = next(f"layer_{i}" for i in range(len(equal) + 1) if not hasattr(graph, f"layer_{i}"))
    graph.add_submodule(name, layer)
    now = dict[fx.Node, fx.Node]()
    for one in equal:
        inputs = [now.get(node, node) for node in one.inputs]
        with graph.graph.inserting_before(one.nodes[0]):
            made = graph.graph.call_function(INVOKE, (graph.graph.get_attr(name), name, *inputs))
            made.meta["example_value"] = tuple(node.meta["example_value"] for node in one.outputs)
            for i, node in enumerate(one.outputs):
                now[node] = graph.graph.call_function(operator.getitem, (made, i))
                now[node].meta = dict(node.meta)
                node.replace_all_uses_with(now[node])
        for node in reversed(one.nodes):
            graph.graph.erase_node(node)
    graph.graph.lint()
    graph.recompile()
