"""Views share their storage: writes through one are seen through all."""

import contextlib
import random

import pytest
import torch
from support import DEVICE, check, check_gradients, modes, only_tpu, raises_alike, same, slow_but

VIEWS = [
    lambda t: t[1:],
    lambda t: t[..., ::2],
    lambda t: t[1],
    lambda t: t[:, 1:3],
    lambda t: t.t() if t.dim() == 2 else t,
    lambda t: t.reshape(-1)[2:7],
    lambda t: t.view(2, -1)[1],
    lambda t: t.unsqueeze(1).squeeze(1),
    lambda t: t.transpose(0, 1)[1],
    lambda t: t.diagonal(),
    lambda t: t.unfold(1, 2, 1)[:, 0],
    lambda t: t.as_strided((2, 2), (5, 1), 3),
    lambda t: t.narrow(1, 1, 2),
    lambda t: t.select(1, 2),
    lambda t: t.split(2, dim=1)[1],
    lambda t: t.chunk(2)[0],
    lambda t: t.unbind(1)[3],
    lambda t: t.permute(1, 0)[2:],
    lambda t: t.detach()[:2],
    lambda t: t.swapaxes(0, 1)[:, 1],
]
WRITES = [
    lambda v: v.add_(1),
    lambda v: v.mul_(2),
    lambda v: v.zero_(),
    lambda v: v.fill_(7),
    lambda v: v.copy_(torch.full(v.shape, 3.0, device=v.device)),
    lambda v: v.sub_(v.sum()),
    lambda v: v.clamp_(max=5),
    lambda v: v.neg_(),
    lambda v: v.masked_fill_(v > 4, -1),
]


@pytest.mark.diagonal
@pytest.mark.parametrize("view", range(len(VIEWS)))
@pytest.mark.parametrize("write", range(len(WRITES)))
def test_a_write_is_seen_by_the_base(view, write):
    def work(base):
        window = VIEWS[view](base)
        WRITES[write](window)
        return window, base, base.sum()

    check(work, torch.arange(20.0).reshape(4, 5))


@pytest.mark.parametrize("view", range(len(VIEWS)))
def test_a_write_to_the_base_is_seen_by_the_view(view):
    def work(base):
        window = VIEWS[view](base)
        base.mul_(3).add_(1)
        return window, window.clone()

    check(work, torch.arange(20.0).reshape(4, 5))


def test_assignment_by_index():
    def work(t):
        t[1, 2] = 100
        t[0] = torch.arange(5.0, device=t.device)
        t[:, -1] = -1
        t[2:, :2] += 10
        t[t > 50] = 0
        t[torch.tensor([0, 3], device=t.device)] = 5
        t[..., 1].mul_(2)
        return t

    check(work, torch.arange(20.0).reshape(4, 5))


def test_views_have_the_right_metadata():
    base = torch.arange(20.0, device=DEVICE).reshape(4, 5)
    for view in VIEWS:
        host = view(torch.arange(20.0).reshape(4, 5))
        window = view(base)
        assert window.shape == host.shape and window.stride() == host.stride()
        assert window.storage_offset() == host.storage_offset()
        assert window.untyped_storage()._cdata == base.untyped_storage()._cdata


def test_overlapping_writes_are_refused():
    def work(t):
        t[1:].copy_(t[:-1].clone())
        return t

    check(work, torch.arange(5.0))
    raises_alike(lambda t: torch.add(t[:3], t[1:4], out=t[:3]), torch.arange(5.0))
    raises_alike(lambda t: t[1:].mul_(t[:-1]), torch.arange(5.0))


def test_expand_reads_and_refuses_writes():
    check(lambda t: t.expand(3, 4) * 2, torch.arange(4.0))
    x = torch.arange(4.0, device=DEVICE).expand(3, 4)
    with pytest.raises(RuntimeError):
        x.add_(1)


def test_out_arguments():
    def work(a, b):
        out = torch.empty(3, 3, device=a.device)
        first = torch.mm(a, b, out=out)
        window = torch.zeros(5, 6, device=a.device)
        torch.add(a, 1, out=window[1:4, ::2])
        grown = torch.empty(0, device=a.device)
        torch.mul(a, b, out=grown)
        assert first is out
        return out, window, grown

    check(work, torch.rand(3, 3), torch.rand(3, 3))


