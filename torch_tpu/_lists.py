"""Operators on lists of tensors, one element after the other."""

from typing import Any

from torch import Tensor

from torch_tpu._agreement.operators import operator


def _of_element(value: Any, k: int, count: int) -> Any:
    """An argument of element k; a tensor of one dim may hold a number for each element."""
    if isinstance(value, Tensor) and value.shape == (count,):
        return value.narrow(0, k, 1)
    is_list = isinstance(value, list | tuple) and len(value) == count
    return [value[k]] if is_list else value


def run_elements(name: str, args: list[Any], count: int) -> None:
    """Runs an overload on lists of so many elements, whose memory overlaps."""
    for k in range(count):
        operator(name, "").call([_of_element(value, k, count) for value in args])
