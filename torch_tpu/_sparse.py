"""Kernels for sparse tensors, made of dense operators on their indices and values.

`_lent.py` lends the device what PyTorch itself has composed of such operators; here is the rest.
Imported with the device: it registers its functions.
"""

from collections.abc import Callable

import torch
from torch import Tensor

_aten = torch.ops.aten


def _coo(indices: Tensor, values: Tensor, shape: torch.Size, coalesced: bool = False) -> Tensor:
    return torch.sparse_coo_tensor(
        indices, values, shape, check_invariants=False, is_coalesced=coalesced
    )


def _places(indices: Tensor, shape: torch.Size) -> Tensor:
    """Where each column of `indices` lies in a dense tensor of this shape, row by row."""
    place = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for row, size in zip(indices.unbind(), shape, strict=False):
        place = place * size + row
    return place


def _add_values(dense: Tensor, sparse: Tensor, alpha: float) -> Tensor:
    if dense.shape != sparse.shape:
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same size, but self has size "
            f"{tuple(dense.shape)} while other has size {tuple(sparse.shape)}"
        )
    sparse = sparse if sparse.layout == torch.sparse_coo else sparse.to_sparse()
    values = sparse._values().to(dense.dtype)
    rows = dense.reshape(-1, *dense.shape[sparse.sparse_dim() :])
    places = _places(sparse._indices(), dense.shape)
    return rows.index_add(0, places, values, alpha=alpha).reshape(dense.shape)


