"""Sparse tensors: their indices and values stay on the device."""

import pytest
import torch
from support import DEVICE, only_tpu, slow_but
from torch import nn

pytestmark = only_tpu


def compare(work):
    """Runs work("cpu") and work(DEVICE) and compares their results, leaf by leaf."""
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        made = work(device)
        results.append(made if isinstance(made, tuple) else (made,))
    for expected, actual in zip(*results, strict=True):
        if not isinstance(expected, torch.Tensor):
            assert actual == expected
            continue
        assert actual.device.type == DEVICE and actual.layout == expected.layout
        if expected.layout == torch.sparse_coo:
            expected, actual = expected.coalesce(), actual.coalesce()
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True)


def dense(device, *shape, seed=1, grad=False):
    x = torch.randn(shape or (5, 7), generator=torch.Generator().manual_seed(seed))
    return x.to(device).requires_grad_(grad)


def coo(device, *shape, seed=2, grad=False):
    x = dense("cpu", *shape, seed=seed)
    return x.where(x.abs() > 0.7, 0).to(device).to_sparse().requires_grad_(grad)


def csr(device, seed=2, grad=False):
    return coo(device, seed=seed).to_sparse_csr().requires_grad_(grad)


def doubled(device):
    """Some places twice, and out of order."""
    indices = torch.tensor([[0, 3, 1, 0], [2, 0, 0, 2]])
    return torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2, 3, 4]), (5, 7)).to(device)


OPERATIONS = {
    "coalesce": lambda d: doubled(d).coalesce(),
    "to_dense": lambda d: (doubled(d).to_dense(), coo(d).to_dense(), csr(d).to_dense()),
    "hybrid": lambda d: (dense(d, 3, 4, 5).to_sparse(2), dense(d, 3, 4, 5).to_sparse(2).to_dense()),
    "types": lambda d: (coo(d).double(), coo(d).to(torch.bfloat16)),
    "add": lambda d: (coo(d) + coo(d, seed=3), coo(d) - doubled(d).coalesce()),
    "add-dense": lambda d: (dense(d) + doubled(d), dense(d).add_(coo(d), alpha=-0.5)),
    "multiply": lambda d: (coo(d) * coo(d, seed=3), coo(d) * dense(d), coo(d) * 3, coo(d) / 3),
    "in-place": lambda d: (coo(d).mul_(2), coo(d).zero_(), coo(d).clone().neg_()),
    "unary": lambda d: tuple(getattr(coo(d), f)() for f in ("sin", "abs", "relu", "sign")),
    "sums": lambda d: (coo(d).sum(), torch.sparse.sum(coo(d), 0), coo(d).norm()),
    "shapes": lambda d: (coo(d).t(), coo(d).unsqueeze(0), torch.cat([coo(d), coo(d)])),
    "select": lambda d: (
        coo(d)[2],
        coo(d).index_select(1, torch.tensor([6, 1, 6], device=d)),
        coo(d).narrow_copy(0, 1, 2),
    ),
    "mask": lambda d: (dense(d).sparse_mask(coo(d)), coo(d, seed=3).sparse_mask(coo(d))),
    "matmul": lambda d: (
        torch.sparse.mm(coo(d), dense(d, 7, 3)),
        coo(d) @ dense(d, 7),
        torch.sparse.addmm(dense(d, 5, 3), coo(d), dense(d, 7, 3), beta=0.5, alpha=2),
        torch.bmm(coo(d, 2, 3, 4), dense(d, 2, 4, 5)),
        torch.sparse.mm(coo(d), coo(d).t()),
    ),
    "csr": lambda d: (csr(d), dense(d).relu().to_sparse_csr(), csr(d).to_sparse(), csr(d).sin()),
    "csr-math": lambda d: (
        csr(d) @ dense(d, 7, 3),
        csr(d) @ dense(d, 7),
        dense(d, 3, 5) @ csr(d),
        csr(d) + csr(d, seed=3),
        csr(d) * dense(d),
        csr(d) * 2,
        csr(d).sum(),
        dense(d).sparse_mask(csr(d)),
    ),
    "blocks": lambda d: (dense(d, 4, 6).to_sparse_bsr((2, 3)), dense(d, 4, 6).to_sparse_csc()),
    "compress": lambda d: (
        csr(d).to_sparse_csc(),
        csr(d).t().to_sparse_csr(),
        csr(d).t().to_dense(),
    ),
    "nothing": lambda d: (torch.sparse_coo_tensor((3, 4), device=d), torch.zeros_like(coo(d))),
}


