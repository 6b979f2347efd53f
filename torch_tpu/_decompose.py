"""Finds the decomposition of an operator; imported by the glue on first need."""

from collections.abc import Callable
from typing import Any

import torch
import torch._decomp
from torch._prims_common.wrappers import _safe_copy_out
from torch.utils._pytree import tree_leaves

from torch_tpu import _C, _decompositions


def lookup(name: str) -> Callable[..., Any] | None:
    """Returns the decomposition of an overload, or None if there is none.

    name: a qualified overload name, such as "aten::addcmul" or "aten::add.Tensor".
    The result takes the overload's own arguments and returns its results, built from simpler
    operators.
    """
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    function = getattr(packet, overload or "default", None)
    if function is None:
        return None
    return _direct(name, function) or _written(packet, function)


def _direct(name: str, function: Any) -> Callable[..., Any] | None:
    found = _decompositions.table().get(name)
    found = found or torch._decomp.decomposition_table.get(function)
    if found is not None:
        return found
    return function.decompose if function._can_decompose() else None


def _inputs(function: Any) -> list[tuple[str, str]]:
    """Returns the arguments that are not only written to, by name and type."""
    arguments = function._schema.arguments
    return [(one.name, str(one.type)) for one in arguments if not one.is_out]


def _written(packet: Any, function: Any) -> Callable[..., Any] | None:
    """Returns the out= or in-place form of the decomposition of what takes the same arguments."""
    outs = [one.name for one in function._schema.arguments if one.is_out]
    operator = function._schema.name.partition("::")[2]
    if not outs and not operator.endswith("_"):
        return None
    twins = packet if outs else getattr(torch.ops.aten, operator[:-1], None)
    for overload in twins.overloads() if twins is not None else ():
        twin = getattr(twins, overload)
        if twin is function or _inputs(twin) != _inputs(function):
            continue
        found = _direct(twin.name(), twin)
        if found is not None:
            return _out_form(found, outs) if outs else _in_place_form(found)
    return None


def _out_form(functional: Callable[..., Any], outs: list[str]) -> Callable[..., Any]:
    def write(*args: Any, **kwargs: Any) -> Any:
        targets = [kwargs[name] for name in outs]
        inputs = {name: value for name, value in kwargs.items() if name not in outs}
        results = functional(*args, **inputs)
        if results is NotImplemented:
            return results
        pairs = list(zip(tree_leaves(targets), tree_leaves(results), strict=True))
        if any(target.dtype != result.dtype for target, result in pairs):
            _C.ask_cpu()
        for target, result in pairs:
            _C.fit_output(target, result)
            _safe_copy_out(copy_from=result, copy_to=target)
        return targets[0] if len(targets) == 1 else tuple(targets)

    return write


def _in_place_form(functional: Callable[..., Any]) -> Callable[..., Any]:
    def write(target: Any, *args: Any, **kwargs: Any) -> Any:
        result = functional(target, *args, **kwargs)
        if result is NotImplemented:
            return result
        if isinstance(target, torch.Tensor):
            return target.copy_(result)
        for one, value in zip(target, result, strict=True):
            one.copy_(value)
        return ()

    return write
