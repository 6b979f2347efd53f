"""Has a graph's results lie where AOTAutograd, which asks fake tensors, took note that they do."""

import torch
from torch import fx
from torch._prims_common import is_non_overlapping_and_dense_or_false

aten = torch.ops.aten
WRITES = (
    aten.copy.default,
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
)


def keep(graph: fx.GraphModule) -> None:
    """Has the graph, and the layers that it calls, work with what the device's operators make."""
    for part in parts(graph):
        _keep(part)


def parts(graph: fx.GraphModule) -> list[fx.GraphModule]:
    """A graph, and the graphs within it: layers, branches, bodies of loops."""
    return [one for one in graph.modules() if isinstance(one, fx.GraphModule)]


def _keep(graph: fx.GraphModule) -> None:
    writes = [one for one in graph.graph.nodes if one.target in WRITES and _has_gaps(one)]
    views = graph.graph.find_nodes(op="call_function", target=aten.view.default)
    for node in writes:
        _keep_gaps(graph, node)
    for node in views:
        node.target = aten.reshape.default  # a copy where the device's strides allow no view
    named = [node for node in graph.graph.nodes if _name_device(node)]
    if named or writes or views:
        graph.recompile()


def _name_device(node: fx.Node) -> bool:
    """Has what is made on "tpu" made on the device that was current as the graph was traced."""
    device, value = node.kwargs.get("device"), node.meta.get("val")
    if device != torch.device("tpu") or not isinstance(value, torch.Tensor):
        return False
    node.update_kwarg("device", value.device)
    return True


def _keep_gaps(graph: fx.GraphModule, node: fx.Node) -> None:
    """Gives what a write into a tensor with gaps makes the strides that AOTAutograd took note of.

    The device's operators make results without gaps (core/call/layout.h). A graph's results, and
    views by strides, would show it. Sizes that vary are left alone.
    """
    value = node.meta["val"]
    with graph.graph.inserting_after(node):
        size, strides = tuple(value.shape), value.stride()
        kind = {"dtype": value.dtype, "device": value.device}
        room = graph.graph.call_function(aten.empty_strided.default, (size, strides), kind)
    with graph.graph.inserting_after(room):
        made = graph.graph.call_function(aten.copy_.default, (room, node))
    for new in (room, made):
        new.meta["val"] = value
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    node.meta["val"] = torch.empty_like(value)


def _has_gaps(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or value.device.type != "tpu":
        return False
    known = all(isinstance(one, int) for one in (*value.shape, *value.stride()))
    return known and not is_non_overlapping_and_dense_or_false(value)
