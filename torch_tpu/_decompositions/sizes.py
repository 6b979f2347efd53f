"""Results whose sizes depend on data: made as large as they can get, counted, and cut.

Where a count is seen to change from time to time it is a length, like that of a text
(core/call/growing.h), and what is picked has room for more, so that no program depends on it.
"""

import contextlib
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from torch_tpu import _C
from torch_tpu._decompositions import decomposes

aten = torch.ops.aten

MOST_WASTE = 1 << 20
"""Bytes that a result may hold beyond those it uses, if they are more than these."""


def first_rows(rows: Tensor, count: int) -> Tensor:
    """Returns the first rows, copied where the rest would hold much memory for nothing."""
    kept = rows.narrow(0, 0, count)
    wasted = (rows.numel() - kept.numel()) * rows.element_size()
    needed = kept.numel() * rows.element_size()
    return kept.clone() if wasted > max(MOST_WASTE, needed) else kept


def count_true(mask: Tensor) -> int:
    """Reads back how many elements are not zero."""
    return int(torch.count_nonzero(mask).item())


@contextlib.contextmanager
def as_length(mask: Tensor, count: int) -> Iterator[int]:
    """Yields as how many elements those that are true are picked, so that few programs do it.

    Within the block the count is a length if it changes from time to time.
    """
    if not _C.count_lengthens(mask, count):
        yield mask.numel()
        return
    _C.enter_length(count)
    try:
        yield count
    finally:
        _C.leave_length(count)


def places(mask: Tensor, size: int, fill_value: int = -1) -> Tensor:
    """Coordinates of the true elements; those of a dim lie together, as the CPU's do."""
    memory = mask.new_empty((mask.dim(), size), dtype=torch.int64)
    return aten.nonzero_static(mask, size=size, fill_value=fill_value, out=memory.mT)


@decomposes("nonzero")
def nonzero(self: Tensor) -> Tensor:
    """Coordinates of the elements that are not 0."""
    count = count_true(self)
    if self.dim() == 0 or self.numel() == 0:
        return self.new_empty((count, self.dim()), dtype=torch.int64)
    with as_length(self, count) as size:
        found = first_rows(places(self, size), count)
    lies = self.dim() == 1 or found.stride(1) == count
    return found if lies else found.mT.contiguous().mT  # without the places of other elements


@decomposes("masked_select")
def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """Elements where a mask is true."""
    torch._check(mask.dtype == torch.bool, lambda: "masked_select: expected a mask of dtype bool")
    self, mask = torch.broadcast_tensors(self, mask)
    count = count_true(mask)
    if self.numel() == 0:
        return self.new_empty(0)
    with as_length(mask, count) as size:
        return first_rows(aten.masked_scatter_backward(self, mask, [size]), count)


# -- Indexing by masks --


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _have_masks(indices: list[Tensor | None]) -> bool:
    """Whether some indices are masks. Warns of bytes as PyTorch does."""
    for _ in (one for one in indices if one is not None and one.dtype == torch.uint8):
        warnings.warn(
            "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
            "instead.",
            stacklevel=4,
        )
    return any(_is_mask(one) for one in indices)


def _only_mask(self: Tensor, indices: list[Tensor | None]) -> Tensor | None:
    """Returns the mask over the first dimensions if it is the only index."""
    if not indices or not _is_mask(indices[0]) or any(one is not None for one in indices[1:]):
        return None
    mask = indices[0]
    assert mask is not None
    _check_mask(self, mask, 0)
    return mask.to(self.device, torch.bool) if mask.dim() > 0 else None


def _check_mask(self: Tensor, mask: Tensor, dim: int) -> None:
    if mask.shape != self.shape[dim : dim + mask.dim()]:
        raise IndexError(
            f"a mask of shape {list(mask.shape)} at index {dim} does not fit the indexed tensor "
            f"of shape {list(self.shape)}"
        )


def _without_masks(self: Tensor, indices: list[Tensor | None]) -> list[Tensor | None]:
    """Replaces masks by the coordinates of their true elements."""
    plain: list[Tensor | None] = []
    for index in indices:
        if index is None or not _is_mask(index):
            plain.append(index)
            continue
        _check_mask(self, index, len(plain))
        plain += nonzero(index.to(self.device)).unbind(1)
    return plain


@decomposes("index.Tensor", "_unsafe_index.Tensor")
def index(self: Tensor, indices: list[Tensor | None]) -> Tensor:
    """Picks elements by index tensors, of which some are masks."""
    if not _have_masks(indices):
        return NotImplemented
    mask = _only_mask(self, indices)
    if mask is None or self.numel() == 0:
        return aten.index.Tensor(self, _without_masks(self, indices))
    if mask.dim() == self.dim():
        return masked_select(self, mask)
    count = count_true(mask)
    with as_length(mask, count) as size:
        return first_rows(aten.index.Tensor(self, places(mask, size, 0).unbind(1)), count)


@decomposes("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    self: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    """Writes values at index tensors, of which some are masks, or adds them."""
    if not _have_masks(indices):
        return NotImplemented
    mask = _only_mask(self, indices)
    if mask is not None and values.numel() == 1 and not accumulate:
        wide = mask.reshape(mask.shape + (1,) * (self.dim() - mask.dim()))
        return self.masked_fill(wide, values.reshape(()).to(self.dtype))
    return aten.index_put(self, _without_masks(self, indices), values, accumulate)


@decomposes("where.self")
def where(condition: Tensor, self: Tensor, other: Tensor) -> Tensor:
    """Chooses by a mask of bytes, which Meta kernels refuse."""
    if condition.dtype != torch.uint8:
        return NotImplemented
    return torch.where(condition.bool(), self, other)


# -- Sizes that are sums or extremes --


@decomposes("repeat_interleave.Tensor")
def repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """Each position as often as its count says."""
    if output_size is not None:
        return NotImplemented
    torch._check(repeats.dim() == 1, lambda: "repeat_interleave: repeats must have one dimension")
    if repeats.numel() == 0:
        return torch.empty_like(repeats)
    least, total = torch.stack([repeats.min(), repeats.sum()]).tolist()
    torch._check(least >= 0, lambda: "repeats can not be negative")
    return aten.repeat_interleave.Tensor(repeats, output_size=total)


@decomposes("bincount")
def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number occurs, or the sums of the weights it occurs with."""
    torch._check(minlength >= 0, lambda: "minlength should be >= 0")
    torch._check(
        self.dim() == 1 and not self.is_floating_point() and self.dtype != torch.bool,
        lambda: "bincount only supports 1-d non-negative integral inputs.",
    )
    torch._check(
        weights is None or weights.shape == self.shape,
        lambda: "weights should be 1-d and have the same length as input",
    )
    if self.numel() == 0:
        return self.new_zeros(minlength, dtype=torch.int64)
    places = self.long()
    least, most = torch.stack([places.min(), places.max()]).tolist()
    torch._check(least >= 0, lambda: "bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        weights = torch.ones_like(places)
    elif weights.dtype != torch.float32:
        weights = weights.double()
    return weights.new_zeros(max(most + 1, minlength)).index_add(0, places, weights)
