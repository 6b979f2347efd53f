"""Operators on sparse, nested and masked tensors, by layout, and how their results are compared.

`CASES` has for each layout functions by name that yield (work, inputs): what `work(*inputs)` does
on the CPU it is to do on the device.

usage: layouts.py [LAYOUT...]
It counts the cases that do, by layout, and says what the others do instead.
"""

import itertools
import sys
import warnings
from collections.abc import Mapping

import torch
from support import DEVICE, TOLERANCES
from torch.masked import MaskedTensor, masked_tensor
from torch.masked.maskedtensor import binary, reductions, unary
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import UnaryUfuncInfo
from torch.testing._internal.opinfo.definitions.nested import njt_op_db
from torch.utils._pytree import tree_flatten, tree_map

SPARSE = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}
COMPRESSED = tuple(layout for layout in SPARSE.values() if layout != torch.sparse_coo)
MATRICES = {"strided": torch.strided, **SPARSE}
COUNT = 12
"""At most so many samples of a database's entry are taken, spread over all of them."""


# -- Comparing --


def move(tree, device):
    """Copies the tensors of a tree to a device, whatever their layouts."""

    def one(x):
        if isinstance(x, torch.device):
            return torch.device(device)
        if not isinstance(x, torch.Tensor):
            return x
        return x.detach().clone().to(device).requires_grad_(x.requires_grad)

    return tree_map(one, tree)


def parts(x):
    """What a tensor of any layout is made of: dense tensors and plain values."""
    if isinstance(x, MaskedTensor):
        data, mask = x.get_data(), x.get_mask()
        if data.layout == torch.strided:
            data = torch.where(mask, data, torch.zeros((), dtype=data.dtype, device=data.device))
        return ["masked", *parts(data), *parts(mask)]
    if x.is_nested:
        ragged = [x.offsets(), x.lengths()] if x.layout == torch.jagged else []
        return [x.layout, x.dim(), *ragged, *x.unbind()]
    plain = [x.layout, tuple(x.shape), x.device.type == DEVICE]
    if x.layout == torch.sparse_coo:
        plain += [x.is_coalesced(), x.sparse_dim(), x.dense_dim()]
        x = x.coalesce()
        return [*plain, x.indices(), x.values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [*plain, *in_order(x.crow_indices(), x.col_indices(), x.values())]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [*plain, *in_order(x.ccol_indices(), x.row_indices(), x.values())]
    return [*plain, x]


def in_order(compressed, plain, values):
    """A compressed tensor's members; the CPU's library leaves those of a row in any order."""
    compressed, plain, values = compressed.cpu(), plain.cpu(), values.cpu()
    if compressed.dim() > 1 or plain.numel() == 0:
        return compressed, plain, values
    which = torch.arange(len(compressed) - 1).repeat_interleave(compressed.diff())
    order = (which * (int(plain.max()) + 1) + plain).argsort(stable=True)
    return compressed, plain[order], values[order]


def same(actual, expected):
    """Asserts that two trees agree in structure, layouts, places, dtypes, and nearly in values."""
    got, want = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(got) == len(want), f"{len(got)} results, expected {len(want)}"
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b or (a != a and b != b), f"{a!r}, expected {b!r}"
            continue
        for mine, theirs in zip(parts(a), parts(b), strict=True):
            if not isinstance(theirs, torch.Tensor):
                assert isinstance(theirs, bool) or mine == theirs, f"{mine}, expected {theirs}"
                continue
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), (mine, theirs)
            torch.testing.assert_close(
                mine.detach().cpu(),
                theirs.detach().cpu(),
                equal_nan=True,
                **TOLERANCES.get(theirs.dtype, {}),
            )


def broken(x):
    """Whether a compressed tensor's members do not fit each other, so that it has no elements."""
    if type(x) is not torch.Tensor or x.layout not in COMPRESSED:
        return False
    rows = x.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed, plain = (
        (x.crow_indices(), x.col_indices()) if rows else (x.ccol_indices(), x.row_indices())
    )
    fits = plain.shape == x.values().shape[: plain.dim()]
    return not fits or bool((compressed[..., -1] != plain.shape[-1]).any())


