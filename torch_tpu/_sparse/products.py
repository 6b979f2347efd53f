"""Products of matrices, one of them sparse or both, and triangular systems."""

import torch
from torch import Tensor

from torch_tpu._register import COMPRESSED, COO, register
from torch_tpu._sparse import arithmetic, compressed, coo

STRIDED, CSR, CSC = torch.strided, torch.sparse_csr, torch.sparse_csc

# The layouts of a sum, by those of the factors.
_SUMS = {
    (STRIDED, CSR): (STRIDED,),
    (STRIDED, CSC): (STRIDED,),
    (STRIDED, torch.sparse_bsc): (STRIDED,),
    (CSR, STRIDED): (STRIDED,),
    (CSC, STRIDED): (STRIDED,),
    (torch.sparse_bsr, STRIDED): (STRIDED,),
    (CSR, CSR): (STRIDED, CSR),
    (CSR, CSC): (STRIDED, CSR),
    (CSC, CSR): (CSR,),
    (CSC, CSC): (STRIDED, CSR, CSC),
}


def _check_factors(name: str, mat1: Tensor, mat2: Tensor) -> None:
    if mat1.dim() != 2 or mat2.dim() != 2 or mat1.shape[1] != mat2.shape[0]:
        shapes = " and ".join("x".join(map(str, one.shape)) for one in (mat1, mat2))
        raise RuntimeError(f"{name}: mat1 and mat2 shapes cannot be multiplied ({shapes})")
    if mat1.dtype != mat2.dtype:
        raise RuntimeError(
            f"{name}: expected mat1 and mat2 to have the same dtype, but got {mat1.dtype} and "
            f"{mat2.dtype}"
        )


def matmul_sparse(self: Tensor, other: Tensor) -> Tensor:
    """The product of two sparse matrices, in COO layout."""
    _check_factors("mm", self, other)
    rows, columns, values = coo.elements(self)
    other_rows, other_columns, other_values = coo.elements(other)
    i, j = coo.pairs(columns, other_rows)
    indices = torch.stack([rows[i], other_columns[j]])
    shape = torch.Size([self.shape[0], other.shape[1]])
    return coo.make(indices, values[i] * other_values[j], shape).coalesce()


def terms(matrix: Tensor, dense: Tensor) -> tuple[Tensor, Tensor]:
    """What each element of a sparse matrix adds to its product with a dense one.

    Returns the row of the product, and what is added to it: a line for each element.
    """
    rows, columns, values = coo.elements(matrix)
    return rows, values.unsqueeze(1) * dense[columns]


def _dense_product(mat1: Tensor, mat2: Tensor) -> Tensor:
    if mat1.layout == STRIDED:
        return _dense_product(mat2.transpose(0, 1), mat1.transpose(0, 1)).transpose(0, 1)
    if mat2.layout != STRIDED:
        return matmul_sparse(mat1, mat2).to_dense()
    zeros = mat2.new_zeros(mat1.shape[0], mat2.shape[1])
    return zeros.index_add(0, *terms(mat1, mat2))


