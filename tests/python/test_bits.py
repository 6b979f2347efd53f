"""Every bit pattern of the 8- and 16-bit dtypes through every function of one operand."""

import pytest
import torch
from support import DEVICE, check, modes
from torch.testing._internal.common_methods_invocations import op_db, unary_ufuncs

SHORTS = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
BYTES = torch.arange(256).to(torch.uint8)
PATTERNS = {
    torch.float16: SHORTS.view(torch.float16),
    torch.bfloat16: SHORTS.view(torch.bfloat16),
    torch.int16: SHORTS,
    torch.int8: BYTES.view(torch.int8),
    torch.uint8: BYTES,
    torch.bool: torch.tensor([False, True]),
    torch.float8_e5m2: BYTES.view(torch.float8_e5m2),
    torch.float8_e4m3fn: BYTES.view(torch.float8_e4m3fn),
}
# More operands than one, random, or minutes of work for all the negative numbers.
OTHERS = ("fill", "jiterator_unary", "nn.functional.prelu", "nn.functional.rrelu", "polygamma")
UNARY = {
    op.name + ("." + op.variant_test_name if op.variant_test_name else ""): op
    for op in op_db
    if op in unary_ufuncs and op.name not in OTHERS
}
QUICK = """
abs ceil exp lgamma log logical_not nn.functional.relu nn.functional.silu reciprocal rsqrt sigmoid
sign sin sqrt tanh byte char int
""".split()
FP8_ZERO = "the CPU's absolute value of -0 is -0"
PHASE = "far from 0 the phase is rounded, on the CPU too, and one value of many decides"
ZEROS = "next to its zeros, where what it is a sum of is rounded"
NO_DIGITS = "the sign of 0 where exp has no digits"
EXCEPTIONS = {
    ("abs", torch.float8_e5m2): (FP8_ZERO, 1),
    ("abs", torch.float8_e4m3fn): (FP8_ZERO, 1),
    ("digamma", torch.float16): (ZEROS, 2),
    ("lgamma", torch.float16): (ZEROS, 2),
    **{(f"mvlgamma.mvlgamma_p_{p}", torch.float16): (ZEROS, 23) for p in (1, 3, 5)},
    **{(f"mvlgamma.mvlgamma_p_{p}", torch.bfloat16): (ZEROS, 3) for p in (3, 5)},
    ("special.polygamma.special_polygamma_n_0", torch.float16): (ZEROS, 1),
    ("special.airy_ai", torch.int16): (PHASE, 9000),
    ("special.airy_ai", torch.int8): (PHASE, 13),
    ("nn.functional.logsigmoid", torch.float16): (NO_DIGITS, 250),
    ("nn.functional.logsigmoid", torch.bfloat16): (NO_DIGITS, 25),
}
"""Why some patterns differ, and how many at most."""