QUICK = ("coalesce", "to_dense", "add", "csr", "nothing")


@pytest.mark.parametrize("name", slow_but(OPERATIONS, *QUICK))
def test_operation(name):
    compare(OPERATIONS[name])


def test_it_stays_on_the_device():
    a, b = csr(DEVICE), dense(DEVICE, 7, 3)
    rows = a.to_sparse().indices()
    torch.tpu.host_fallback = "error"
    torch.sparse.mm(a, b)
    values = torch.ones(rows.shape[1], device=DEVICE)
    torch.sparse.mm(torch.sparse_coo_tensor(rows, values, (5, 7)), b).cpu()


GRADIENTS = {
    "mm": lambda d, s, x: torch.sparse.mm(s, x),
    "sum": lambda d, s, x: torch.sparse.sum(s, 0).to_dense() + x.sum(),
    "dense": lambda d, s, x: s.to_dense() @ x,
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("make", [coo, csr])
def test_gradient(name, make):
    if make is csr and name == "sum":
        pytest.skip("not differentiable in PyTorch")

    def work(device):
        s, x = make(device, grad=True), dense(device, 7, 3, grad=True)
        GRADIENTS[name](device, s, x).square().sum().backward()
        return s.grad, x.grad

    compare(work)


@pytest.mark.slow
@pytest.mark.parametrize("function", [torch.sparse.softmax, torch.sparse.log_softmax])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax(function, dim):
    def work(device):
        s = coo(device, grad=True)
        y = function(s, dim)
        (y.to_dense() * torch.linspace(0, 1, 7, device=device)).sum().backward()
        hybrid = torch.sparse_coo_tensor([[0, 1]], dense("cpu", 2, 3), (4, 3)).to(device)
        return y, s.grad, function(hybrid, dim), function(doubled(device), dim)

    compare(work)


@pytest.mark.slow
def test_gradient_of_products_of_sparse_matrices():
    def work(device):
        a, b = coo(device, grad=True), coo(device, 7, 3, seed=4, grad=True)
        torch.sparse.mm(a, b).to_dense().square().sum().backward()
        return a.grad, b.grad

    compare(work)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_reducing_product(reduce):
    def work(device):
        s, x = csr(device, grad=True), dense(device, 7, 3, grad=True)
        y = torch.sparse.mm(s, x, reduce)
        y.square().sum().backward()
        return y, s.grad, x.grad

    compare(work)


def test_sampled_product():
    def work(device):
        s, a, b = csr(device, grad=True), dense(device, 5, 3, grad=True), dense(device, 3, 7)
        y = torch.sparse.sampled_addmm(s, a, b, beta=0.5, alpha=2)
        y.to_dense().square().sum().backward()
        return y, s.grad, a.grad

    compare(work)


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad]
)
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_embedding_with_sparse_gradients(layer, optimizer):
    def work(device):
        options = {"mode": "sum"} if layer is nn.EmbeddingBag else {}
        module = layer(10, 3, sparse=True, **options).to(device)
        steps = optimizer(module.parameters(), 0.1)
        for _ in range(3):
            steps.zero_grad()
            module(torch.tensor([[1, 2], [1, 9]], device=device)).square().sum().backward()
            steps.step()
        return module.weight, module.weight.grad.coalesce()

    compare(work)


def test_bags_with_sparse_gradients_stay_on_the_device():
    torch.tpu.host_fallback = "error"
    module = nn.EmbeddingBag(10, 3, sparse=True, mode="mean").to(DEVICE)
    module(torch.tensor([[1, 2], [1, 9]], device=DEVICE)).square().sum().backward()
    assert module.weight.grad.layout == torch.sparse_coo


def test_rows_of_a_compressed_matrix():
    rows = torch.tensor([0, 0, 2, 2, 2, 5])
    crow = torch._convert_indices_from_coo_to_csr(rows, 7)
    columns = torch.tensor([1, 3, 0, 1, 2, 0])
    aten = torch.ops.aten
    compare(lambda d: aten._convert_indices_from_coo_to_csr(rows.to(d), 7, out_int32=True))
    compare(lambda d: aten._convert_indices_from_csr_to_coo(crow.to(d), columns.to(d)))
    both = torch.stack([crow, crow]), torch.stack([columns, columns])
    for transpose in (False, True):
        compare(
            lambda d, t=transpose: aten._convert_indices_from_csr_to_coo(
                both[0].to(d), both[1].to(d), transpose=t
            )
        )


