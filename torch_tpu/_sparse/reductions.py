"""Sums and products over dims, and the gradients of sums."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch._prims_common import canonicalize_dims, get_computation_dtype

from torch_tpu._register import COMPRESSED, COO, register
from torch_tpu._sparse import compressed, coo


def sum_backward(grad: Tensor, self: Tensor, dim: list[int]) -> Tensor:
    """The gradient of a sum over dims, at the places of self."""
    dense = grad if grad.layout == torch.strided else grad.to_dense()
    for d in sorted(d % self.dim() for d in dim):
        dense = dense.unsqueeze(d)
    values = coo.take(dense.expand(self.shape), self)
    return coo.make(self._indices().clone(), values, self.shape, self.is_coalesced())


def _sums(values: Tensor, which: Tensor, count: int) -> Tensor:
    return values.new_zeros(count).index_add(0, which, values)


def _products(values: Tensor, which: Tensor, count: int) -> Tensor:
    return values.new_ones(count).index_reduce(0, which, values, "prod")


def _reduce(
    name: str,
    reduce: Callable[[Tensor, Tensor, int], Tensor],
    self: Tensor,
    dim: list[int],
    keepdim: bool,
    dtype: torch.dtype | None,
) -> Tensor:
    """What is left of a csr matrix, itself csr: places that no element is reduced to are empty."""
    if self.layout != torch.sparse_csr or self.dim() != 2 or not keepdim:
        raise RuntimeError(
            f"{name}: expected a csr matrix and keepdim=True, but got {self.dim()} dims of layout "
            f"{self.layout} and keepdim={keepdim}"
        )
    if self.dtype == torch.bool and dtype is None:
        raise NotImplementedError(f"{name}: not implemented for booleans; name a dtype")
    dims = canonicalize_dims(2, tuple(dim) or (0, 1))
    if len(dims) != len(set(dims)):
        raise RuntimeError(f"{name}: dim {dim} names a dimension twice")
    shape = torch.Size(1 if d in dims else size for d, size in enumerate(self.shape))
    if len(dims) == 2:
        shape = torch.Size([1, min(1, self.shape[1])])
    whole = not (self.is_floating_point() or self.is_complex())
    values = self.values().to(dtype or (torch.int64 if whole else self.dtype))
    rows, columns = compressed.places(self).unbind()
    rows, columns = (rows * 0 if 0 in dims else rows), (columns * 0 if 1 in dims else columns)
    kept, which = torch.unique(rows * shape[1] + columns, return_inverse=True)
    wide = get_computation_dtype(values.dtype)
    reduced = reduce(values.to(wide), which, kept.numel()).to(values.dtype)
    across = max(shape[1], 1)
    return compressed.of_elements(
        kept // across,
        kept % across,
        reduced,
        shape,
        torch.sparse_csr,
        self.crow_indices().dtype,
    )


def csr_sum(
    self: Tensor, dim: list[int], keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Sums of a csr matrix's rows, columns, or both."""
    return _reduce("_sparse_csr_sum", _sums, self, dim, keepdim, dtype)


def csr_prod(
    self: Tensor, dim: list[int], keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Products of the elements of a csr matrix's rows, columns, or both."""
    return _reduce("_sparse_csr_prod", _products, self, dim, keepdim, dtype)


register(COO, {"_sparse_sum_backward": sum_backward})
register(
    COMPRESSED,
    {"_sparse_csr_sum.dim_dtype": csr_sum, "_sparse_csr_prod.dim_dtype": csr_prod},
)
