"""Finds PyTorch's own decomposition of an operator; imported by the glue on first need."""

from collections.abc import Callable
from typing import Any

import torch
import torch._decomp
import torch._meta_registrations as _registrations  # noqa: F401 (Meta kernels for the parts)


def lookup(name: str) -> Callable[..., Any] | None:
    """Returns the decomposition of an overload, or None if PyTorch has none.

    name: a qualified overload name, such as "aten::addcmul" or "aten::add.Tensor".
    The result takes the overload's own arguments and returns its results, built from simpler
    operators.
    """
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    if packet is None:
        return None
    function = getattr(packet, overload or "default", None)
    if function is None:
        return None
    found = torch._decomp.decomposition_table.get(function)
    if found is not None:
        return found
    return function.decompose if function._can_decompose() else None
