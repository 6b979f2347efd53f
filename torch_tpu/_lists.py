"""Operators on lists of tensors, one element after the other."""

from typing import Any

from torch import Tensor

from torch_tpu._agreement.operators import operator


def _common_length(args: list[Any]) -> int:
    """The length of all lists, but for those that an optimizer without them leaves empty; or 0."""
    lengths = {len(value) for value in args if isinstance(value, list | tuple) and value}
    return lengths.pop() if len(lengths) == 1 else 0


def _of_element(value: Any, k: int, count: int) -> Any:
    """An argument of element k; a tensor of one dim may hold a number for each element."""
    if isinstance(value, Tensor) and value.shape == (count,):
        return value.narrow(0, k, 1)
    is_list = isinstance(value, list | tuple) and len(value) == count
    return [value[k]] if is_list else value


def run_elements(name: str, args: list[Any]) -> bool:
    """Runs an overload on lists whose memory overlaps; false where there is nothing to take apart.

    Lists of one element are one, and of lists that differ in length the operator complains.
    """
    count = _common_length(args)
    for k in range(count if count > 1 else 0):
        operator(name, "").call([_of_element(value, k, count) for value in args])
    return count > 1