@pytest.fixture(autouse=True)
def flushed():
    """XLA computes on CPUs and on TPUs without subnormal f32 numbers, as the CPU can, too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)
    torch.set_num_threads(threads)


def places_apart(a, b):
    """How many 16-bit floats lie between two, which are not NaN."""

    def place(x):
        bits = x.view(torch.int16).int()
        return torch.where(bits < 0, -(1 << 15) - bits, bits)

    return (place(a) - place(b)).abs()


def near(got, wanted):
    """Whether two floats are equal up to rounding, zeros with their signs; NaN is NaN."""
    if got.element_size() == 2:
        close = places_apart(got, wanted) <= 1
    else:
        close = (got - wanted).abs() <= 1e-5 * wanted.abs()
        close |= got == wanted
    zeros = (got == 0) & (wanted == 0)
    close &= ~(zeros & (got.signbit() != wanted.signbit()))
    return torch.where(wanted.isnan() | got.isnan(), wanted.isnan() & got.isnan(), close)


def without_subnormals(x):
    tiny = x.abs() < torch.finfo(torch.float32).tiny
    return torch.where(tiny & (x.dtype == torch.bfloat16), torch.zeros_like(x).copysign(x), x)


def differences(got, wanted, exact):
    """Which elements are neither what the CPU computes, nor as near to what it does in float64."""
    if not got.is_floating_point():
        return (got != wanted) & ~((got != got) & (wanted != wanted))
    if got.element_size() == 1:
        got, wanted = got.float(), wanted.float()
    fine = near(got, wanted)
    if exact is not None:
        fine |= near(got, without_subnormals(exact.to(got.dtype)))
        error = (got.double() - exact).abs()
        fine |= error <= 2 * (wanted.double() - exact).abs()
        fine |= (error <= 2e-7) & (got.dtype == torch.float32)
    return ~fine


def tuple_of(x):
    return x if isinstance(x, tuple) else (x,)


def check_patterns(name, dtype):
    op, x = UNARY[name], PATTERNS[dtype]

    def work(x):
        return tuple_of(op.op(x, **op.sample_kwargs("cpu", dtype, x)[0]))

    try:
        wanted = work(x)
    except (RuntimeError, NotImplementedError):
        return False  # not for this dtype
    try:
        exact = work(x.double()) if wanted[0].is_floating_point() else [None] * 2
    except (RuntimeError, NotImplementedError):
        exact = [None] * 2
    for got, host, truth in zip(work(x.to(DEVICE)), wanted, exact, strict=False):
        got = got.cpu()
        assert got.dtype == host.dtype
        wrong = differences(got, host, truth)
        if wrong.any() and name == "frexp":  # knows subnormals
            torch.set_flush_denormal(False)
            wrong &= differences(got, work(x)[0 if got.is_floating_point() else 1], None)
            torch.set_flush_denormal(True)
        reason, most = EXCEPTIONS.get((name, dtype), ("", 0))
        found = [(x[i], host[i], got[i]) for i in wrong.nonzero().flatten()[:4].tolist()]
        assert int(wrong.sum()) <= most, (name, dtype, int(wrong.sum()), found, reason)
    return True


@pytest.mark.parametrize("name", QUICK)
def test_patterns(name):
    assert sum(check_patterns(name, dtype) for dtype in PATTERNS) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in UNARY if name not in QUICK])
def test_patterns_of_the_others(name):
    for dtype in PATTERNS:
        check_patterns(name, dtype)


@pytest.mark.parametrize("dtype", PATTERNS, ids=str)
def test_moved_patterns(dtype):
    """What computes nothing keeps every bit, those of NaN and of subnormals as well."""
    x = PATTERNS[dtype]
    bits = torch.uint8 if x.element_size() == 1 else torch.int16
    moved = x.to(DEVICE)
    for got in (moved, moved.clone(), moved.view(-1, 2).t().contiguous().t().reshape(-1)):
        assert torch.equal(got.cpu().view(bits), x.view(bits))
    if x.element_size() == 1 and x.is_floating_point():
        return  # XLA moves them as f16, which keeps a NaN, but not which
    assert torch.equal(torch.cat([moved[1:], moved[:1]]).cpu().view(bits), x.roll(-1).view(bits))
    picked = moved.index_select(0, torch.arange(len(x), device=DEVICE).flip(0))
    assert torch.equal(picked.cpu().view(bits), x.flip(0).view(bits))


SMALL_FLOATS = {
    "index": lambda x, i: x[i],
    "index_select": lambda x, i: x.index_select(0, i),
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
    "mask": lambda x, i: x[torch.arange(4, device=x.device) > 1],
    "where": lambda x, i: torch.where(torch.arange(4, device=x.device) > 1, x, x.flip(0)),
}


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_small_floats_beside_indices(name):
    """They are not promoted with anything, and need not be."""
    x = BYTES[:16].view(torch.float8_e4m3fn).reshape(4, 4)
    got = SMALL_FLOATS[name](x.to(DEVICE), torch.tensor([0, 2], device=DEVICE))
    wanted = SMALL_FLOATS[name](x, torch.tensor([0, 2]))
    assert torch.equal(got.cpu().view(torch.uint8), wanted.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_floats_beyond_integers(dtype):
    """They wrap around as on x86."""
    x = torch.tensor(
        [-1.0, -129, 300, 4e4, -4e4, 3e9, -3e9, 1e19, torch.inf, -torch.inf, torch.nan]
    )
    for source in (torch.float32, torch.float64, torch.bfloat16):
        host = x.to(source)
        assert torch.equal(host.to(DEVICE).to(dtype).cpu(), host.to(dtype)), source


BESIDE_NUMBERS = {
    "add": lambda x, s: x + s,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / x,
    "pow": lambda x, s: x.abs() ** s,
    "rpow": lambda x, s: s**x,
    "remainder": lambda x, s: x % s,
    "fmod": lambda x, s: x.fmod(s),
    "floor_divide": lambda x, s: x // s,
    "clamp": lambda x, s: x.clamp(min=s),
    "less": lambda x, s: x < s,
    "where": lambda x, s: torch.where(x > 0, x, s),
    "lerp": lambda x, s: torch.lerp(x, x * 2, s),
    "alpha": lambda x, s: torch.add(x, x.flip(0), alpha=s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "xlogy": lambda x, s: torch.xlogy(x.abs(), s),
    "addr": lambda x, s: torch.addr(x[:64, None] * x[:64], x[:64], x[64:128], beta=s, alpha=0.7),
    "cross": lambda x, s: torch.linalg.cross(x[:999].view(-1, 3), x[1:1000].view(-1, 3)),
    "addbmm": lambda x, s: torch.addbmm(
        *[x[:k].view(s) for k, s in ((16, (4, 4)), (48, (3, 4, 4)), (48, (3, 4, 4)))], beta=s
    ),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", BESIDE_NUMBERS)
def test_numbers_beside_half_precision(name, dtype):
    """Rounded first, or not, as on the CPU: it decides every remainder."""
    x = torch.randn(4096).to(dtype)
    wanted = BESIDE_NUMBERS[name](x, 0.11)
    got = BESIDE_NUMBERS[name](x.to(DEVICE), 0.11).cpu()
    assert got.dtype == wanted.dtype
    if name in ("rpow", "pow", "xlogy", "addbmm"):
        assert bool((places_apart(got, wanted) <= 1).all())
    else:
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("parameters", [None, torch.bfloat16, torch.float32], ids=str)
def test_statistics_of_half_precision(parameters):
    """Means and deviations are as wide as the parameters, as on the CPU."""
    x = torch.randn(2, 3, 4).bfloat16()
    weight = None if parameters is None else torch.ones(4, dtype=parameters)
    scale = None if parameters is None else torch.ones(3, dtype=parameters)

    def norms(x, weight, scale):
        yield torch.native_layer_norm(x, [4], weight, weight, 1e-5)
        yield torch.native_batch_norm(x, scale, scale, None, None, True, 0.1, 1e-5)

    moved = [None if one is None else one.to(DEVICE) for one in (x, weight, scale)]
    for got, wanted in zip(norms(*moved), norms(x, weight, scale), strict=True):
        assert [one.dtype for one in got] == [one.dtype for one in wanted]
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=2e-2, atol=2e-2)


WITH_BOOLEANS = {
    "mul": lambda mask, x: mask * x,
    "mul.number": lambda mask, x: mask * torch.inf,
    "div": lambda mask, x: mask / torch.zeros_like(x).bool(),
    "div.lone": lambda mask, x: mask / torch.zeros((), dtype=torch.bool, device=x.device),
    "addcmul": lambda mask, x: torch.addcmul(torch.ones_like(x), mask.float(), x),
    "converted": lambda mask, x: mask.to(x.dtype) * x,
    "compared": lambda mask, x: (x < 0) * x,
    "complex": lambda mask, x: mask.to(torch.complex64) * x,
    "dropout": lambda mask, x: torch.ops.aten.native_dropout_backward(x, mask, 2.0),
}


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("name", WITH_BOOLEANS)
def test_false_times_infinity(name, mode):
    mask = torch.tensor([False, True, False, True, False])
    x = torch.tensor([torch.inf, torch.inf, torch.nan, torch.nan, -1])
    with torch.tpu.set_eager_mode(mode):
        check(WITH_BOOLEANS[name], mask, x)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_padding_reads_nothing(mode):
    def bags(table, index):
        return torch.nn.functional.embedding_bag(index, table, mode=mode, padding_idx=0)

    table = torch.tensor([[torch.nan, torch.inf], [1.0, 2]])
    check(bags, table, torch.tensor([[0, 1], [1, 1], [0, 0]]))