def test_reinterpretation():
    check(lambda t: t.view(torch.int32), torch.tensor([1.0, -2.0, 0.5]))
    check(lambda t: t.view(torch.uint8), torch.tensor([1, 2**40]))
    check(lambda t: t.view(torch.int64), torch.arange(8, dtype=torch.int16))

    def write(t):
        t.view(torch.int32)[0] = 0x40490FDB
        return t

    check(write, torch.zeros(4))


def test_set_data_and_resize():
    x = torch.zeros(3, device=DEVICE)
    x.data = torch.ones(2, 2, device=DEVICE)
    assert x.shape == (2, 2) and x.sum().item() == 4
    y = torch.arange(6.0, device=DEVICE)
    y.resize_(2, 2)
    assert y.tolist() == [[0, 1], [2, 3]]
    y.resize_(8)
    assert y[:6].tolist() == [0, 1, 2, 3, 4, 5]
    z = torch.empty(0, device=DEVICE)
    z.set_(y.untyped_storage(), 1, (2,), (2,))
    assert z.tolist() == [1, 3]
    z.zero_()
    assert y[:4].tolist() == [0, 0, 2, 0]


@only_tpu
def test_what_a_shrunk_storage_has_lost_reads_as_zeros():
    x = torch.arange(1.0, 9.0, device=DEVICE)
    x.untyped_storage().resize_(10)
    for _ in range(20):  # the host's allocator hands out what was something else before
        torch.full((8,), 7.0)
        assert x.cpu()[3:].tolist() == [0.0] * 5
    assert x[:2].tolist() == [1.0, 2.0] and (x + 1).tolist()[3:] == [1.0] * 5


def test_storage_resize_frees():
    x = torch.ones(1024, device=DEVICE)
    storage = x.untyped_storage()
    assert storage.nbytes() == 4096
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(4096)
    x.fill_(2)
    assert x.sum().item() == 2048


def random_program(seed):
    """Returns a function that makes random views of one tensor and writes through them."""
    rng = random.Random(seed)
    steps = []
    for _ in range(12):
        kind = rng.choice(["slice", "select", "transpose", "reshape", "flatten", "back"])
        steps.append((kind, rng.random(), rng.random(), rng.choice([1, 2]), rng.randrange(4)))

    def one_view(t, step):
        kind, a, b, stride, _ = step
        if kind == "slice" and t.dim():
            dim = int(a * t.dim())
            return t.narrow(dim, 0, t.shape[dim])[
                (slice(None),) * dim + (slice(None, None, stride),)
            ]
        if kind == "select" and t.dim() > 1:
            dim = int(a * t.dim())
            return t.select(dim, int(b * t.shape[dim]))
        if kind == "transpose" and t.dim() > 1:
            return t.transpose(int(a * t.dim()), int(b * t.dim()))
        if kind == "reshape" and t.is_contiguous() and t.numel() % 2 == 0:
            return t.view(2, -1)
        if kind == "flatten" and t.is_contiguous():
            return t.view(-1)
        return t

    def work(base):
        window, seen = base, []
        for step in steps:
            window = base if step[0] == "back" else one_view(window, step)
            if step[4] == 0:
                window.add_(1)
            elif step[4] == 1:
                window.mul_(0.5)
            elif step[4] == 2:
                window.copy_(window.flip(0) if window.dim() else window + 1)
            seen.append(window)
        return base, [t.clone() for t in seen], [t.stride() for t in seen]

    return work


@pytest.mark.parametrize("seed", slow_but(range(40), *range(10)))
def test_random_aliasing(seed):
    check(random_program(seed), torch.arange(48.0).reshape(4, 2, 6))


