"""Linear algebra from the factorisations that have rows."""

from typing import Any

import torch
from torch import Tensor

from torch_tpu import tpu
from torch_tpu._decompositions import decomposes

aten = torch.ops.aten


def _factor(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the LU factors, the pivots, and the sign of the permutation.

    Gradients expect the factors of the transpose where the matrix is contiguous and real.
    """
    transposed = matrix.is_contiguous() and not matrix.is_complex()
    factors, pivots, _ = aten.linalg_lu_factor_ex(matrix.mT if transposed else matrix)
    own_place = torch.arange(1, pivots.shape[-1] + 1, device=pivots.device)
    swaps = (pivots != own_place).sum(-1)
    return factors, pivots, (1 - 2 * (swaps % 2)).to(matrix.dtype)


@decomposes("_linalg_det")
def det(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Determinant, through LU factors."""
    factors, pivots, sign = _factor(matrix)
    return sign * factors.diagonal(0, -2, -1).prod(-1), factors, pivots


@decomposes("_linalg_slogdet")
def slogdet(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sign and logarithm of the determinant, through LU factors."""
    factors, pivots, sign = _factor(matrix)
    diagonal = factors.diagonal(0, -2, -1)
    return sign * diagonal.sgn().prod(-1), diagonal.abs().log().sum(-1), factors, pivots


# -- Errors that depend on numbers --


def _check(info: Tensor, name: str) -> None:
    """Reads back whether all matrices have a factorisation; not in a capture, as on CUDA."""
    if not tpu.is_current_stream_capturing():
        torch._linalg_check_errors(info, name, is_matrix=info.dim() == 0)


@decomposes("cholesky")
def cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """Cholesky factor."""
    factor, info = aten.linalg_cholesky_ex(self, upper=upper)
    _check(info, "cholesky")
    return factor


def _checked(name: str, shown: str) -> None:
    operator = getattr(aten, name)

    @decomposes(name)
    def factorise(*args: Any, check_errors: bool = False, **options: Any) -> Any:
        """What its row computes, where errors are to be raised."""
        if not check_errors:
            return NotImplemented
        *results, info = operator(*args, **options)
        _check(info, shown)
        return (*results, info)


_checked("linalg_cholesky_ex", "linalg.cholesky_ex")
_checked("linalg_inv_ex", "linalg.inv_ex")
_checked("_linalg_solve_ex", "torch.linalg.solve_ex")
_checked("linalg_lu_factor_ex", "torch.linalg.lu_factor_ex")
_checked("linalg_ldl_factor_ex", "torch.linalg.ldl_factor_ex")


def _by_columns(matrices: Tensor, rows: int) -> Tensor:
    """The same, each column in memory of so many rows, as LAPACK leaves what it computes."""
    memory = matrices.new_empty(*matrices.shape[:-2], matrices.shape[-1], rows)
    return memory.mT[..., : matrices.shape[-2], :].copy_(matrices)


@decomposes("ormqr")
def ormqr(
    reflectors: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Product with the square matrix that Householder reflectors stand for."""
    rows, columns = reflectors.shape[-2:]
    torch._check(
        tau.shape[-1] == min(other.shape[-2 if left else -1], columns),
        lambda: "ormqr: expected a factor in tau for each reflector",
    )
    square = torch.nn.functional.pad(reflectors, (0, rows - columns))
    product = aten.linalg_householder_product(square, tau)
    if transpose:
        product = product.mH
    product = product @ other if left else other @ product
    return _by_columns(product, product.shape[-2])


# -- Least squares --


def _by_qr(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the solution of a system of full rank, and the triangular factor."""
    if a.shape[-2] >= a.shape[-1]:
        q, r = torch.linalg.qr(a)
        return torch.linalg.solve_triangular(r, q.mH @ b, upper=True), r
    q, r = torch.linalg.qr(a.mH)
    return q @ torch.linalg.solve_triangular(r.mH, b, upper=False), r


def _far_from_singular(r: Tensor, rcond: float | None) -> bool:
    """Reads back whether all matrices with these triangular factors are safely of full rank."""
    sizes = r.diagonal(0, -2, -1).abs()
    limit = torch.finfo(sizes.dtype).eps ** 0.5
    if rcond is not None:
        limit = max(limit, 16 * rcond)
    return bool((sizes.amin(-1) > limit * sizes.amax(-1)).all())


def _by_svd(a: Tensor, b: Tensor, rcond: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the solution of least norm, the rank, and the singular values."""
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    if rcond is None or rcond < 0:
        rcond = torch.finfo(s.dtype).eps * (max(a.shape[-2:]) if rcond is None else 1)
    kept = s > rcond * s[..., :1]
    inverse = torch.where(kept, 1 / torch.where(kept, s, 1), 0)
    solution = vh.mH @ (inverse.unsqueeze(-1) * (u.mH @ b))
    return solution, kept.sum(-1), s


@decomposes("linalg_lstsq")
def lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Least-squares solution: by QR if the driver allows and the rank is full, else by SVD."""
    torch._check(
        driver in (None, "gels", "gelsy", "gelsd", "gelss"),
        lambda: f"torch.linalg.lstsq: there is no driver {driver!r}",
    )
    m, n = self.shape[-2:]
    vector = b.dim() == self.dim() - 1
    right = b.unsqueeze(-1) if vector else b
    batch = torch.broadcast_shapes(self.shape[:-2], right.shape[:-2])
    a, right = self.expand(*batch, m, n), right.expand(*batch, m, right.shape[-1])
    values, rank = self.new_empty(0).real, self.new_empty(0, dtype=torch.int64)
    if self.numel() == 0 or right.numel() == 0:
        solution = right.new_zeros(*batch, n, right.shape[-1])
        rank, values = rank.new_zeros(batch), values.new_zeros(*batch, min(m, n))
    elif driver in (None, "gels", "gelsy"):
        solution, r = _by_qr(a, right)
        rank = rank.new_full(batch, min(m, n))
        if driver != "gels" and not _far_from_singular(r, rcond):
            solution, rank, _ = _by_svd(a, right, rcond)
    else:
        solution, rank, values = _by_svd(a, right, rcond)
    residuals = self.new_empty(0).real
    measured = driver == "gels" or (driver in ("gelsd", "gelss") and bool((rank == n).all()))
    if m > n and measured:
        residuals = (a @ solution - right).abs().square().sum(-2)
    if driver not in ("gelsd", "gelss"):
        values = values.new_empty(0)
    if driver == "gels":
        rank = rank.new_empty(0)
    solution = _by_columns(solution, max(m, n))
    return solution.squeeze(-1) if vector else solution, residuals, rank, values
