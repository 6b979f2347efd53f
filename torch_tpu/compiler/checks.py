"""Checks of a matrix's factors, which raise: they are made after the launch, of its results."""

from typing import Any, NamedTuple

import torch
from torch import fx

CHECK = torch.ops.aten._linalg_check_errors.default


class Check(NamedTuple):
    """What `_linalg_check_errors` is called with behind the device's numbers."""

    name: str
    is_matrix: bool


def take(graph: fx.GraphModule) -> list[Check]:
    """Takes the checks out of a graph, which then returns the numbers behind its results.

    AOTAutograd keeps the order of effects by tokens, which are None when a graph is called; they
    are no tensors from here on.
    """
    effects = graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects)
    if not effects:
        return []
    checks, numbers = [], []
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
    output = graph.graph.output_node()
    results = output.args[0]
    assert isinstance(results, list | tuple)
    output.args = ((*results, *numbers),)
    graph.recompile()
    return checks


def make(checks: list[Check], results: Any) -> Any:
    """Makes them, and leaves the results. Raises torch.linalg.LinAlgError."""
    own = len(results) - len(checks)
    for check, number in zip(checks, results[own:], strict=True):
        CHECK(number, check.name, is_matrix=check.is_matrix)
    return results[:own]