SHARED_LISTS = [
    lambda a, b: torch._foreach_neg_([a, a]),
    lambda a, b: torch._foreach_mul_([a, a.t()], [2, 3]),
    lambda a, b: torch._foreach_add_([a, b], [b, a]),
    lambda a, b: torch._foreach_copy_([a, b], [b, a]),
    lambda a, b: torch._foreach_add_([a[0], b[0], a[1]], [a[1], a[2], a[0]], alpha=2),
    lambda a, b: torch._foreach_mul_([a[0, 2], b], a[0, 2]),
    lambda a, b: torch._foreach_addcmul_([a, a], [b, a], [b, b], [2.0, 3.0]),
    lambda a, b: torch._foreach_addcmul_([a, a], [b, a], [b, b], torch.full((2,), 2.0)),
    lambda a, b: torch._foreach_add_([a[0], a[1], b[:, 0], b[:, 1]], 1),
    lambda a, b: torch._foreach_add_([*[x.clone() for x in [b] * 9], a, a], 1),
    lambda a, b: torch._foreach_add_([a.view(-1)[:4], a.view(-1)[2:6]], [b[0], b[1]]),
]


@pytest.mark.parametrize("write", range(len(SHARED_LISTS)))
def test_elements_of_a_list_see_what_those_before_them_wrote(write):
    def work(a, b):
        SHARED_LISTS[write](a, b)
        return a, b

    check(work, torch.arange(16.0).reshape(4, 4), torch.arange(16.0).reshape(4, 4) - 7)


def test_a_split_takes_its_places_from_the_device():
    x = torch.arange(21.0).reshape(3, 7)

    def work(x, places):
        parts = torch.tensor_split(x, places, dim=1)
        parts[1].mul_(2)
        return x, parts

    check(work, x, torch.tensor([1, 4]))
    check(work, x, torch.tensor(3))
    check_gradients(lambda x, places: x.tensor_split(places), x.requires_grad_(), torch.tensor(2))


def test_complex_numbers_of_two_halves():
    """A layout of memory only: they are computed with as complex64, and rounded."""

    def work(x):
        written = x.clone()
        written[1:, ::2] = 3 - 2j
        written.t()[0] *= 2
        parts = torch.view_as_real(x), x.real, x.abs(), x.to(torch.complex64), x.conj() * x
        return x, written, x.t().contiguous(), torch.cat([x, x + x]), *parts

    x = torch.randn(3, 4, dtype=torch.complex64)
    for mode in modes():
        with torch.tpu.set_eager_mode(mode) if DEVICE == "tpu" else contextlib.nullcontext():
            check(work, x.chalf())
            check(lambda x: x.chalf(), x)
            check(lambda x: x.chalf(), x.real)


def test_out_arguments_of_unknown_size():
    """No Meta kernel knows them; the running statistics are written as well."""
    x, ones, zeros = torch.randn(3, 2, 4), torch.ones(2), torch.zeros(2)

    def norm(training):
        def work(x, weight, bias, mean, var):
            outs = [torch.empty(0, device=x.device) for _ in range(3)]
            names = dict(zip(("out", "save_mean", "save_invstd"), outs, strict=True))
            op = torch.ops.aten._native_batch_norm_legit.out
            op(x, weight, bias, mean, var, training, 0.1, 1e-5, **names)
            return outs

        return work

    def pair(function, *args):
        def work(x):
            return function(x, *args, out=[torch.empty(0, device=x.device) for _ in range(2)])

        return work

    for training in (True, False):
        check(norm(training), x, ones, zeros, zeros.clone(), ones.clone())
    check(pair(torch.geqrf), x[0])
    check(pair(torch.histogram, 3), torch.arange(5.0))
    check(pair(torch.split_with_sizes_copy, [2, 3]), torch.arange(5.0))


def test_out_arguments_of_other_dtypes():
    """Running sums and sums are made in the target's dtype; what the CPU refuses is refused."""

    def into(function, *dtypes):
        def work(x, *args):
            outs = [torch.empty(0, dtype=dtype, device=x.device) for dtype in dtypes]
            return function(x, *args, out=outs[0] if len(outs) == 1 else outs)

        return work

    x = torch.tensor([[1.7, 2.6, -3.2, 0.9, 300.5]])
    for function in (torch.cumsum, torch.cumprod, torch.sum, torch.prod):
        for dtype in (torch.uint8, torch.int32, torch.float64):
            check(into(function, dtype), x, 1)
    definite = torch.eye(3) + 0.1  # what the CPU is asked is not, which is no matter of dtypes
    check(into(torch.cholesky, torch.float64), definite, tolerance={"rtol": 1e-6, "atol": 1e-6})
    raises_alike(into(torch.nonzero, torch.uint8), x)
    raises_alike(into(torch.nonzero, torch.float64), x)
    raises_alike(into(torch.geqrf, torch.uint8, torch.uint8), x)
    raises_alike(into(torch.histogram, torch.uint8, torch.uint8), x, 3)
    a, scale = torch.randn(16, 16).to(torch.float8_e4m3fn), torch.tensor(0.3)
    raises_alike(into(torch._scaled_mm, torch.float32), a, a.t(), scale, scale, None, None, a.dtype)
    for dtype in (torch.float32, torch.bfloat16):
        check(into(torch._scaled_mm, dtype), a, a.t(), scale, scale)


