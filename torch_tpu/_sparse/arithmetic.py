"""Sums and products, element by element."""

import torch
from torch import Tensor

from torch_tpu._register import COMPRESSED, COO, register
from torch_tpu._sparse import compressed, coo


def _add_values(dense: Tensor, sparse: Tensor, alpha: float) -> Tensor:
    if dense.shape != sparse.shape:
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same size, but self has size "
            f"{tuple(dense.shape)} while other has size {tuple(sparse.shape)}"
        )
    sparse = coo.of(sparse)
    rows = coo.rows_of(dense, sparse.sparse_dim())
    values = sparse._values().to(dense.dtype)
    return rows.index_add(0, coo.numbers(sparse), values, alpha=alpha).reshape(dense.shape)


def add(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor) -> Tensor:
    """Dense + COO is dense; COO + COO has the places of both. A number is a dense operand."""
    self, other = (x if isinstance(x, Tensor) else torch.tensor(x) for x in (self, other))
    dtype = torch.result_type(self, other)
    if self.layout == torch.strided:
        return coo.write(out, _add_values(self.to(dtype), other, alpha))
    if other.layout == torch.strided:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    a, b = (x.to(dtype) for x in (self, other))
    return coo.write(out, union(a, b, alpha))


def scaled(values: Tensor, factor: float) -> Tensor:
    """The product with a number, in the dtype of the values."""
    return values if factor == 1 else (values * factor).to(values.dtype)


def union(a: Tensor, b: Tensor, alpha: float) -> Tensor:
    """a + alpha * b of COO tensors of one dtype."""
    values = torch.cat([a._values(), scaled(b._values(), alpha)])
    both = coo.make(torch.cat([a._indices(), b._indices()], 1), values, a.shape)
    return both.coalesce() if a.is_coalesced() and b.is_coalesced() else both


def add_compressed(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor) -> Tensor:
    """Dense + csr or csc is dense, in either order; csr + csr is csr, and bsr + bsr is bsr."""
    if torch.strided in (self.layout, other.layout):
        sparse = self if other.layout == torch.strided else other
        if sparse.layout not in (torch.sparse_csr, torch.sparse_csc):
            _refuse("add", self, other)
        dense = other if self.layout != torch.strided else self
        # PyTorch scales the sparse operand, even where it is the first.
        result = _add_values(dense.to(torch.result_type(self, other)), sparse, alpha)
        return coo.write(out, result)
    if self.layout != other.layout or self.layout not in compressed.ROWS:
        _refuse("add", self, other)
    if self.dtype != other.dtype or self.shape != other.shape:
        raise RuntimeError(
            f"add: expected tensors of one dtype and size, but got {self.dtype} of size "
            f"{tuple(self.shape)} and {other.dtype} of size {tuple(other.shape)}"
        )
    return coo.write(out, sum_of_rows(self, other, 1, alpha))


def _refuse(name: str, self: Tensor, other: Tensor) -> None:
    raise RuntimeError(
        f"{name}: operands of layouts {self.layout} and {other.layout} are not supported; give "
        "both the same layout with .to_sparse(layout=...)"
    )


def sum_of_rows(a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * a + alpha * b of tensors of one layout and shape."""
    (crow, col, ours), (crow_b, col_b, theirs) = (compressed.members(x) for x in (a, b))
    alike = ours.shape == theirs.shape and col.dtype == col_b.dtype
    if alike and torch.equal(col, col_b) and torch.equal(crow, crow_b):
        return compressed.with_values(a, scaled(ours, beta) + scaled(theirs, alpha))
    if crow.dim() != 1 or ours.shape[1:] != theirs.shape[1:]:
        raise RuntimeError("add: batches and blocks of tensors have to be at the same places")
    grid, dims = compressed.grid(a), ours.shape[1:]
    first, second = (
        coo.make(compressed.places(x), values, torch.Size([*grid, *dims]))
        for x, values in ((a, scaled(ours, beta)), (b, theirs))
    )
    both = union(first, second, alpha).coalesce()
    rows, columns = both._indices().unbind()
    return compressed.of_elements(rows, columns, both._values(), a.shape, a.layout, col.dtype)


def _with_places_of(sparse: Tensor, dense: Tensor | complex) -> Tensor:
    """The product with a number or a dense tensor; places stay."""
    if isinstance(dense, int | float | complex) or dense.dim() == 0:
        values = sparse._values() * dense
    else:
        values = sparse._values() * coo.take(dense.expand(sparse.shape), sparse)
    return coo.make(sparse._indices(), values, sparse.shape, sparse.is_coalesced())


def _product(a: Tensor, b: Tensor) -> Tensor:
    """At the places that both have, if both are coalesced; else at those of one of them, the one
    that is not, or has fewer."""
    if a.is_coalesced() and b.is_coalesced():
        i, j = coo.pairs(coo.numbers(a), coo.numbers(b))
        values = a._values()[i] * b._values()[j]
        return coo.make(a._indices()[:, i], values, a.shape, coalesced=True)
    if a.is_coalesced() or (not b.is_coalesced() and a._nnz() >= b._nnz()):
        a, b = b, a
    values = a._values() * coo.lookup(b, coo.numbers(a))
    return coo.make(a._indices(), values, a.shape, a.is_coalesced())


def _multiplied(self: Tensor, other: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(self.shape, other.shape)
    a, b = (self, other) if self.layout == torch.sparse_coo else (other, self)
    if a.shape != shape:
        a = torch.ops.aten._sparse_broadcast_to(a, shape)
    if b.layout == torch.strided:
        return _with_places_of(a, b)
    if b.shape != shape:
        b = torch.ops.aten._sparse_broadcast_to(b, shape)
    return _product(a, b)


def mul(self: Tensor | complex, other: Tensor | complex, *, out: Tensor) -> Tensor:
    """The product, element by element; it is sparse if one factor is."""
    if isinstance(self, Tensor) and isinstance(other, Tensor):
        return coo.write(out, _multiplied(self, other))
    for sparse, number in ((self, other), (other, self)):  # PyTorch unpacks what it had wrapped
        if isinstance(sparse, Tensor):
            return coo.write(out, _with_places_of(sparse, number))
    raise TypeError("mul: neither factor is a sparse tensor")


register(COO, {"add.out": add, "mul.out": mul})
register(COMPRESSED, {"add.out": add_compressed})