def members(matrix):
    """A compressed matrix's indices and values."""
    if matrix.layout in (torch.sparse_csr, torch.sparse_bsr):
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
    return matrix.ccol_indices(), matrix.row_indices(), matrix.values()


@pytest.mark.slow
@pytest.mark.parametrize("index", slow_but([torch.int64, torch.int32], torch.int32), ids=str)
def test_compressed_layouts_become_each_other(index):
    x = dense("cpu", 4, 6).relu().to_sparse_csr()
    x = torch.sparse_csr_tensor(x.crow_indices().to(index), x.col_indices().to(index), x.values())

    def work(device):
        csr = x.to(device)
        bsr = csr.to_sparse_bsr((2, 3))
        found = [csr.to_sparse_csc(), csr.to_sparse_csc().to_sparse_csr(), bsr]
        found += [bsr.to_sparse_bsc((2, 3)), csr.to_sparse_bsc((2, 2))]
        return *(part for one in found for part in members(one)), csr.to_sparse(), bsr.to_sparse()

    compare(work)


@pytest.mark.slow
def test_batches_and_dense_dims_become_another_layout():
    batch = dense("cpu", 1, 4, 6).relu().expand(2, 4, 6).contiguous()
    hybrid = dense("cpu", 4, 6, 3)

    def work(device):
        found = [
            batch.to(device).to_sparse_csr().to_sparse_csc(),
            batch.to(device).to_sparse_bsc((2, 2)).to_sparse_bsr((2, 2)),
            hybrid.to(device).to_sparse_csr(dense_dim=1).to_sparse_bsr((2, 3)),
        ]
        return tuple(part for one in found for part in (*members(one), one.to_dense()))

    compare(work)


def test_refused_conversions():
    for device in ("cpu", DEVICE):
        csr, bsr = (dense(device, 4, 6).to_sparse_csr(), dense(device, 4, 6).to_sparse_bsr((2, 2)))
        for refused in (
            lambda x=csr: x.to_sparse_bsr((3, 4)),
            lambda x=bsr: x.to_sparse_bsr((1, 1)),
            lambda x=bsr: x.to_sparse_csr(),
            lambda x=csr: x.to_sparse(layout=torch.sparse_csc, blocksize=(2, 2)),
            lambda x=csr: x.to_sparse_csc(dense_dim=1),
        ):
            with pytest.raises(RuntimeError):
                refused()


def test_nothing_has_a_place():
    """No sparse dim, and no element in a dense dim."""

    def work(device):
        none = torch.sparse_coo_tensor(size=(), device=device)
        twice = torch.sparse_coo_tensor(torch.zeros(0, 3, dtype=torch.int64), torch.ones(3), ()).to(
            device
        )
        flat = torch.zeros(4, 6, 0, device=device).to_sparse(2)
        scalar = torch.tensor(2.0, device=device)
        return scalar.sparse_mask(none), twice.coalesce(), twice.to_dense(), flat.to_dense()

    compare(work)


@pytest.mark.slow
def test_products_of_compressed_matrices():
    def work(device):
        a, b = csr(device), csr(device, seed=3)
        square = a @ b.transpose(0, 1)
        sums = torch.addmm(square, a, b.to_sparse_csc().transpose(0, 1), beta=0.5)
        return square.to_dense(), sums.to_dense(), (a.to_sparse_csc() @ b.t()).to_dense()

    compare(work)


def test_sums_and_products_of_compressed_matrices():
    def work(device):
        x = csr(device)
        found = [x.sum(0, keepdim=True), x.sum((0, 1), keepdim=True)]
        found += [torch._sparse_csr_prod(x, [1], True), x + csr(device, seed=3)]
        blocks = dense(device, 4, 6).relu().to_sparse_bsr((2, 2))
        return *(part for one in found for part in members(one)), (blocks + blocks).to_dense()

    compare(work)


def test_places_of_a_tensor_that_is_not_coalesced():
    """The product keeps them, as the CPU's does, with zeros where the other tensor has none."""

    def work(device):
        both = coo(device) * doubled(device), doubled(device) * doubled(device)
        return both, tuple(one._nnz() for one in both)

    with_numbers = [work(device) for device in ("cpu", DEVICE)]
    assert with_numbers[0][1] == with_numbers[1][1]
    compare(lambda device: work(device)[0])