def some(shape, device):
    return torch.ones(shape, device=device)


WRITES_TO_ONE_PLACE = {
    "add": lambda v, i: v.add_(1),
    "copy": lambda v, i: v.copy_(v.clone()),
    "scatter": lambda v, i: v.scatter_(0, i[None], 1.0),
    "scatter-add": lambda v, i: v.scatter_add_(0, i[None], some((1, 4), v.device)),
    "index-add": lambda v, i: v.index_add_(0, i[:1], some((1, 4), v.device)),
    "index-copy": lambda v, i: v.index_copy_(0, i[:1], some((1, 4), v.device)),
    "masked-scatter": lambda v, i: v.masked_scatter_(v > 2, some(12, v.device)),
    "put": lambda v, i: v.put_(i[:1], some(1, v.device)),
    "normal": lambda v, i: v.normal_(),
    "exponential": lambda v, i: v.exponential_(),
    "random": lambda v, i: v.random_(0, 5),
    "products": lambda v, i: v.addmm_(some((3, 2), v.device), some((2, 4), v.device)),
    "running-sum": lambda v, i: v.cumsum_(0),
    "list": lambda v, i: torch._foreach_add_([v], 1),
    "norm": lambda v, i: v.renorm_(2, 0, 1.0),
}


@pytest.mark.parametrize("write", WRITES_TO_ONE_PLACE)
def test_what_is_seen_twice_is_not_written(write):
    def work(x, i):
        return WRITES_TO_ONE_PLACE[write](x.expand(3, 4), i)

    error = raises_alike(work, torch.arange(4.0), torch.zeros(4, dtype=torch.int64))
    assert "single memory location" in str(error)


@pytest.mark.filterwarnings("ignore:Use of masked_fill_ on expanded")
def test_what_the_cpu_lets_write_what_is_seen_twice():
    def work(x):
        x.expand(3, 4).masked_fill_(x.expand(3, 4) > 1, 7)
        x.expand(3, 4).conj_physical_()
        return x

    check(work, torch.arange(4.0))


def test_shifted_writes_are_refused():
    raises_alike(lambda x: x[1:].add_(x[:-1]), torch.arange(5.0))
    raises_alike(lambda x: torch.exp(x[:4], out=x[1:5]), torch.arange(5.0))


def test_operators_on_lists_count_their_writes():
    """Autograd must see that what it saved was overwritten."""

    def work(x):
        start = x._version
        torch._foreach_add_([x, x[1:]], 1)
        torch._foreach_mul_([x], 2)
        torch._foreach_copy_([x], [x + 1])
        return x, x._version - start

    check(work, torch.arange(4.0))

    def overwritten(x):
        y = x * 2
        z = y * y
        torch._foreach_mul_([y], 3)
        z.sum().backward()

    raises_alike(overwritten, torch.arange(4.0, requires_grad=True))