def _write(out: Tensor, result: Tensor) -> Tensor:
    if out.layout == torch.sparse_coo and result.layout == torch.sparse_coo:
        _aten.copy_sparse_to_sparse_(out, result.to(out.dtype))
        return out
    if out.layout != torch.strided:
        out.resize_as_sparse_(result)
    elif out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _pairs(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """All (i, j) with ours[i] == theirs[j]."""
    ordered, order = theirs.sort()
    first = torch.searchsorted(ordered, ours)
    count = torch.searchsorted(ordered, ours, right=True) - first
    i = torch.repeat_interleave(count, output_size=int(count.sum()))
    before = count.cumsum(0) - count
    nth = torch.arange(i.numel(), device=i.device) - before[i]
    return i, order[first[i] + nth]


def coalesce(self: Tensor) -> Tensor:
    """Each place once, in ascending order, with the sum of its values."""
    indices, values = self._indices(), self._values()
    if self._nnz() < 2:
        return _coo(indices.clone(), values.clone(), self.shape, coalesced=True)
    sizes = self.shape[: self.sparse_dim()]
    places, which = torch.unique(_places(indices, sizes), return_inverse=True)
    sums = values.new_zeros((places.numel(), *values.shape[1:])).index_add(0, which, values)
    rows = []
    for size in reversed(sizes):
        rows.append(places % size)
        places = places // size
    return _coo(torch.stack(rows[::-1]), sums, self.shape, coalesced=True)


def add(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor) -> Tensor:
    """Dense + sparse is dense; sparse + sparse has the places of both."""
    dtype = torch.result_type(self, other)
    if self.layout == torch.strided:
        return _write(out, _add_values(self.to(dtype), other, alpha))
    if other.layout == torch.strided:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    a, b = (
        x.to(dtype) if x.layout == torch.sparse_coo else x.to_sparse().to(dtype)
        for x in (self, other)
    )
    values = torch.cat([a._values(), b._values() * alpha])
    both = _coo(torch.cat([a._indices(), b._indices()], 1), values, a.shape)
    if a.is_coalesced() and b.is_coalesced():
        both = both.coalesce()
    return _write(
        out, both if out.layout == torch.sparse_coo else both.to_sparse(layout=out.layout)
    )


def _product(sparse: Tensor, dense: Tensor | complex) -> Tensor:
    """Element by element; places stay."""
    if isinstance(dense, int | float | complex) or dense.dim() == 0:
        values = sparse._values() * dense
    else:
        dense = dense.expand(sparse.shape)
        values = sparse._values() * dense[tuple(sparse._indices().unbind())]
    return _coo(sparse._indices(), values, sparse.shape, sparse.is_coalesced())


def _common_places(a: Tensor, b: Tensor) -> Tensor:
    """The product of two coalesced tensors: at the places that both have."""
    i, j = _pairs(*(_places(x._indices(), x.shape[: x.sparse_dim()]) for x in (a, b)))
    return _coo(a._indices()[:, i], a._values()[i] * b._values()[j], a.shape, coalesced=True)


def mul(self: Tensor, other: Tensor | complex, *, out: Tensor) -> Tensor:
    """The product, element by element; it is sparse if one factor is."""
    if not isinstance(other, Tensor):  # PyTorch unpacks numbers that it had wrapped
        return _write(out, _product(self, other))
    shape = torch.broadcast_shapes(self.shape, other.shape)
    a, b = (self, other) if self.layout == torch.sparse_coo else (other, self)
    if a.shape != shape:
        a = _aten._sparse_broadcast_to(a, shape)
    if b.layout == torch.strided:
        return _write(out, _product(a, b))
    if b.shape != shape:
        b = _aten._sparse_broadcast_to(b, shape)
    return _write(out, _common_places(a.coalesce(), b.coalesce()))


def _rows_and_columns(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    coo = matrix if matrix.layout == torch.sparse_coo else matrix.to_sparse()
    rows, columns = coo._indices().unbind()
    return rows, columns, coo._values()


def matmul_sparse(self: Tensor, other: Tensor) -> Tensor:
    """The product of two sparse matrices, sparse itself."""
    rows, columns, values = _rows_and_columns(self)
    other_rows, other_columns, other_values = _rows_and_columns(other)
    i, j = _pairs(columns, other_rows)
    indices = torch.stack([rows[i], other_columns[j]])
    shape = torch.Size([self.shape[0], other.shape[1]])
    return _coo(indices, values[i] * other_values[j], shape).coalesce()


def _matmul(mat1: Tensor, mat2: Tensor) -> Tensor:
    if mat1.layout == torch.strided:
        return _matmul(mat2.transpose(0, 1), mat1.transpose(0, 1)).transpose(0, 1)
    if mat2.layout != torch.strided:
        return matmul_sparse(mat1, mat2)
    rows, columns, values = _rows_and_columns(mat1)
    zeros = mat2.new_zeros(mat1.shape[0], mat2.shape[1])
    return zeros.index_add(0, rows, values.unsqueeze(1) * mat2[columns])


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * self + alpha * mat1 @ mat2, one of the matrices sparse, the result dense."""
    product = _matmul(mat1, mat2) * alpha
    if beta == 0:
        return product
    return self * beta + product


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
    return _write(out, addmm(self, mat1, mat2, beta=beta, alpha=alpha))


def addmm_(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """As `addmm`."""
    return addmm_out(self, mat1, mat2, beta=beta, alpha=alpha, out=self)


def addmv_out(
    self: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    out: Tensor,
) -> Tensor:
    """As `addmm`, of a vector."""
    column = self.unsqueeze(-1)
    return _write(out, addmm(column, mat, vec.unsqueeze(1), beta=beta, alpha=alpha).squeeze(1))


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """A batch of sparse matrices by one of dense ones."""
    batch, height, _ = self.shape
    which, rows, columns = self._indices().unbind()
    zeros = mat2.new_zeros(batch * height, mat2.shape[2])
    parts = self._values().unsqueeze(1) * mat2[which, columns]
    return zeros.index_add(0, which * height + rows, parts).reshape(batch, height, -1)


def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a sparse tensor that index names."""
    dim = dim % self.dim()
    shape = torch.Size([*self.shape[:dim], index.numel(), *self.shape[dim + 1 :]])
    rows, values = self._indices(), self._values()
    if dim >= self.sparse_dim():
        values = values.index_select(dim - self.sparse_dim() + 1, index)
        return _coo(rows, values, shape, self.is_coalesced())
    i, j = _pairs(rows[dim], index)
    rows = torch.stack([j if d == dim else row[i] for d, row in enumerate(rows.unbind())])
    chosen = _coo(rows, values[i], shape)
    return chosen.coalesce() if self.is_coalesced() else chosen


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places of mask."""
    indices = mask._indices()
    if self.layout == torch.strided:
        values = self[tuple(indices.unbind())]
    else:
        own = self.coalesce()
        sizes = own.shape[: own.sparse_dim()]
        i, j = _pairs(_places(indices, sizes), _places(own._indices(), sizes))
        values = own._values().new_zeros((indices.shape[1], *own._values().shape[1:]))
        values = values.index_copy(0, i, own._values()[j])
    return _coo(indices.clone(), values, mask.shape, mask.is_coalesced())


def sum_backward(grad: Tensor, self: Tensor, dim: list[int]) -> Tensor:
    """The gradient of a sum over dims, at the places of self."""
    dense = grad if grad.layout == torch.strided else grad.to_dense()
    for d in sorted(d % self.dim() for d in dim):
        dense = dense.unsqueeze(d)
    values = dense.expand(self.shape)[tuple(self._indices().unbind())]
    return _coo(self._indices().clone(), values, self.shape, self.is_coalesced())


def _of_csr(matrix: Tensor, values: Tensor) -> Tensor:
    """A matrix with other values at the same places."""
    return torch.sparse_compressed_tensor(
        matrix.crow_indices(),
        matrix.col_indices(),
        values,
        matrix.shape,
        layout=matrix.layout,
        check_invariants=False,
    )


def to_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """A compressed matrix, compressed by rows."""
    return self.clone() if self.layout == torch.sparse_csr else self.to_sparse().to_sparse_csr()


def to_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """A compressed matrix, compressed by columns."""
    return self.clone() if self.layout == torch.sparse_csc else self.to_sparse().to_sparse_csc()


def mask_csr(self: Tensor, mask: Tensor) -> Tensor:
    """The elements at the places of a compressed matrix."""
    if mask.layout != torch.sparse_csr:
        raise NotImplementedError(
            f"sparse_mask: a mask of layout {mask.layout} has no path on device 'tpu'; "
            "use torch.sparse_csr or torch.sparse_coo"
        )
    dense = self if self.layout == torch.strided else self.to_dense()
    places = _aten._convert_indices_from_csr_to_coo(mask.crow_indices(), mask.col_indices())
    return _of_csr(mask, dense[tuple(places.unbind())].reshape(mask.values().shape))


def sampled_addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * self + alpha * mat1 @ mat2 at the places of self."""
    places = _aten._convert_indices_from_csr_to_coo(self.crow_indices(), self.col_indices())
    *batch, rows, columns = places.unbind()
    factors = mat1[(*batch, rows)] * mat2.transpose(-1, -2)[(*batch, columns)]
    values = factors.sum(-1).reshape(self.values().shape) * alpha
    return _of_csr(self, values if beta == 0 else values + self.values() * beta)


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
    return _write(out, sampled_addmm(self, mat1, mat2, beta=beta, alpha=alpha))


def mm_reduce(self: Tensor, other: Tensor, reduce: str) -> tuple[Tensor, Tensor]:
    """The reduction, over each row of self, of its values times rows of other.

    The second result says which of self's values an extreme comes from; it counts them if none.
    """
    rows, columns, values = _rows_and_columns(self)
    parts = values.unsqueeze(1) * other[columns]
    zeros = parts.new_zeros(self.shape[0], other.shape[1])
    out = (
        zeros.index_reduce(0, rows, parts, reduce, include_self=False)
        if reduce != "sum"
        else (zeros.index_add(0, rows, parts))
    )
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
    rows, columns, values = _rows_and_columns(self)
    grad = grad_out[rows]
    if reduce == "mean":
        grad = grad / torch.diff(self.crow_indices())[rows].unsqueeze(1)
    elif reduce != "sum":
        number = torch.arange(self._nnz(), device=rows.device).unsqueeze(1)
        grad = torch.where(arg_out[rows] == number, grad, 0)
    by_self = by_other = None
    if output_mask[0]:
        by_self = _of_csr(self, (grad * weight[columns]).sum(1))
    if output_mask[1]:
        zeros = torch.zeros_like(weight)
        by_other = zeros.index_add(0, columns, grad * values.unsqueeze(1))
    return by_self, by_other


_COO: dict[str, Callable[..., object]] = {
    "_coalesce": coalesce,
    "_sparse_sparse_matmul": matmul_sparse,
    "_sparse_sum_backward": sum_backward,
    "add.out": add,
    "addmm": addmm,
    "addmm.out": addmm_out,
    "addmm_": addmm_,
    "bmm": bmm,
    "index_select": index_select,
    "mul.out": mul,
    "sparse_mask": sparse_mask,
}
_CSR: dict[str, Callable[..., object]] = {
    "_to_sparse_csc": to_csc,
    "_to_sparse_csr": to_csr,
    "add.out": add,
    "addmm.out": addmm_out,
    "addmv.out": addmv_out,
    "sparse_mask": mask_csr,
    "sparse_sampled_addmm": sampled_addmm,
    "sparse_sampled_addmm.out": sampled_addmm_out,
    "_sparse_mm_reduce_impl": mm_reduce,
    "_sparse_mm_reduce_impl_backward": mm_reduce_backward,
}

library = torch.library.Library("aten", "IMPL")  # the kernels live as long as this
for _key, _kernels in {"SparsePrivateUse1": _COO, "SparseCsrPrivateUse1": _CSR}.items():
    for _name, _kernel in _kernels.items():
        library.impl(_name, _kernel, _key)
