"""Decompositions of operators that have neither a table row nor a decomposition in PyTorch.

Each takes its operator's own arguments and builds the results from operators that have rows. Where
the sizes of the results depend on data, a count is read back, which waits for the device and is
counted as a synchronisation; the data themselves stay on the device.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

FAMILIES = ("sizes", "runs", "linalg", "reductions", "nn", "quantise", "jagged", "others", "vision")
_functions: dict[str, Callable[..., Any]] = {}


def decomposes(*names: str) -> Callable[[Function], Function]:
    """Registers a function as the decomposition of these overloads.

    Such as "add.Tensor"; those of another library than ATen have its name before them.
    """

    def register(function: Function) -> Function:
        for name in names:
            _functions[name if "::" in name else f"aten::{name}"] = function
        return function

    return register


@functools.cache
def table() -> dict[str, Callable[..., Any]]:
    """Returns the decompositions by qualified overload name, such as "aten::nonzero"."""
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")
    return _functions
