"""Between rows of different lengths, one behind the other, and rows padded to one length."""

import math

import torch
from torch import Tensor

from . import decomposes


def _padding(value: float, dtype: torch.dtype) -> Tensor:
    """The padding in a dtype, as a C cast makes it; infinities are the dtype's bounds."""
    if math.isinf(value) and dtype == torch.bool:
        return torch.tensor(value > 0)
    if math.isinf(value) and not (dtype.is_floating_point or dtype.is_complex):
        bounds = torch.iinfo(dtype)
        return torch.tensor(bounds.max if value > 0 else bounds.min, dtype=dtype)
    return torch.tensor(value, dtype=torch.float64).to(dtype)


@decomposes("_jagged_to_padded_dense_forward")
def to_padded(
    values: Tensor, offsets: list[Tensor], max_lengths: list[int], padding_value: float = 0.0
) -> Tensor:
    """The rows from one offset to the next, each filled up to the greatest length."""
    if len(offsets) != 1:
        return NotImplemented
    [bounds], [length] = offsets, max_lengths
    starts, ends = bounds[:-1, None], bounds[1:, None]
    places = starts + torch.arange(length, device=values.device)
    shape = (*places.shape, *values.shape[1:])
    padding = _padding(padding_value, values.dtype)
    if values.shape[0] == 0:
        return values.new_full(shape, padding.item())
    rows = values.index_select(0, places.clamp(max=values.shape[0] - 1).flatten()).view(shape)
    inside = (places < ends).view(*places.shape, *[1] * (values.dim() - 1))
    return rows.where(inside, padding)


@decomposes("_padded_dense_to_jagged_forward")
def from_padded(dense: Tensor, offsets: list[Tensor], total: int | None = None) -> Tensor:
    """What the rows hold before their padding; without a total its size is read back."""
    if len(offsets) != 1:
        return NotImplemented
    [bounds] = offsets
    total = int(bounds[-1]) if total is None else total
    numbers = torch.arange(total, device=dense.device)
    which = torch.searchsorted(bounds, numbers.to(bounds.dtype), right=True) - 1
    places = numbers - bounds[which]
    rows = dense[which, places.clamp(max=dense.shape[1] - 1)]
    inside = (places < dense.shape[1]).view(-1, *[1] * (dense.dim() - 2))
    return rows.where(inside, torch.zeros((), dtype=dense.dtype))
