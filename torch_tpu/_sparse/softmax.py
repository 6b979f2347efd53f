"""Softmax of COO tensors: over the elements that are there. The others count as minus infinity."""

import torch
from torch import Tensor
from torch._prims_common import canonicalize_dim

from torch_tpu._register import COO, register
from torch_tpu._sparse import coo
from torch_tpu._sparse.masks import sparse_mask


def _groups(self: Tensor, dim: int) -> Tensor:
    """For each element a number that it shares with those that differ from it in `dim` alone."""
    others = [d for d in range(self.sparse_dim()) if d != dim]
    sizes = torch.Size(self.shape[d] for d in others)
    indices = self._indices()
    places = coo.number(torch.stack([indices[d] for d in others]) if others else indices[:0], sizes)
    groups: Tensor = torch.unique(places, return_inverse=True)[1]
    return groups


def _sums(values: Tensor, groups: Tensor) -> Tensor:
    """For each element the sum of its group."""
    return torch.zeros_like(values).index_add(0, groups, values)[groups]


def _of(self: Tensor, values: Tensor) -> Tensor:
    return coo.make(self._indices().clone(), values, self.shape, coalesced=True)


def _logarithms(self: Tensor, dim: int, half_to_float: bool) -> tuple[Tensor, Tensor]:
    if half_to_float:
        raise RuntimeError("softmax of sparse tensors: half to float conversion is not supported")
    if not self.is_floating_point() or self.dim() == 0:
        raise RuntimeError(
            "softmax of sparse tensors: expected floating point numbers in at least one dim, but "
            f"got {self.dtype} and {self.dim()} dims"
        )
    dim, self = canonicalize_dim(self.dim(), dim), self.coalesce()
    values = self._values()
    if dim >= self.sparse_dim():
        return self, values.log_softmax(dim - self.sparse_dim() + 1)
    groups = _groups(self, dim)
    low = torch.full_like(values, -torch.inf)
    shifted = values - low.index_reduce(0, groups, values, "amax")[groups]
    return self, shifted - _sums(shifted.exp(), groups).log()


def softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Shares of each group, which sum to one."""
    self, logarithms = _logarithms(self, dim, half_to_float)
    return _of(self, logarithms.exp())


def log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Logarithms of each element's share of its group."""
    return _of(*_logarithms(self, dim, half_to_float))


def _total(output: Tensor, values: Tensor, dim: int) -> Tensor:
    dim = dim % output.dim()
    if dim >= output.sparse_dim():
        return values.sum(dim - output.sparse_dim() + 1, keepdim=True)
    return _sums(values, _groups(output, dim))


def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
    """The gradient of `softmax`; where there is none at a place of the output, it is zero."""
    grad, values = sparse_mask(grad_output, output)._values(), output._values()
    return _of(output, values * (grad - _total(output, grad * values, dim)))


def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Tensor:
    """The gradient of `log_softmax`."""
    grad, values = sparse_mask(grad_output, output)._values(), output._values()
    return _of(output, grad - values.exp() * _total(output, grad, dim))


register(
    COO,
    {
        "_sparse_softmax": softmax,
        "_sparse_softmax_backward_data": softmax_backward,
        "_sparse_log_softmax": log_softmax,
        "_sparse_log_softmax_backward_data": log_softmax_backward,
    },
)
