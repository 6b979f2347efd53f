"""Products over the places of a sparse matrix: sampled, and reduced by rows."""

import torch
from torch import Tensor

from torch_tpu._register import COMPRESSED, register
from torch_tpu._sparse import compressed, coo, products


def _check_csr(name: str, matrix: Tensor) -> None:
    if matrix.layout != torch.sparse_csr:
        raise RuntimeError(f"{name}: expected a matrix in csr layout, but got {matrix.layout}")


def sampled_addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * self + alpha * mat1 @ mat2 at the places of self."""
    _check_csr("sampled_addmm", self)
    *batch, rows, columns = compressed.places(self).unbind()
    factors = mat1[(*batch, rows)] * mat2.transpose(-1, -2)[(*batch, columns)]
    values = factors.sum(-1).reshape(self.values().shape) * alpha
    return compressed.with_values(self, values if beta == 0 else values + self.values() * beta)


def sampled_addmm_out(
    self: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor,
) -> Tensor:
    """As `sampled_addmm`."""
    torch._check(
        out.dtype == self.dtype,
        lambda: (
            f"sampled_addmm: Expected result and self to have the same dtype, but got "
            f"{out.dtype} and {self.dtype}"
        ),
    )
    return coo.write(out, sampled_addmm(self, mat1, mat2, beta=beta, alpha=alpha))


def mm_reduce(self: Tensor, other: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """The reduction, over each row of self, of its values times rows of other.

    The second result says which of self's values an extreme comes from; it counts them if none.
    """
    _check_csr("sparse_mm_reduce", self)
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    rows, parts = products.terms(self, other)
    zeros = parts.new_zeros(self.shape[0], other.shape[1])
    if reduce == "sum":
        out = zeros.index_add(0, rows, parts)
    else:
        out = zeros.index_reduce(0, rows, parts, reduce, include_self=False)
    number = torch.arange(self._nnz(), device=rows.device).unsqueeze(1)
    if reduce not in ("amax", "amin"):
        return out, number.new_zeros(0)
    chosen = torch.where(parts == out[rows], number, self._nnz())
    which = number.new_full(out.shape, self._nnz())
    return out, which.index_reduce(0, rows, chosen, "amin")


def mm_reduce_backward(
    self: Tensor,
    grad_out: Tensor,
    weight: Tensor,
    reduce: str,
    arg_out: Tensor,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of `mm_reduce`: by self's values, at its places, and by the dense matrix."""
    rows, columns, values = coo.elements(self)
    grad = grad_out[rows]
    if reduce == "mean":
        grad = grad / torch.diff(self.crow_indices())[rows].unsqueeze(1)
    elif reduce != "sum":
        number = torch.arange(self._nnz(), device=rows.device).unsqueeze(1)
        grad = torch.where(arg_out[rows] == number, grad, 0)
    by_self = by_other = None
    if output_mask[0]:
        by_self = compressed.with_values(self, (grad * weight[columns]).sum(1))
    if output_mask[1]:
        zeros = torch.zeros_like(weight)
        by_other = zeros.index_add(0, columns, grad * values.unsqueeze(1))
    return by_self, by_other


register(
    COMPRESSED,
    {
        "sparse_sampled_addmm": sampled_addmm,
        "sparse_sampled_addmm.out": sampled_addmm_out,
        "_sparse_mm_reduce_impl": mm_reduce,
        "_sparse_mm_reduce_impl_backward": mm_reduce_backward,
    },
)