def _dense_sum(self: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float) -> Tensor:
    product = _dense_product(mat1, mat2) * alpha
    return product.to(self.dtype) if beta == 0 else self * beta + product


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * self + alpha * mat1 @ mat2, the first factor COO, all else dense."""
    if self.layout != STRIDED or mat1.layout != torch.sparse_coo or mat2.layout != STRIDED:
        raise RuntimeError(
            f"addmm: not implemented for {self.layout} + {mat1.layout} @ {mat2.layout}; expected "
            "strided + sparse_coo @ strided"
        )
    _check_factors("addmm", mat1, mat2)
    return _dense_sum(self, mat1, mat2, beta, alpha)


def addmm_out(
    self: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor,
) -> Tensor:
    """As `addmm`."""
    return coo.write(out, addmm(self, mat1, mat2, beta=beta, alpha=alpha))


def addmm_(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """As `addmm`."""
    return addmm_out(self, mat1, mat2, beta=beta, alpha=alpha, out=self)


def _check_numbers(name: str, matrix: Tensor) -> None:
    if not (matrix.is_floating_point() or matrix.is_complex()):
        raise RuntimeError(
            f"{name}: compressed matrices of {matrix.dtype} are not multiplied; use floating point "
            "numbers, or COO layout"
        )


def addmm_compressed(
    self: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor,
) -> Tensor:
    """beta * self + alpha * mat1 @ mat2 of the layouts in `_SUMS`."""
    if out.layout not in _SUMS.get((mat1.layout, mat2.layout), ()) or (
        self.layout != out.layout and self.dim() == 2 and beta != 0
    ):
        raise RuntimeError(
            f"addmm: not implemented for {out.layout} + {mat1.layout} @ {mat2.layout}"
        )
    _check_factors("addmm", mat1, mat2)
    _check_numbers("addmm", mat1)
    if out.layout == STRIDED:
        return coo.write(out, _dense_sum(self, mat1, mat2, beta, alpha))
    product = matmul_sparse(mat1, mat2).to_sparse(layout=out.layout)
    if beta == 0:  # its places stay
        self = compressed.with_values(self, torch.zeros_like(self.values()))
    return coo.write(out, arithmetic.sum_of_rows(self, product, beta, alpha))


def addmv_out(
    self: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor,
) -> Tensor:
    """beta * self + alpha * mat @ vec, the matrix compressed by rows, or csc."""
    if mat.layout not in (CSR, CSC, torch.sparse_bsr) or vec.layout != STRIDED:
        raise RuntimeError(f"addmv: not implemented for {mat.layout} @ {vec.layout}")
    column = vec.unsqueeze(1)
    _check_factors("addmv", mat, column)
    _check_numbers("addmv", mat)
    return coo.write(out, _dense_sum(self.unsqueeze(-1), mat, column, beta, alpha).squeeze(1))


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """A batch of sparse matrices by one of dense ones."""
    batch, height, _ = self.shape
    which, rows, columns = self._indices().unbind()
    width = mat2.shape[2]
    zeros = mat2.new_zeros(batch * height, width)
    parts = self._values().unsqueeze(1) * mat2[which, columns]
    return zeros.index_add(0, which * height + rows, parts).reshape(batch, height, width)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a COO matrix and a dense one: the rows that mat1 has elements in."""
    _check_factors("hspmm", mat1, mat2)
    rows, parts = terms(mat1, mat2)
    kept, which = torch.unique(rows, return_inverse=True)
    products = mat2.new_zeros(kept.numel(), mat2.shape[1]).index_add(0, which, parts)
    shape = torch.Size([mat1.shape[0], mat2.shape[1]])
    return coo.make(kept.unsqueeze(0), products, shape)


def hspmm_out(mat1: Tensor, mat2: Tensor, *, out: Tensor) -> Tensor:
    """As `hspmm`."""
    return coo.write(out, hspmm(mat1, mat2))


def sspaddmm_out(
    self: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor,
) -> Tensor:
    """beta * self + alpha * mat1 @ mat2, all COO but mat2, which is dense."""
    if any(x.layout != torch.sparse_coo for x in (self, mat1, out)) or mat2.layout != STRIDED:
        raise RuntimeError(
            f"sspaddmm: not implemented for {self.layout} + {mat1.layout} @ {mat2.layout}"
        )
    _check_factors("sspaddmm", mat1, mat2)
    shape = torch.Size([mat1.shape[0], mat2.shape[1]])
    if self._nnz() and self.shape != shape:
        raise RuntimeError(
            f"sspaddmm: expected a summand of size {tuple(shape)}, but got {tuple(self.shape)}"
        )
    rows, parts = terms(mat1, mat2)
    across = torch.arange(mat2.shape[1], device=rows.device).expand_as(parts)
    indices = torch.stack([rows.unsqueeze(1).expand_as(across), across]).flatten(1)
    product = coo.make(indices, parts.flatten(), shape)
    if not self._nnz():
        return coo.write(out, coo.make(indices, arithmetic.scaled(parts.flatten(), alpha), shape))
    summand = coo.make(self._indices(), arithmetic.scaled(self._values(), beta), shape)
    return coo.write(out, arithmetic.union(summand, product, alpha))


def triangular_solve(
    self: Tensor,
    matrix: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    **targets: Tensor,
) -> tuple[Tensor, Tensor]:
    """Solves matrix @ X = self for a triangle of a matrix that is compressed by rows.

    The second target, a copy of the matrix where that is dense, stays empty. A matrix without
    elements has no solution, whatever its diagonal is said to be: NaN, as on all devices.
    """
    if matrix.layout not in compressed.ROWS or self.layout != STRIDED:
        raise RuntimeError(
            f"triangular_solve: not implemented for {self.layout} and {matrix.layout}; expected a "
            "strided right-hand side and a matrix in csr or bsr layout"
        )
    dense = torch.triangular_solve(self, matrix.to_dense(), upper, transpose, unitriangular)
    solution = dense.solution if matrix._nnz() else dense.solution.fill_(torch.nan)
    return coo.write(targets["X"], solution), targets["M"].resize_(0)


register(
    COO,
    {
        "_sparse_sparse_matmul": matmul_sparse,
        "addmm": addmm,
        "addmm.out": addmm_out,
        "addmm_": addmm_,
        "bmm": bmm,
        "hspmm": hspmm,
        "hspmm.out": hspmm_out,
        "sspaddmm.out": sspaddmm_out,
    },
)
register(
    COMPRESSED,
    {
        "addmm.out": addmm_compressed,
        "addmv.out": addmv_out,
        "triangular_solve.X": triangular_solve,
    },
)