def agree(work, inputs):
    """Asserts that work(*inputs) does on the device what it does on the CPU.

    Both have equal results, or both refuse. Some results of the CPU are broken; the device then has
    another one. Returns whether there was a result that could be compared.
    """
    try:
        expected = work(*move(inputs, "cpu"))
    except Exception as error:
        if str(error) == "ZeroDivisionError":  # of whole numbers, by the CPU alone
            return False
        try:
            result = work(*move(inputs, DEVICE))
        except Exception as ours:
            assert "INTERNAL ASSERT" not in str(ours) or "INTERNAL ASSERT" in str(error), ours
            return False
        raise AssertionError(f"the CPU refuses it ({error}), the device has {result}") from error
    actual = work(*move(inputs, DEVICE))
    if any(broken(x) for x in tree_flatten(expected)[0]):
        assert not any(broken(x) for x in tree_flatten(actual)[0])
        return False
    same(actual, expected)
    return True


# -- Tensors --


def matrix(rows=4, columns=6, seed=0, dtype=torch.float32, batch=(), dense=()):
    """A dense matrix of which some two thirds are zeros; equally many in each batch."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, columns, generator=generator) > 0.6
    mask[0, 0] = True
    x = torch.randn(*batch, rows, columns, *dense, generator=generator) * 4 + 0.5
    x = x * mask.reshape(rows, columns, *[1] * len(dense))
    return x.to(dtype)


def of_layout(x, layout, blocksize=(2, 3), index=torch.int64, dense_dim=None):
    """A tensor of a layout with the elements of a dense one, on the CPU."""
    if layout == torch.strided:
        return x
    blocks = layout in (torch.sparse_bsr, torch.sparse_bsc)
    options = {"blocksize": blocksize} if blocks else {}
    s = x.to_sparse(layout=layout, dense_dim=dense_dim, **options)
    if layout == torch.sparse_coo or index == torch.int64:
        return s
    rows = layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = s.crow_indices() if rows else s.ccol_indices()
    plain = s.col_indices() if rows else s.row_indices()
    return torch.sparse_compressed_tensor(
        compressed.to(index), plain.to(index), s.values(), s.shape, layout=layout
    )


def uncoalesced():
    indices = torch.tensor([[0, 3, 1, 0], [2, 0, 0, 2]])
    return torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2, 3, 4]), (4, 6))


# -- Conversions --


def sources(layout):
    """Tensors of a layout that are converted: each a name and a tensor."""
    yield "plain", of_layout(matrix(), layout)
    yield "int32", of_layout(matrix(), layout, index=torch.int32)
    yield "integers", of_layout(matrix(dtype=torch.int64), layout)
    yield "square", of_layout(matrix(6, 6) + torch.eye(6) * 9, layout, (2, 2))
    yield "zeros", of_layout(torch.zeros(4, 6), layout)
    yield "no rows", of_layout(torch.zeros(0, 6), layout)
    yield "no columns", of_layout(torch.zeros(4, 0), layout)
    yield "wide blocks", of_layout(matrix(), layout, (1, 6))
    yield "batch", of_layout(matrix(batch=(2,)), layout)
    yield "batch int32", of_layout(matrix(batch=(2,)), layout, index=torch.int32)
    yield "batches", of_layout(matrix(batch=(2, 3)), layout)
    if layout in (torch.strided, torch.sparse_coo):
        yield "empty batch", of_layout(torch.zeros(0, 4, 6), layout)
    if layout != torch.strided:
        yield "dense dim", of_layout(matrix(dense=(3,)), layout, dense_dim=1)
        yield "empty dense dim", of_layout(torch.zeros(4, 6, 0), layout, dense_dim=1)
        yield "batch and dense dim", of_layout(matrix(batch=(2,), dense=(3,)), layout, dense_dim=1)
    if layout == torch.sparse_coo:
        yield "uncoalesced", uncoalesced()
        yield "scalar", torch.tensor(2.0).to_sparse()
        yield "no elements", torch.sparse_coo_tensor(size=())
        yield "values only", torch.sparse_coo_tensor(torch.zeros(0, 3).long(), torch.ones(3), ())


def conversions(layout):
    def cases():
        for (_, x), target in itertools.product(sources(layout), MATRICES.values()):
            for blocksize in (None, (2, 3), (2, 2), (1, 1)):
                for dense_dim in (None, 1):
                    yield convert, (x, target, blocksize, dense_dim)

    def convert(x, target, blocksize, dense_dim):
        if target == torch.strided:
            return x.to_dense()
        return x.to_sparse(layout=target, blocksize=blocksize, dense_dim=dense_dim)

    return cases


# -- Pairs of layouts --

PAIRS = {
    "add": torch.add,
    "add scaled": lambda x, y: torch.add(x, y, alpha=2),
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "equal": torch.equal,
    "add in place": lambda x, y: x.clone().add_(y),
    "mul in place": lambda x, y: x.clone().mul_(y),
    "sparse_mask": lambda x, y: x.sparse_mask(y),
    "copy": lambda x, y: x.clone().copy_(y),
    "resize": lambda x, y: x.clone().resize_as_sparse_(y).shape,
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "where": lambda x, y: torch.where(x != 0, x, y),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
}
PRODUCTS = {
    "matmul": lambda x, y, z: x @ y.transpose(0, 1),
    "mm": lambda x, y, z: torch.mm(x, y.transpose(0, 1)),
    "mm sparse": lambda x, y, z: torch.sparse.mm(x, y.transpose(0, 1)),
    "mm reduced": lambda x, y, z: torch.sparse.mm(x, y.transpose(0, 1), "amax"),
    "addmm": lambda x, y, z: torch.addmm(z, x, y.transpose(0, 1), beta=0.5, alpha=2),
    "addmm sparse": lambda x, y, z: torch.sparse.addmm(z, x, y.transpose(0, 1), beta=0.5),
    "addmm beta 0": lambda x, y, z: torch.addmm(z * torch.inf, x, y.transpose(0, 1), beta=0),
    "addmm in place": lambda x, y, z: z.clone().addmm_(x, y.transpose(0, 1)),
    "addmm row": lambda x, y, z: torch.addmm(z[0], x, y.transpose(0, 1)),
    "mm out": lambda x, y, z: torch.mm(x, y.transpose(0, 1), out=z.clone()),
    "sampled": lambda x, y, z: torch.sparse.sampled_addmm(z, x, y.transpose(0, 1)),
    "sspaddmm": lambda x, y, z: torch.sspaddmm(z, x, y.transpose(0, 1), beta=0.5, alpha=2),
    "hspmm": lambda x, y, z: torch.hspmm(x, y.transpose(0, 1)),
    "linear": lambda x, y, z: torch.nn.functional.linear(x, y),
}
VECTORS = {
    "mv": lambda x, v, y: torch.mv(x, v),
    "matmul vector": lambda x, v, y: x @ v,
    "addmv": lambda x, v, y: torch.addmv(y, x, v, beta=0.5, alpha=2),
    "addmv beta 0": lambda x, v, y: torch.addmv(y * torch.nan, x, v, beta=0),
}


def pairs(layout, function):
    def cases():
        for other, dtype in itertools.product(MATRICES.values(), (torch.float32, torch.int64)):
            x, y = (
                of_layout(matrix(seed=seed, dtype=dtype), one, (2, 2))
                for seed, one in enumerate((layout, other))
            )
            yield function, (x, y)
        for other in MATRICES.values():
            x, y = (
                of_layout(matrix(seed=seed), one, (2, 2), torch.int32)
                for seed, one in enumerate((layout, other))
            )
            yield function, (x, y)
            yield function, (x.double(), y)

    return cases


def products(layout, function):
    def cases():
        for other, third in itertools.product(MATRICES.values(), MATRICES.values()):
            yield (
                function,
                (
                    of_layout(matrix(), layout, (2, 2)),
                    of_layout(matrix(seed=1), other, (2, 2)),
                    of_layout(matrix(4, 4, seed=2), third, (2, 2)),
                ),
            )

    return cases


def vectors(layout, function):
    def cases():
        for dtype in (torch.float32, torch.float64):
            x = of_layout(matrix(dtype=dtype), layout, (2, 2))
            v, y = torch.arange(6, dtype=dtype), torch.arange(4, dtype=dtype)
            yield function, (x, v, y)
            yield function, (x, v.to_sparse(), y)

    return cases


# -- One tensor of a layout --

SINGLE = {
    "sum": lambda x: x.sum(),
    "sum 0": lambda x: x.sum(0),
    "sum 1 kept": lambda x: x.sum(1, keepdim=True),
    "sum last": lambda x: x.sum(-1),
    "sum both": lambda x: x.sum((0, 1), keepdim=True),
    "sum in another dtype": lambda x: x.sum(0, dtype=torch.float64),
    "sparse sum": lambda x: torch.sparse.sum(x),
    "sparse sum 0": lambda x: torch.sparse.sum(x, 0),
    "sparse sum 1": lambda x: torch.sparse.sum(x, [0, 1]),
    "csr sum": lambda x: torch._sparse_csr_sum(x, [0], True),
    "csr prod": lambda x: torch._sparse_csr_prod(x, [1], True),
    "mean": lambda x: x.mean(),
    "norm": lambda x: x.norm(),
    "any": lambda x: x.any(),
    "max": lambda x: x.max(),
    "transpose": lambda x: x.transpose(0, 1),
    "transpose last": lambda x: x.transpose(-1, -2),
    "permute": lambda x: x.permute(*range(x.dim())[::-1]),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(0),
    "reshape": lambda x: x.reshape(-1),
    "select": lambda x: x[1],
    "select last": lambda x: x.select(-1, 0),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "narrow copy": lambda x: x.narrow_copy(0, 1, 2),
    "slice": lambda x: x[1:3],
    "index select": lambda x: x.index_select(0, torch.tensor([2, 0, 2], device=x.device)),
    "clone": lambda x: x.clone(),
    "zeros like": torch.zeros_like,
    "ones like": torch.ones_like,
    "empty like": lambda x: torch.empty_like(x).shape,
    "zero": lambda x: x.clone().zero_(),
    "fill": lambda x: x.clone().fill_(3),
    "double": lambda x: x.double(),
    "to half": lambda x: x.to(torch.bfloat16),
    "times 2": lambda x: x * 2,
    "over 2": lambda x: x / 2,
    "over zero-dim": lambda x: x / torch.tensor(2.0, device=x.device),
    "floor over 2": lambda x: x // 2,
    "plus 2": lambda x: x + 2,
    "power": lambda x: x**2,
    "nan_to_num": torch.nan_to_num,
    "clamp": lambda x: x.clamp(0, 1),
    "compare": lambda x: x == 0,
    "sparse dim": lambda x: (x.sparse_dim(), x.dense_dim(), x._nnz()),
    "softmax": lambda x: torch.sparse.softmax(x, 1),
    "log softmax": lambda x: torch.sparse.log_softmax(x, 0),
    "solve": lambda x: torch.triangular_solve(torch.ones(6, 2, device=x.device), x, upper=False),
    "solve a vector": lambda x: torch.triangular_solve(torch.ones(6, device=x.device), x),
    "solve more": lambda x: torch.triangular_solve(
        torch.ones(6, 2, device=x.device), x, True, True, True
    ),
    "spsolve": lambda x: torch.sparse.spsolve(x, torch.ones(4, device=x.device)),
    "relu": torch.relu,
    "leaky relu": torch.nn.functional.leaky_relu,
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.0),
    "contiguous": lambda x: x.contiguous(),
    "is_same_size": lambda x: x.is_same_size(x),
    "to dense in a dtype": lambda x: x.to_dense(dtype=torch.float64),
    "bmm": lambda x: torch.bmm(x, torch.ones(x.shape[0], x.shape[-1], 2, device=x.device)),
    "sparse resize": lambda x: x.clone().sparse_resize_((7, 8, *x.shape[2:]), 2, x.dense_dim()),
    "rows": lambda x: list(x),
    "detach": lambda x: x.detach(),
    "masked sum": lambda x: torch.masked.sum(x, 0, keepdim=True),
    "spdiags": lambda x: x.to_dense().diagonal(),
}


def single(layout, function):
    def cases():
        for _, x in sources(layout):
            yield function, (x,)

    return cases


# -- Gradients --


def dense_of(x):
    return x if x.layout == torch.strided else x.to_dense()


GRADIENTS = {
    "to_dense": lambda x, d: x.to_dense(),
    "mm": lambda x, d: torch.sparse.mm(x, d),
    "matmul": lambda x, d: x @ d,
    "add dense": lambda x, d: dense_of(d.t() + x),
    "mul": lambda x, d: dense_of(x * d.t()),
    "times 2": lambda x, d: dense_of(x * 2),
    "sparse mask": lambda x, d: dense_of(d.t().sparse_mask(x.detach())),
    "sum": lambda x, d: x.sum(),
    "sparse sum": lambda x, d: dense_of(torch.sparse.sum(x, 0)),
    "sin": lambda x, d: dense_of(x.sin()),
    "transpose": lambda x, d: dense_of(x.transpose(0, 1)),
    "clone": lambda x, d: dense_of(x.clone()),
    "relu": lambda x, d: dense_of(torch.relu(x)),
    **{
        f"to {name}": lambda x, d, layout=layout: dense_of(of_layout(x, layout, (2, 2)))
        for name, layout in MATRICES.items()
    },
    **{
        f"dense to {name}": lambda x, d, layout=layout: dense_of(of_layout(d, layout, (2, 2)))
        for name, layout in MATRICES.items()
    },
}


def gradients(layout, function):
    def work(x, d):
        y = function(x, d)
        y.square().sum().backward()
        return y, x.grad, d.grad

    def cases():
        x = of_layout(matrix(), layout, (2, 2)).detach().requires_grad_()
        yield work, (x, matrix(seed=3).t().contiguous().requires_grad_())

    return cases


# -- PyTorch's databases --


def chosen(samples):
    """Some of a generator's samples, spread over all; none of a dtype it cannot draw."""
    try:
        drawn = list(samples)
    except NotImplementedError:
        return []
    return drawn[:: max(1, -(-len(drawn) // COUNT))]


def in_database(op, layout):
    def work(x, args, kwargs):
        return op(x, *args, **kwargs)

    def cases():
        for dtype in (torch.float32, torch.int64, torch.complex64):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(3)
            for one in chosen(database_samples(op, layout, dtype)):
                yield work, (one.input, one.args, one.kwargs)

    return cases


def database_samples(op, layout, dtype):
    sampler = getattr(op, f"sample_inputs_{str(layout).removeprefix('torch.')}")
    try:
        yield from sampler("cpu", dtype)
    except NotImplementedError:  # of this layout there are no samples
        for one in op.sample_inputs("cpu", dtype):
            if isinstance(op, UnaryUfuncInfo) and one.input.dim() == 2:
                one.input = of_layout(one.input, layout, (1, 1))
                yield one


def entries(database, supports):
    """The entries of a database that support a layout, by name."""
    for op in database:
        if supports(op):
            yield op.name + ("." + op.variant_test_name if op.variant_test_name else ""), op


# -- Masked tensors --


def masked(layout, function, count):
    def work(*tensors):
        inputs = [
            masked_tensor(data, mask) for data, mask in zip(*[iter(tensors)] * 2, strict=True)
        ]
        return function(*inputs)

    def cases():
        for dtype in (torch.float32, torch.int64):
            inputs = []
            for seed in range(count):
                data = matrix(seed=seed, dtype=dtype)
                mask = matrix(seed=7) != 0
                if layout != torch.strided:
                    mask = of_layout(mask, layout)
                    data = data.sparse_mask(mask)
                inputs += [data, mask]
            yield work, tuple(inputs)

    return cases


def masked_cases(layout):
    for name in unary.UNARY_NAMES + unary.INPLACE_UNARY_NAMES:
        yield name, masked(layout, call(name), 1)
    for name in binary.BINARY_NAMES + binary.INPLACE_BINARY_NAMES:
        yield name, masked(layout, call(name), 2)
    for name in reductions.REDUCE_NAMES:
        yield name, masked(layout, call(name), 1)
        yield f"{name} 0", masked(layout, call(name, 0), 1)
        yield f"{name} 1", masked(layout, call(name, 1), 1)
    yield "to_dense", masked(layout, lambda x: x.to_dense(), 1)
    yield "to_sparse", masked(layout, lambda x: x.to_sparse(), 1)
    yield "to_sparse_csr", masked(layout, lambda x: x.to_sparse_csr(), 1)
    yield "where", masked(layout, lambda x, y: torch.where(x.get_mask(), x, y), 2)


def call(name, *args):
    def function(x, *others):
        found = getattr(torch.ops.aten, name)
        return found(x, *others, *args)

    return function


# -- Nested tensors --

NESTED = {
    "padded": lambda x: x.to_padded_tensor(-1.0),
    "twice": lambda x: x * 2,
    "sum of two": lambda x: x + x.clone(),
    "product of two": lambda x: x * x.clone(),
    "less": lambda x: x - x.clone(),
    "over 2": lambda x: x / 2,
    "negated": torch.neg,
    "abs": torch.abs,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "cos": torch.cos,
    "sgn": torch.sgn,
    "logical_not": torch.logical_not,
    "isnan": torch.isnan,
    "equal": lambda x: x == x,
    "greater": lambda x: x > 0,
    "clone": torch.clone,
    "detach": lambda x: x.detach(),
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "double": lambda x: x.double(),
    "where": lambda x: torch.where(x > 0, x, x * 2),
    "masked_fill": lambda x: x.masked_fill(x > 0, 5),
    "fill": lambda x: x.clone().fill_(2),
    "zero": lambda x: x.clone().zero_(),
    "softmax": lambda x: torch.softmax(x, -1),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.0),
    "sum of all": lambda x: x.sum(),
    "mean of all": lambda x: x.mean(),
    "max of all": lambda x: x.max(),
    "min of all": lambda x: x.min(),
    "any": lambda x: x.any(),
    "transposed": lambda x: x.transpose(1, 2),
    "last two": lambda x: x.transpose(-1, -2).contiguous(),
    "select": lambda x: x.select(-1, 0),
    "first": lambda x: x[0],
    "chunk": lambda x: list(x.chunk(2, -1)),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x.unsqueeze(-1).squeeze(-1),
    "matmul": lambda x: torch.matmul(x, x.transpose(-1, -2)),
    "matmul with itself": lambda x: torch.matmul(x, x),
    "bmm": lambda x: torch.bmm(x, x.transpose(-1, -2)),
    "linear": lambda x: torch.nn.functional.linear(
        x, torch.ones(3, x.size(-1), device=x.device, dtype=x.dtype)
    ),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (x.size(-1),)),
    "unbind": lambda x: list(x.unbind()),
    "contiguous": lambda x: x.contiguous(),
    "cat": lambda x: torch.cat([x, x], -1),
    "stack": lambda x: torch.stack([x, x]),
    **{
        f"{name} {dim}": lambda x, name=name, dim=dim: getattr(x, name)(dim)
        for name in ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod")
        for dim in (0, 1, -1)
    },
    **{
        f"{name} -1 kept": lambda x, name=name: getattr(x, name)(-1, keepdim=True)
        for name in ("sum", "mean", "amax", "argmin", "all", "any")
    },
    **{
        f"{name} 1": lambda x, name=name: getattr(x, name)(1)
        for name in ("all", "any", "logsumexp", "var", "std", "cumsum", "argsort", "softmax")
    },
}


def nested(layout, function):
    shapes = ([(2, 4), (3, 4), (1, 4)], [(4,), (2,)], [(2, 3, 4), (1, 3, 4)], [(0, 4), (2, 4)],
              [(0, 4), (0, 4)])  # fmt: skip

    def cases():
        for sizes, dtype in itertools.product(
            shapes, (torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool)
        ):
            torch.manual_seed(5)
            tensors = [(torch.randn(size) * 5).to(dtype) for size in sizes]
            yield function, (torch.nested.as_nested_tensor(tensors, layout=layout),)

    return cases


def settled(op):
    """Whether equal arguments give equal results."""
    random = ("empty", "rand", "normal", "bernoulli", "dropout", "uniform", "exponential")
    return not any(word in op.name for word in (*random, "cauchy", "geometric", "multinomial"))


def in_jagged_database(op):
    def forward(x, args, kwargs):
        return op(x, *args, **kwargs)

    def backward(x, args, kwargs):
        leaves = [one for one in tree_flatten((x, args, kwargs))[0] if wants_gradient(one)]
        y = forward(x, args, kwargs)
        outputs = [flat(one) for one in tree_flatten(y)[0] if wants_gradient(one)]
        sum(one.sum() for one in outputs).backward()
        return y, [one.grad for one in leaves]

    def cases():
        for dtype in (torch.float32, torch.int64):
            if dtype in op.supported_dtypes("cpu"):
                torch.manual_seed(3)
                for one in chosen(op.sample_inputs("cpu", dtype)):
                    yield forward, (one.input, one.args, one.kwargs)
        if op.supports_autograd and op.name not in CRASHES:
            torch.manual_seed(3)
            for one in chosen(op.sample_inputs("cpu", torch.float32, requires_grad=True)):
                yield backward, (one.input, one.args, one.kwargs)

    return cases


CRASHES = {"split", "split_with_sizes", "chunk", "unbind"}
"""Operators whose gradients end the process, on the CPU."""


def flat(x):
    return x.values() if x.is_nested else x


def wants_gradient(x):
    return isinstance(x, torch.Tensor) and x.requires_grad


# -- All --


def _cases() -> Mapping[str, dict]:
    table = {}
    for kind, layout in MATRICES.items():
        rows = {"conversions": conversions(layout)}
        rows |= {f"pair {name}": pairs(layout, f) for name, f in PAIRS.items()}
        rows |= {f"product {name}": products(layout, f) for name, f in PRODUCTS.items()}
        if layout != torch.strided:
            rows |= {f"vector {name}": vectors(layout, f) for name, f in VECTORS.items()}
            rows |= {f"single {name}": single(layout, f) for name, f in SINGLE.items()}
            rows |= {f"gradient {name}": gradients(layout, f) for name, f in GRADIENTS.items()}
            found = entries(
                op_db,
                lambda op, layout=layout: op.supports_sparse_layout(layout) and settled(op),
            )
            rows |= {f"op_db {name}": in_database(op, layout) for name, op in found}
        if kind in ("strided", "coo", "csr"):
            rows |= {f"masked {name}": case for name, case in masked_cases(layout)}
        table[kind] = rows
    table["jagged"] = {name: nested(torch.jagged, f) for name, f in NESTED.items()}
    # PyTorch's select of a last dim writes past the end of a strided nested tensor's sizes, and its
    # cat of vectors reads past their end.
    strided = {name: f for name, f in NESTED.items() if name not in ("select", "cat")}
    table["nested"] = {name: nested(torch.strided, f) for name, f in strided.items()}
    found = entries(njt_op_db, lambda op: op.supports_njt and settled(op))
    table["jagged"] |= {f"op_db {name}": in_jagged_database(op) for name, op in found}
    return table


CASES = _cases()

ADDS = "the CPU's library adds these at equal places alone"
BOOLEANS = "the device multiplies matrices of booleans"
NOTHING = "of no elements the CPU takes the softmax in any dtype"
LISTED = {
    "csr/pair add": ADDS,
    "csr/pair add scaled": ADDS,
    "csr/pair add in place": ADDS,
    "bsr/pair add": ADDS,
    "bsr/pair add scaled": ADDS,
    "bsr/pair add in place": ADDS,
    "bsr/single solve more": "the CPU's library does not transpose blocks",
    "nested/padded": "only elements without positions are padded as well, as CUDA does",
    "nested/abs": "booleans have an absolute value, as on CUDA",
    "jagged/abs": "booleans have an absolute value, as on CUDA",
    "nested/matmul": BOOLEANS,
    "nested/linear": BOOLEANS,
    "jagged/matmul": BOOLEANS,
    "jagged/linear": BOOLEANS,
    "nested/softmax": NOTHING,
    "nested/softmax 1": NOTHING,
    "jagged/softmax": NOTHING,
    "jagged/op_db index_put": "the device converts the source's dtype to the target's",
}
"""Cases in which the device does something else in part, by the reason."""


def failures(layout, name):
    """Runs a case; returns its number of samples, and what those do that do something else."""
    samples, found = 0, []
    for work, inputs in CASES[layout][name]():
        samples += 1
        try:
            agree(work, inputs)
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return samples, found


def main(layouts):
    warnings.simplefilter("ignore")
    torch.tpu.host_fallback = "error"
    for layout in layouts or CASES:
        passed = listed = total = 0
        for name in CASES[layout]:
            samples, found = failures(layout, name)
            total += samples
            passed += not found
            listed += bool(found) and f"{layout}/{name}" in LISTED
            if found and f"{layout}/{name}" not in LISTED:
                print(f"{layout}/{name}: {len(found)} of {samples}: {found[0][:300]}", flush=True)
        cases = len(CASES[layout])
        print(f"{layout}: {passed} of {cases} pass, {listed} are listed; {total} samples")


if __name__ == "__main__":
    main(sys.argv[1:])
