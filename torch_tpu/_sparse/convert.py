"""From one compressed layout to another."""

import torch
from torch import Tensor

from torch_tpu._register import COMPRESSED, register
from torch_tpu._sparse import compressed
from torch_tpu._sparse.compressed import Members

FLIPPED = {
    torch.sparse_csr: torch.sparse_csc,
    torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc,
    torch.sparse_bsc: torch.sparse_bsr,
}


def _same(tensor: Tensor) -> Tensor:
    return compressed.make(compressed.members(tensor), tensor.shape, tensor.layout)


def flip(tensor: Tensor) -> Tensor:
    """Compresses the other dim; all matrices of a batch at once."""
    bounds, plain, values = compressed.members(tensor)
    *batch, nnz = plain.shape
    rows, columns = compressed.grid(tensor)
    size = columns if tensor.layout in compressed.ROWS else rows
    outer, inner = compressed.places(tensor)[-2:].unbind()
    if tensor.layout not in compressed.ROWS:
        outer, inner = inner, outer
    count = bounds.shape[:-1].numel()
    matrix = torch.arange(count, device=plain.device).unsqueeze(1)
    slot = matrix.expand(count, nnz).reshape(-1) * size + inner
    order = (slot * max(rows, columns) + outer).argsort()
    first = matrix * size + torch.arange(size + 1, device=plain.device)
    starts = torch.searchsorted(slot[order], first) - matrix * nnz
    parts = Members(
        starts.to(bounds.dtype).reshape(*batch, size + 1),
        outer[order].to(plain.dtype).reshape(plain.shape),
        values.reshape(count * nnz, *values.shape[len(batch) + 1 :])[order].reshape(values.shape),
    )
    return compressed.make(parts, tensor.shape, FLIPPED[tensor.layout])


def _into_blocks(tensor: Tensor, layout: torch.layout, blocksize: list[int]) -> Tensor:
    """A matrix of elements as one of blocks, each of which holds an element at least."""
    high, wide = blocksize
    bounds, _, values = compressed.members(tensor)
    if bounds.dim() != 1:
        raise RuntimeError(
            f"to_sparse: conversion from {tensor.layout} to {layout} of a batch is not supported; "
            "convert its matrices one by one"
        )
    if high <= 0 or wide <= 0 or tensor.shape[0] % high or tensor.shape[1] % wide:
        raise RuntimeError(
            f"to_sparse: a tensor of size {tuple(tensor.shape)} cannot be cut into blocks of size "
            f"({high}, {wide}); its sizes have to be multiples of the block's"
        )
    rows, columns = compressed.places(tensor).unbind()
    across, dense = max(tensor.shape[1] // wide, 1), values.shape[1:]
    kept, which = torch.unique(rows // high * across + columns // wide, return_inverse=True)
    within = (which * high + rows % high) * wide + columns % wide
    blocks = values.new_zeros(kept.numel() * high * wide, *dense).index_copy(0, within, values)
    return compressed.of_elements(
        kept // across,
        kept % across,
        blocks.reshape(kept.numel(), high, wide, *dense),
        tensor.shape,
        layout,
        bounds.dtype,
    )


def _refuse(tensor: Tensor, layout: torch.layout, blocksize: list[int] | None) -> None:
    size = f" of blocks of {tuple(blocksize)}" if blocksize else ""
    raise RuntimeError(
        f"to_sparse: conversion from {tensor.layout} to {layout}{size} is not implemented; go by "
        "way of .to_dense()"
    )


def _to(
    tensor: Tensor, layout: torch.layout, blocksize: list[int] | None, dense_dim: int | None
) -> Tensor:
    """The matrix in a compressed layout, if PyTorch knows the way."""
    if dense_dim is not None:
        raise RuntimeError(
            f"conversion from {tensor.layout} to {layout} does not support specifying number of "
            "dense dimensions"
        )
    own = compressed.blocksize(tensor)
    if layout in compressed.BLOCKS and own is None and blocksize is not None:
        return _into_blocks(tensor, layout, blocksize)
    if own != (None if blocksize is None else tuple(blocksize)):
        _refuse(tensor, layout, blocksize)
    if layout == FLIPPED[tensor.layout]:
        return flip(tensor)
    if layout != tensor.layout:
        _refuse(tensor, layout, blocksize)
    return _same(tensor)


def to_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix, compressed by rows."""
    return _to(self, torch.sparse_csr, None, dense_dim)


def to_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix, compressed by columns."""
    return _to(self, torch.sparse_csc, None, dense_dim)


def to_bsr(self: Tensor, blocksize: list[int], dense_dim: int | None = None) -> Tensor:
    """The matrix in blocks, compressed by rows."""
    return _to(self, torch.sparse_bsr, blocksize, dense_dim)


def to_bsc(self: Tensor, blocksize: list[int], dense_dim: int | None = None) -> Tensor:
    """The matrix in blocks, compressed by columns."""
    return _to(self, torch.sparse_bsc, blocksize, dense_dim)


def to_sparse(
    self: Tensor,
    *,
    layout: torch.layout | None = None,
    blocksize: list[int] | None = None,
    dense_dim: int | None = None,
) -> Tensor:
    """The matrix in another layout, COO if none is named."""
    layout = torch.sparse_coo if layout is None else layout
    if blocksize is not None and layout not in compressed.BLOCKS:
        raise RuntimeError(
            f"to_sparse: {self.layout} to {layout} conversion does not use the specified "
            f"blocksize {blocksize}."
        )
    if layout in FLIPPED:
        return _to(self, layout, blocksize, dense_dim)
    if dense_dim is not None:
        raise RuntimeError(
            f"to_sparse: conversion from {self.layout} to {layout} does not support specifying "
            "number of dense dimensions"
        )
    return self.to_dense() if layout == torch.strided else self.to_sparse(2)


register(
    COMPRESSED,
    {
        "_to_sparse": to_sparse,
        "_to_sparse_bsc": to_bsc,
        "_to_sparse_bsr": to_bsr,
        "_to_sparse_csc": to_csc,
        "_to_sparse_csr": to_csr,
    },
)
