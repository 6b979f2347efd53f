"""Finds the decomposition of an operator; imported by the glue on first need."""

from collections.abc import Callable
from typing import Any

import torch
import torch._decomp

from torch_tpu import _decompositions

Found = tuple[Callable[..., Any], str, str]
"""A decomposition, and the operator's and overload's name whose arguments it takes."""


def lookup(name: str) -> Found | None:
    """Returns the decomposition of an overload, or None if there is none.

    name: a qualified overload name, such as "aten::addcmul" or "aten::add.Tensor".
    The decomposition takes the arguments of that overload or, where that writes to some of them, of
    the functional one; it returns the results, built from simpler operators.
    """
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    function = getattr(packet, overload or "default", None)
    if function is None:
        return None
    return _direct(function) or _of_functional(packet, function)


def _direct(function: Any) -> Found | None:
    schema = function._schema
    found = _decompositions.table().get(function.name())
    found = found or torch._decomp.decomposition_table.get(function)
    if found is None and function._can_decompose():
        found = function.decompose
    return None if found is None else (found, schema.name, schema.overload_name)


def _inputs(function: Any) -> list[tuple[str, str]]:
    """Returns the arguments that are not only written to, by name and type."""
    arguments = function._schema.arguments
    return [(one.name, str(one.type)) for one in arguments if not one.is_out]


def _of_functional(packet: Any, function: Any) -> Found | None:
    """Returns the decomposition of what takes the same arguments as an out= or in-place form."""
    has_out = any(one.is_out for one in function._schema.arguments)
    operator = function._schema.name.partition("::")[2]
    if not has_out and not operator.endswith("_"):
        return None
    twins = packet if has_out else getattr(torch.ops.aten, operator[:-1], None)
    for overload in twins.overloads() if twins is not None else ():
        twin = getattr(twins, overload)
        if twin is function or any(one.is_out for one in twin._schema.arguments):
            continue
        found = _direct(twin) if _inputs(twin) == _inputs(function) else None
        if found is not None:
            return found
    return None