@pytest.mark.slow
def test_triangular_systems_and_other_products():
    def work(device):
        triangle = (dense(device, 4, 4).triu() + 4 * torch.eye(4, device=device)).to_sparse_csr()
        x, empty = coo(device), torch.zeros(4, 4, device=device).to_sparse_csr()
        return (
            torch.triangular_solve(dense(device, 4, 2), triangle)[0],
            torch.triangular_solve(dense(device, 4, 2), empty, unitriangular=True)[0],
            torch.triangular_solve(dense(device, 4, 2), triangle, transpose=True)[0],
            torch.hspmm(x, dense(device, 7, 3)),
            torch.sspaddmm(coo(device, 5, 3), x, dense(device, 7, 3), beta=0.5, alpha=2),
        )

    compare(work)


def test_what_no_device_multiplies_is_refused():
    for device in ("cpu", DEVICE):
        for refused in (
            lambda d=device: coo(d) @ csr(d).t(),
            lambda d=device: csr(d) + coo(d),
            lambda d=device: csr(d) + csr(d).to_sparse_csc(),
            lambda d=device: torch.addmm(coo(d, 5, 3), coo(d), dense(d, 7, 3)),
            lambda d=device: csr(d).long() @ torch.ones(7, 2, dtype=torch.int64, device=d),
        ):
            with pytest.raises(RuntimeError):
                refused()


def test_sizes_that_do_not_fit_are_named():
    words = r"mat1 and mat2 shapes cannot be multiplied \(5x7 and 5x7\)"
    for device in ("cpu", DEVICE):
        x = csr(device)
        with pytest.raises(RuntimeError, match=words):
            torch.addmm(torch.ones(5, 7, device=device), x, x.to_dense())


def test_random_numbers_at_the_places_of_a_compressed_matrix():
    x = torch.randn_like(csr(DEVICE))
    assert x.layout == torch.sparse_csr
    assert x._nnz() == csr("cpu")._nnz()


def test_sampled_products_of_another_dtype_are_refused():
    for device in ("cpu", DEVICE):
        x, out = csr(device), csr(device).double()
        with pytest.raises(RuntimeError, match="same dtype"):
            torch.sparse.sampled_addmm(x, dense(device, 5, 3), dense(device, 3, 7), out=out)


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_"])
@pytest.mark.parametrize("kinds", ["sparse sparse", "dense sparse"])
def test_what_its_target_cannot_hold_is_refused(name, kinds):
    def work(device):
        target = torch.tensor([[1, 0], [0, 2]], device=device)
        other = target.float().to_sparse()
        target = target.to_sparse() if kinds.startswith("sparse") else target
        return getattr(target, name)(other)

    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="Can't convert result type"):
            work(device)


@pytest.mark.parametrize("work", [lambda x: x + 3, lambda x: 3 - x, lambda x: x.add_(3)])
def test_no_number_is_added(work):
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="add"):
            work(torch.eye(2, device=device).to_sparse())


@pytest.mark.parametrize("by", [0.5, [0.5], torch.tensor(0.5)], ids=["number", "list", "tensor"])
def test_lists_in_place(by):
    found = []
    for device in ("cpu", DEVICE):
        x = torch.eye(3).to_sparse().to(device)
        torch._foreach_mul_([x], by.to(device) if isinstance(by, torch.Tensor) else by)
        found.append(x.to_dense().cpu())
    assert torch.equal(*found)


def test_products_that_start_from_nothing():
    s, factor = torch.tensor([[1.0, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 4]]), torch.ones(4, 2)
    want = torch.smm(s.to_sparse(), factor).to_dense()
    got = torch.smm(s.to_sparse().to(DEVICE), factor.to(DEVICE))
    assert torch.equal(got.to_dense().cpu(), want)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("reduce", ["max", "min", "amax", "mean"])
def test_products_that_reduce(reduce):
    s = torch.tensor([[1.0, 0, 2, 0], [0, -3, 0, 0], [0, 0, 0, 4]])
    results = []
    for device in ("cpu", DEVICE):
        factor = torch.arange(8.0).reshape(4, 2).to(device).requires_grad_()
        out = torch.sparse.mm(s.to_sparse_csr().to(device), factor, reduce)
        out.sum().backward()
        results.append([out.detach().cpu(), factor.grad.cpu()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
