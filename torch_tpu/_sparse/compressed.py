"""Compressed tensors (csr, csc, bsr, bsc): their members, and the way to them from COO.

The members are, for each matrix of a batch, where in `plain` each row begins (each column, of csc
and bsc: the compressed dim), the number of each element in the other dim, and the values: numbers,
or blocks.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ROWS = (torch.sparse_csr, torch.sparse_bsr)
BLOCKS = (torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_csr, torch.sparse_csc, *BLOCKS)

_aten = torch.ops.aten


class Members(NamedTuple):
    """What a compressed tensor is made of."""

    compressed: Tensor
    plain: Tensor
    values: Tensor


def members(tensor: Tensor) -> Members:
    """Returns a compressed tensor's members."""
    if tensor.layout in ROWS:
        return Members(tensor.crow_indices(), tensor.col_indices(), tensor.values())
    return Members(tensor.ccol_indices(), tensor.row_indices(), tensor.values())


def make(parts: Members, shape: torch.Size, layout: torch.layout) -> Tensor:
    """A compressed tensor of these members, which are not looked at."""
    return torch.sparse_compressed_tensor(*parts, shape, layout=layout, check_invariants=False)


def with_values(tensor: Tensor, values: Tensor) -> Tensor:
    """A tensor with other values at the same places."""
    parts = members(tensor)
    return make(Members(parts.compressed, parts.plain, values), tensor.shape, tensor.layout)


def blocksize(tensor: Tensor) -> tuple[int, int] | None:
    """Rows and columns of a tensor's blocks; None of csr and csc."""
    if tensor.layout not in BLOCKS:
        return None
    compressed, _, values = members(tensor)
    high, wide = values.shape[compressed.dim() : compressed.dim() + 2]
    return high, wide


def grid(tensor: Tensor) -> tuple[int, int]:
    """How many elements, or blocks, a matrix has above and beside each other."""
    batch = members(tensor).compressed.dim() - 1
    high, wide = blocksize(tensor) or (1, 1)
    rows, columns = tensor.shape[batch : batch + 2]
    return rows // high, columns // wide


def places(tensor: Tensor) -> Tensor:
    """The row and the column of each element, or block, after its numbers in the batch's dims."""
    compressed, plain, _ = members(tensor)
    found: Tensor = _aten._convert_indices_from_csr_to_coo(
        compressed, plain, transpose=tensor.layout not in ROWS
    )
    return found


def starts(ordered: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """Where each of `count` numbers begins in ascending ones, and where the last one ends."""
    bounds = torch.arange(count + 1, device=ordered.device, dtype=ordered.dtype)
    return torch.searchsorted(ordered, bounds).to(dtype)


def of_elements(
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    shape: torch.Size,
    layout: torch.layout,
    dtype: torch.dtype = torch.int64,
) -> Tensor:
    """A matrix of elements (or blocks) at different places, which are given row by row.

    dtype: of its indices.
    """
    high, wide = values.shape[1:3] if layout in BLOCKS else (1, 1)
    if layout in ROWS:
        parts = Members(starts(rows, shape[0] // high, dtype), columns.to(dtype), values)
        return make(parts, shape, layout)
    columns, order = columns.sort(stable=True)
    bounds = starts(columns, shape[1] // wide, dtype)
    return make(Members(bounds, rows[order].to(dtype), values[order]), shape, layout)
