"""Distinct elements, and runs of equal ones: counted on the device, and cut to the count."""

import torch
from torch import Tensor

from torch_tpu._decompositions import decomposes
from torch_tpu._decompositions.sizes import count_true, first_rows

aten = torch.ops.aten


def _begins(rows: Tensor) -> Tensor:
    """Whether each row, along dimension 0, differs from the one before it."""
    return torch.cat([torch.ones_like(rows[:1], dtype=torch.bool), rows[1:] != rows[:-1]])


def _group(begins: Tensor) -> Tensor:
    return begins.cumsum(0) - 1


def _lengths(begins: Tensor, count: int) -> Tensor:
    """Lengths of the runs that begin where the vector is true."""
    size = begins.shape[0]
    starts = aten.nonzero_static(begins, size=size, fill_value=size).flatten()
    ends = torch.cat([starts[1:], starts.new_full((1,), size)])
    return first_rows(ends - starts, count)


def _spread(order: Tensor, group: Tensor) -> Tensor:
    """Puts each element's group where the element was before it was sorted."""
    return torch.zeros_like(group).scatter(0, order, group)


@decomposes("_unique2")
def unique(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct elements, where each one went, and how often they occur."""
    if self.numel() == 0:
        return _no_runs(self, return_inverse)
    values, order = torch.sort(self.flatten(), stable=True)
    begins = _begins(values)
    count = count_true(begins)
    nothing = self.new_empty(0, dtype=torch.int64)
    return (
        first_rows(aten.masked_scatter_backward(values, begins, [values.numel()]), count),
        _spread(order, _group(begins)).reshape(self.shape) if return_inverse else nothing,
        _lengths(begins, count) if return_counts else nothing,
    )


def _no_runs(self: Tensor, return_inverse: bool) -> tuple[Tensor, Tensor, Tensor]:
    inverse = self.new_empty(self.shape if return_inverse else 0, dtype=torch.int64)
    return self.new_empty(0), inverse, self.new_empty(0, dtype=torch.int64)


@decomposes("_unique")
def unique_without_counts(
    self: Tensor, sorted: bool = True, return_inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Distinct elements, and where each one went."""
    return unique(self, sorted, return_inverse)[:2]


@decomposes("unique_consecutive")
def unique_consecutive(
    self: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """First elements of runs of equal ones, each element's run, and the runs' lengths."""
    if dim is not None:
        return unique_dim_consecutive(self, dim, return_inverse, return_counts)
    if self.numel() == 0:
        return _no_runs(self, return_inverse)
    values = self.flatten()
    begins = _begins(values)
    count = count_true(begins)
    nothing = self.new_empty(0, dtype=torch.int64)
    return (
        first_rows(aten.masked_scatter_backward(values, begins, [values.numel()]), count),
        _group(begins).reshape(self.shape) if return_inverse else nothing,
        _lengths(begins, count) if return_counts else nothing,
    )


def _dense_rank(columns: Tensor) -> Tensor:
    """The place of each element among the distinct ones of its column."""
    values, order = torch.sort(columns, dim=0, stable=True)
    return _spread(order, _group(_begins(values)))


def _row_ranks(rows: Tensor) -> Tensor:
    """The place of each row among the distinct rows in lexicographic order.

    Columns are replaced by ranks and joined two by two, so that a logarithm of them must be sorted.
    """
    size = rows.shape[0]
    if rows.shape[1] == 0:
        return rows.new_zeros(size, dtype=torch.int64)
    ranks = _dense_rank(rows)
    while (width := ranks.shape[1]) > 1:
        even = width - width % 2
        pairs = _dense_rank(ranks[:, 0:even:2] * size + ranks[:, 1:even:2])
        ranks = torch.cat([pairs, ranks[:, even:]], 1)
    return ranks[:, 0]


def _unique_slices(
    self: Tensor, dim: int, begins: Tensor, places: Tensor | None
) -> tuple[Tensor, int]:
    """The slices where runs begin; `places` tells where the runs' elements come from."""
    size, count = begins.shape[0], count_true(begins)
    starts = aten.nonzero_static(begins, size=size, fill_value=0).flatten()
    if places is not None:
        starts = places[starts]
    rows = first_rows(self.movedim(dim, 0).index_select(0, starts), count)
    return rows.movedim(0, dim), count


def _no_slices(self: Tensor, dim: int) -> bool:
    """Whether there is nothing along the dimension; other empty ones are refused, as on the CPU."""
    empty = list(self.shape).count(0)
    nothing = self.dim() > 0 and self.shape[dim] == 0
    torch._check(
        empty == int(nothing),
        lambda: (
            f"unique along dimension {dim} of a tensor of shape {list(self.shape)}: "
            "no other dimension may be empty"
        ),
    )
    return nothing


@decomposes("unique_dim")
def unique_dim(
    self: Tensor,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct slices in order, where each one went, and how often they occur."""
    if _no_slices(self, dim):
        none = self.new_empty(0, dtype=torch.int64)
        return torch.empty_like(self), none, none.clone()
    rows = self.movedim(dim, 0) if self.dim() > 0 else self.reshape(1)
    ranks, order = torch.sort(_row_ranks(rows.reshape(rows.shape[0], -1)), stable=True)
    begins = _begins(ranks)
    values, count = _unique_slices(self, dim, begins, order)
    return values, _spread(order, _group(begins)), _lengths(begins, count)


@decomposes("unique_dim_consecutive")
def unique_dim_consecutive(
    self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """First slices of runs of equal ones, each slice's run, and the runs' lengths."""
    if _no_slices(self, dim):
        none = self.new_empty(0, dtype=torch.int64)
        return torch.empty_like(self), none, none.clone()
    rows = self.movedim(dim, 0)
    begins = _begins(rows.reshape(rows.shape[0], -1)).any(1)
    values, count = _unique_slices(self, dim, begins, None)
    return values, _group(begins), _lengths(begins, count)
