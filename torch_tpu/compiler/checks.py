"""What a graph does beside its numbers, after the launch and with its results.

Checks of a matrix's factors, which raise; and arguments that get another storage (`a.data = b`).
"""

from typing import Any, NamedTuple

import torch
from torch import fx

CHECK = torch.ops.aten._linalg_check_errors.default
SET = torch.ops.aten.set_.source_Tensor
WITH_EFFECTS = torch.ops.higher_order.with_effects
RESIZES = "inductor.resize_storage_bytes_.default"


class Check(NamedTuple):
    """What `_linalg_check_errors` is called with behind the device's numbers."""

    name: str
    is_matrix: bool


class Replaced(NamedTuple):
    """An argument that gets the storage, and the view of it, of one of the device's results."""

    argument: int


def has_effect(node: fx.Node) -> bool:
    """Whether it is one of what is taken out of a graph, or keeps it from being a program."""
    return node.target in (CHECK, SET, WITH_EFFECTS) or str(node.target) == RESIZES


def take(graph: fx.GraphModule) -> list[Check | Replaced]:
    """Takes these out of a graph, which then returns what they need behind its results.

    AOTAutograd keeps the order of effects by tokens, which are None when a graph is called; they
    are no tensors from here on.
    """
    effects = graph.graph.find_nodes(op="call_function", target=WITH_EFFECTS)
    replaced = _replaced(graph)
    if not effects and not replaced:
        return []
    checks: list[Check | Replaced] = []
    numbers: list[Any] = []
    for node in effects:
        token, target, *args = node.args
        token.meta.pop("val", None)
        for user in node.users:
            if user.args[1] == 0:
                user.meta.pop("val", None)
        if target is CHECK:
            checks.append(Check(args[1], node.kwargs["is_matrix"]))
            numbers.append(args[0])
            for user in list(node.users):
                user.replace_all_uses_with(token)
                graph.graph.erase_node(user)
            graph.graph.erase_node(node)
    for node, place in replaced:
        source = node.args[1]
        assert isinstance(source, fx.Node)
        checks.append(Replaced(place))
        numbers.append(source)
        node.replace_all_uses_with(source)
        graph.graph.erase_node(node)
    output = graph.graph.output_node()
    results = output.args[0]
    assert isinstance(results, list | tuple)
    output.args = ((*results, *numbers),)
    graph.recompile()
    return checks


def unfit(graph: fx.GraphModule) -> str:
    """Why no program can be made of a graph; "" where one can, as far as this is known before."""
    for node in graph.graph.nodes:
        if str(node.target) == RESIZES:
            return "it resizes a storage"
        if node.target is WITH_EFFECTS and node.args[1] is not CHECK:
            return f"{node.args[1]} has effects beside its results"
    return ""


def make(checks: list[Check | Replaced], values: list[Any], results: Any) -> Any:
    """Makes them, of a graph called with `values`; leaves the results. Raises LinAlgError."""
    own = len(results) - len(checks)
    for check, number in zip(checks, results[own:], strict=True):
        if isinstance(check, Replaced):
            values[check.argument].set_(number)
        else:
            CHECK(number, check.name, is_matrix=check.is_matrix)
    return results[:own]


def _replaced(graph: fx.GraphModule) -> list[tuple[fx.Node, int]]:
    """Where arguments get other storages, and which these are; AOTAutograd puts that last."""
    places = {node: i for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    found = graph.graph.find_nodes(op="call_function", target=SET)
    return [(node, places[node.args[0]]) for node in found if node.args[0] in places]
