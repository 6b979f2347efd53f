"""COO tensors: coordinates as places in a dense tensor, and what makes or chooses them."""

import math

import torch
from torch import Tensor
from torch._prims_common import canonicalize_dim

from torch_tpu._register import COO, register

_aten = torch.ops.aten


def make(indices: Tensor, values: Tensor, shape: torch.Size, coalesced: bool = False) -> Tensor:
    """A COO tensor of these members, which are not looked at."""
    return torch.sparse_coo_tensor(
        indices, values, shape, check_invariants=False, is_coalesced=coalesced
    )


def of(tensor: Tensor) -> Tensor:
    """The tensor in COO layout."""
    return tensor if tensor.layout == torch.sparse_coo else tensor.to_sparse()


def elements(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The row, the column and the value of each element."""
    sparse = of(matrix)
    rows, columns = sparse._indices().unbind()
    return rows, columns, sparse._values()


def number(indices: Tensor, shape: torch.Size) -> Tensor:
    """Where each column of `indices` lies in a dense tensor of this shape, row by row."""
    place = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for row, size in zip(indices.unbind(), shape, strict=False):
        place = place * size + row
    return place


def numbers(tensor: Tensor) -> Tensor:
    """Where each element of a COO tensor lies."""
    return number(tensor._indices(), tensor.shape[: tensor.sparse_dim()])


def coordinates(places: Tensor, shape: torch.Size) -> Tensor:
    """The columns of indices that lie at these places; the reverse of `number`."""
    rows = []
    for size in reversed(shape):
        rows.append(places % size)
        places = places // size
    return torch.stack(rows[::-1]) if rows else places.new_empty(0, places.numel())


def take(dense: Tensor, like: Tensor) -> Tensor:
    """What a dense tensor holds at the places of a COO tensor of its shape."""
    return rows_of(dense, like.sparse_dim()).index_select(0, numbers(like))


def rows_of(dense: Tensor, sparse_dim: int) -> Tensor:
    """A dense tensor whose first dims are one."""
    first, rest = dense.shape[:sparse_dim], dense.shape[sparse_dim:]
    return dense.reshape(math.prod(first), *rest)


def pairs(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """All (i, j) with ours[i] == theirs[j]."""
    ordered, order = theirs.sort()
    first = torch.searchsorted(ordered, ours)
    count = torch.searchsorted(ordered, ours, right=True) - first
    i = torch.repeat_interleave(count, output_size=int(count.sum()))
    before = count.cumsum(0) - count
    nth = torch.arange(i.numel(), device=i.device) - before[i]
    return i, order[first[i] + nth]


def write(out: Tensor, result: Tensor) -> Tensor:
    """Gives an out= tensor what a kernel computed, if it is of the same layout."""
    if out.layout != result.layout:
        raise RuntimeError(
            f"a result of layout {result.layout} cannot be written to a tensor of layout "
            f"{out.layout}"
        )
    if not torch.can_cast(result.dtype, out.dtype):
        raise RuntimeError(f"Can't convert result type {result.dtype} to output {out.dtype}")
    if out.layout == torch.sparse_coo:
        _aten.copy_sparse_to_sparse_(out, result.to(out.dtype))
        return out
    if out.layout != torch.strided:
        out.resize_as_sparse_(result)
    elif out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def coalesce(self: Tensor) -> Tensor:
    """Each place once, in ascending order, with the sum of its values."""
    indices, values = self._indices(), self._values()
    if self._nnz() < 2:
        return make(indices.clone(), values.clone(), self.shape, coalesced=True)
    places, which = torch.unique(numbers(self), return_inverse=True)
    sums = values.new_zeros((places.numel(), *values.shape[1:])).index_add(0, which, values)
    rows = coordinates(places, self.shape[: self.sparse_dim()])
    return make(rows, sums, self.shape, coalesced=True)


def lookup(tensor: Tensor, places: Tensor) -> Tensor:
    """The values of a COO tensor at some places, zero where it has none."""
    own = tensor.coalesce()
    i, j = pairs(places, numbers(own))
    values = own._values()
    return values.new_zeros((places.numel(), *values.shape[1:])).index_copy(0, i, values[j])


def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a sparse tensor that index names."""
    dim = canonicalize_dim(self.dim(), dim)
    least, most = torch.stack(index.aminmax()).tolist() if index.numel() else (0, -1)
    if least < 0 or most >= self.shape[dim]:
        raise IndexError(
            f"index_select: index is out of range for dimension {dim}, which has size "
            f"{self.shape[dim]}"
        )
    shape = torch.Size([*self.shape[:dim], index.numel(), *self.shape[dim + 1 :]])
    rows, values = self._indices(), self._values()
    if dim >= self.sparse_dim():
        values = values.index_select(dim - self.sparse_dim() + 1, index)
        return make(rows, values, shape, self.is_coalesced())
    i, j = pairs(rows[dim], index)
    rows = torch.stack([j if d == dim else row[i] for d, row in enumerate(rows.unbind())])
    chosen = make(rows, values[i], shape)
    return chosen.coalesce() if self.is_coalesced() else chosen


register(COO, {"_coalesce": coalesce, "index_select": index_select})
