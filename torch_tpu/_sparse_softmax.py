"""Softmax of sparse tensors: over the elements that are there. The others count as minus infinity.

Imported with the device: it registers its functions.
"""

import torch
from torch import Tensor

from torch_tpu._sparse import _coo, _places, sparse_mask

_aten = torch.ops.aten


def _groups(self: Tensor, dim: int) -> Tensor:
    """For each element a number that it shares with those that differ from it in `dim` alone."""
    others = [d for d in range(self.sparse_dim()) if d != dim]
    sizes = torch.Size(self.shape[d] for d in others)
    indices = self._indices()
    places = _places(torch.stack([indices[d] for d in others]) if others else indices[:0], sizes)
    groups: Tensor = torch.unique(places, return_inverse=True)[1]
    return groups


def _sums(values: Tensor, groups: Tensor) -> Tensor:
    """For each element the sum of its group."""
    return torch.zeros_like(values).index_add(0, groups, values)[groups]


def _of(self: Tensor, values: Tensor) -> Tensor:
    return _coo(self._indices().clone(), values, self.shape, coalesced=True)


def _logarithms(self: Tensor, dim: int, half_to_float: bool) -> tuple[Tensor, Tensor]:
    if half_to_float:
        raise RuntimeError("softmax of sparse tensors: half to float conversion is not supported")
    dim, self = dim % self.dim(), self.coalesce()
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


def mask_projection(self: Tensor, mask: Tensor, accumulate_matches: bool = False) -> Tensor:
    """self with zeros where mask has no element; or times the number of the mask's elements."""
    sizes = self.shape[: self.sparse_dim()]
    ours, theirs = (_places(one._indices(), sizes) for one in (self, mask))
    ordered = theirs.sort()[0]
    first, last = (torch.searchsorted(ordered, ours, right=right) for right in (False, True))
    count = last - first if accumulate_matches else (last > first)
    values = self._values()
    factor = count.view(-1, *[1] * (values.dim() - 1)).to(values.dtype)
    return _coo(self._indices().clone(), values * factor, self.shape, self.is_coalesced())


library = torch.library.Library("aten", "IMPL")  # the kernels live as long as this
for _name, _kernel in {
    "_sparse_softmax": softmax,
    "_sparse_softmax_backward_data": softmax_backward,
    "_sparse_log_softmax": log_softmax,
    "_sparse_log_softmax_backward_data": log_softmax_backward,
    "_sparse_mask_projection": mask_projection,
}.items():
    library.impl(_name, _kernel, "SparsePrivateUse1")