SHIFTED = {
    "by-other-dims": lambda x: (
        x.view(6, 3)[:2, 1:3].copy_(x.view(9, 2)[:2] + 1),
        x.view(6, 3)[:2, :2].add_(1),
    ),
    "transposed": lambda x: (
        x.as_strided((2, 2), (1, 3), 1).copy_(x.view(18)[:4].view(2, 2) + 1),
        x.as_strided((2, 2), (3, 1)).add_(1),
    ),
    "flat": lambda x: (
        x.view(6, 3)[2:4, 1:3].copy_(x.view(6, 3)[2:4, :2].t() + 1),
        x.view(18)[9:13].view(2, 2).copy_(x.view(9, 2)[4:6] + 1),
    ),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("shape", [(18,), (6, 3), (9, 2)], ids=str)
@pytest.mark.parametrize("name", SHIFTED)
def test_what_is_written_was_read_before(name, shape, mode):
    """In one program, where the memory that is read is the memory that is written."""
    if DEVICE == "tpu":
        torch.tpu.eager_mode = mode

    def work(x):
        SHIFTED[name](x)
        return x

    check(work, torch.arange(18, dtype=torch.int32).view(shape) * 10)


@pytest.mark.parametrize("name", ["slice", "steps", "one", "argument"])
def test_what_is_put_was_read_before(name):
    """Compiled, where writing a part is an operator that makes a new tensor of the old one."""

    def work(x):
        y = x if name == "argument" else x * 1
        if name == "one":
            y[:, 2] = y[:, 1] + y[:, 3]
        elif name == "steps":
            y[:, 2:11:2] = y[:, 1:10:2] + 2
        else:
            y[:, 2:11] = y[:, 1:10] + 2
        return y

    compiled = torch.compile(work) if DEVICE == "tpu" else work
    x = torch.arange(32.0).view(1, 32)
    same(compiled(x.to(DEVICE)), work(x.clone()))


@pytest.mark.parametrize("shape", [(4, 3), (1, 4, 3), (12,)], ids=str)
def test_bits_that_become_bf16(shape):
    """Padded as they are compiled."""

    def work(x):
        x.zero_()
        x.view(torch.int16).view(-1)[1:].bitwise_or_(2)

    compiled = torch.compile(work) if DEVICE == "tpu" else work
    device, host = torch.ones(shape, dtype=torch.bfloat16, device=DEVICE), torch.ones(shape)
    host = host.bfloat16()
    compiled(device)
    work(host)
    assert device.cpu().view(torch.int16).tolist() == host.view(torch.int16).tolist()


MANY_DIMS = {
    "sum": lambda x: x.sum(),
    "mean of some": lambda x: x.mean((-1, 5)),
    "reversed": lambda x: x.permute(*reversed(range(x.dim()))).contiguous() * 2,
    "cat": lambda x: torch.cat([x, x], -1),
    "sort": lambda x: x.sort(-1)[0],
    "indexed": lambda x: x[..., [0, 1]],
    "softmax": lambda x: x.softmax(-1),
    "a mask": lambda x: x[x > 0.5],
    "expanded": lambda x: x.expand(2, 2, *x.shape[2:]) * 2,
    "a product": lambda x: x @ x.mT,
    "argmax": lambda x: x.argmax(-1),
    "in place": lambda x: x.clone()[..., 1:].add_(1),
    "nonzero": lambda x: x.nonzero().contiguous(),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("rank", [17, 33, 64])
@pytest.mark.parametrize("name", MANY_DIMS)
def test_many_dims(name, rank):
    x = torch.arange(24.0).div(24).reshape([1] * (rank - 3) + [2, 3, 4])
    there, here = MANY_DIMS[name](x.to(DEVICE)), MANY_DIMS[name](x)
    torch.testing.assert_close(there.cpu(), here)
    assert there.stride() == here.stride()


def test_a_view_copied_onto_itself():
    """As `x[i] += y` does in the end."""
    x = torch.randn(4, 5)
    for part in (lambda t: t[1], lambda t: t[:, ::2], lambda t: t.as_strided((2, 3), (1, 2), 1)):
        check(lambda t, part=part: (part(t).copy_(part(t)), t)[1], x)
    check(lambda t: t[0].copy_(t[0].conj()), x.to(torch.complex64))
    check(lambda t: t[:2].view(torch.int32).copy_(t[:2].view(torch.int32)), x)
    check(lambda t: t[:1].expand(3, 5).copy_(t[:1].expand(3, 5)), x)
    version = (y := x.to(DEVICE))._version
    y[1] += 1
    assert y._version == version + 2


def test_windows_of_one_row_are_added_to_all_rows():
    """As istft does it, compiled."""
    windows = torch.arange(60.0).reshape(1, 6, 10)
    check(torch.ops.aten.unfold_backward, windows, [3, 20], 1, 10, 2)
