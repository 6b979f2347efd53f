"""A size that changes from call to call is a run-time length where no type depends on it."""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, ROOT, check, compiled, modes, only_tpu, same, slow_but

pytestmark = only_tpu
COUNT = 50
MOST = 6  # programs of a loop: exact ones at its ends, and one for each power of two
LOOPS = {}  # name -> the sizes of what its body(i, *tensors) is given, and the body


def loop(*shapes):
    def add(body):
        LOOPS[body.__name__] = (shapes, body)
        return body

    return add


@loop((COUNT, 4))
def total(i, x):
    return x[:i].sum()


@loop((COUNT, 4))
def mean(i, x):
    return x[:i].mean(0)


@loop((5, COUNT + 3))
def largest(i, x):
    return x[:, :i].amax(1)


@loop((3, COUNT, 4))
def smallest_of_the_middle(i, x):
    return x[:, :i].amin(-2, keepdim=True)


@loop((COUNT, 4))
def part(i, x):
    return x[i // 3 : i].sum(0)


@loop((COUNT, 4))
def to_the_end(i, x):
    return x[-i:].sum(0)


@loop((COUNT, 4))
def every_other(i, x):
    return x[:i:2].sum(0)


@loop((COUNT, 4))
def across_rows(i, x):
    return x.view(-1)[i : 3 * i].amax()


@loop((COUNT, 3, 4))
def transposed(i, x):
    return x.permute(2, 0, 1)[1:, :i].sum(1)


@loop((90,))
def windows(i, x):
    return x.as_strided((i, 4), (1, 1), i // 2).sum(0)


@loop((90,))
def from_the_end(i, x):
    return x[90 - i : 90 - i // 2].sum()


@loop((COUNT, 4))
def other_dtype(i, x):
    return x.view(torch.int16)[:i].amax(0)


@loop((COUNT, 3), (COUNT, 5))
def product(i, x, y):
    return x[:i].T @ y[:i]


@loop((COUNT, 3), (70, 5))
def product_of_parts(i, x, y):
    return x[i // 2 : i].T @ y[: i - i // 2]


@loop((COUNT, 3))
def square(i, x):
    return x[:i].T @ x[:i]


@loop((2, COUNT, 3), (2, COUNT, 5), (3, 5))
def products(i, x, y, bias):
    return bias + x[:, :i].mT @ y[:, :i]


@loop((2, 3, 4, 8), (2, 3, COUNT, 8), (2, 3, COUNT, 8))
def attention(i, q, k, v):
    return F.scaled_dot_product_attention(q / 4, k[:, :, :i], v[:, :, :i])


def numbers(*shape):
    """Small integers, whose sums and products are exact."""
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(-4, 5, shape, generator=generator).float()


def run(name, device, sizes, each=lambda: None):
    shapes, body = LOOPS[name]
    tensors, results = [numbers(*shape).to(device) for shape in shapes], []
    for i in sizes:
        results.append(body(i, *tensors))
        each()
    return results


@pytest.mark.parametrize("mode", slow_but(modes(), "strict"))
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, mode):
    torch.tpu.eager_mode = mode
    sizes = range(2, COUNT + 1)  # of one element some sums are none
    programs, got = compiled(lambda: run(name, DEVICE, sizes, torch.tpu.synchronize))
    assert programs <= MOST + (name == "products") + (name == "attention")
    close = (
        {"rtol": 1e-5, "atol": 1e-5} if name in ("attention", "mean") else {"rtol": 0, "atol": 0}
    )
    same(got, run(name, "cpu", sizes), **close)


# -- Every row that has the entry --

FIRST = 11  # the exact size; those behind it share a bound, and the last is behind that
SIZES = (FIRST, 12, 16, 13, 20)
ENTRIES = {
    name: kind
    for folder in ("reduce", "matmul", "attention")  # view's has one: test_gradients_of_sums
    for text in [(ROOT / "core" / "ops" / folder / f"{folder}.def").read_text()]
    for kind, name in re.findall(r'^(REDUCES|CONTRACTS)(?:_LISTED)?\("([^"]+)"', text, re.MULTILINE)
}
REST = {  # what products are given: `a` and `b` are as long along the dims that are contracted
    "mm": (("a", 3, None), ("b", None, 4)),
    "bmm": (("a", 2, 3, None), ("b", 2, None, 4)),
    "addmm": ((3, 4), ("a", 3, None), ("b", None, 4)),
    "baddbmm": ((2, 3, 4), ("a", 2, 3, None), ("b", 2, None, 4)),
    "addbmm": ((3, 4), ("a", 2, 3, None), ("b", 2, None, 4)),
    "mv": (("a", 3, None), ("b", None)),
    "addmv": ((3,), ("a", 3, None), ("b", None)),
    "dot": (("a", None), ("b", None)),
    "vdot": (("a", None), ("b", None)),
    "_scaled_dot_product_fused_attention_overrideable": (
        (2, 3, 4, 8),
        ("a", 2, 3, None, 8),
        ("b", 2, 3, None, 8),
    ),
}
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


def overload(name):
    base, _, rest = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), rest or "default")


def values(shape, dtype):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(x, x.flip(0)).to(dtype)
    return (
        (x > 0)
        if dtype == torch.bool
        else (x * 3).abs().to(dtype)
        if dtype == torch.uint8
        else (x if dtype.is_floating_point else x * 5).to(dtype)
    )


def prefix(shape, along, size, dtype, device):
    """A view of that size, in a tensor that is poison behind it."""
    whole = values(shape, dtype)
    worst = {torch.bool: True}.get(dtype, float("nan"))
    if not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
        worst = torch.iinfo(dtype).max
    whole.narrow(along, size, shape[along] - size).fill_(worst)
    if size % 2 and dtype.is_floating_point:
        whole.select(along, size).fill_(float("inf"))
    return whole.to(device).narrow(along, 0, size)


def reduced(name, dim, dtype, size, device):
    """The operator over `dim` of a prefix, all other arguments being what is usual."""
    shape = [3, 4, 2]
    shape[dim] = 24
    args, kwargs = [], {}
    for argument in overload(name)._schema.arguments:
        value = argument.default_value
        if argument.name == "self":
            value = prefix(shape, dim % 3, size, dtype, device)
        elif argument.name == "dim":
            value = dim if str(argument.type) in ("int", "Optional[int]") else [dim]
        elif argument.name in ("p", "ord"):
            value = 2 if value is None else value
        elif argument.name == "dtype" and name.startswith("norm"):
            value = dtype
        elif value is None and "Optional" not in str(argument.type):
            continue
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return overload(name)(*args, **kwargs)


def contracted(name, dtype, size, device):
    base = name.split(".")[0]
    if "attention" in base:
        args = [arg_of(one, size, dtype, device) for one in REST[base]]
        return F.scaled_dot_product_attention(*args)
    args = [arg_of(one, size, dtype, device) for one in REST[base]]
    if not name.endswith(".dtype"):
        return overload(name)(*args)
    if device == "cpu":  # it has no such overload
        return overload(base)(*[one.float() for one in args])
    return overload(name)(*args, torch.float32)


def arg_of(shape, size, dtype, device):
    if shape[0] not in ("a", "b"):
        return values(shape, dtype).to(device)
    dims = [24 if one is None else one for one in shape[1:]]
    return prefix(dims, shape[1:].index(None), size, dtype, device)


def compare(function, dtype):
    """On the CPU and, with few programs, on the device; what the CPU refuses is not asked for."""
    try:
        want = [function(size, "cpu") for size in SIZES]
    except (RuntimeError, NotImplementedError):
        pytest.skip("not on the CPU")
    torch.tpu.eager_mode = "strict"
    programs, got = compiled(lambda: [function(size, DEVICE) for size in SIZES])
    single = torch.float32 in (dtype, *(one.dtype for one in flat(want)))
    limits = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    same(got, want, **(limits or ({"rtol": 1e-4, "atol": 1e-5} if single else {})))
    return programs


def flat(results):
    return [one for r in results for one in (r if isinstance(r, tuple) else (r,))]


REDUCES = [name for name, kind in ENTRIES.items() if kind == "REDUCES"]


@pytest.mark.parametrize("dtype", slow_but(DTYPES, torch.float32), ids=str)
@pytest.mark.parametrize("name", slow_but(REDUCES, *REDUCES[::3]))
def test_rows_that_reduce(name, dtype):
    for dim in (0, -2):
        programs = compare(partial(reduced, name, dim, dtype), dtype)
        composed = name == "logsumexp" and dtype.is_complex
        assert programs <= 3 or composed


@pytest.mark.parametrize("dtype", slow_but(DTYPES, torch.float32), ids=str)
@pytest.mark.parametrize("name", [name for name, kind in ENTRIES.items() if kind == "CONTRACTS"])
def test_rows_that_contract(name, dtype):
    if name.endswith(".dtype") and dtype != torch.bfloat16:
        pytest.skip("from half precision alone")
    if name == "baddbmm.dtype":
        pytest.skip("its Meta kernel fails")
    programs = compare(partial(contracted, name, dtype), dtype)
    assert programs <= 3


@pytest.mark.parametrize("p", [0, 1, 2, 3.5, -1, float("inf"), float("-inf")])
def test_norms(p):
    compare(
        lambda n, d: torch.linalg.vector_norm(prefix([24, 3], 0, n, torch.float32, d), p, 0), None
    )


def test_moments():
    def moments(correction, n, device):
        x = prefix([24, 3], 0, n, torch.float32, device)
        return torch.var_mean(x, 0, correction=correction)

    for correction in (0, 1, 12, 30):
        compare(partial(moments, correction), torch.float32)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_places_among_all_elements(dim):
    shape = [3, 4, 2]
    shape[dim] = 24
    for place in (torch.argmax, torch.argmin):
        compare(lambda n, d, f=place: f(prefix(shape, dim, n, torch.float32, d)), None)


def test_nan_that_counts():
    def results(x):
        x[3] = float("nan")
        return [f(x[:i]) for i in (2, 3, 5, 9) for f in (torch.amax, torch.sum, torch.argmin)]

    check(results, numbers(20, 3))


# -- What stays as it is --


def test_nothing_there():
    x, y = numbers(20, 3).to(DEVICE), numbers(20, 4).to(DEVICE)
    for i in (5, 6, 0, 7):
        assert x[:i].sum().item() == numbers(20, 3)[:i].sum()
        same((x[:i].T @ y[:i]), numbers(20, 3)[:i].T @ numbers(20, 4)[:i], rtol=0, atol=0)
    assert x[:0].mean().isnan()
    with pytest.raises((RuntimeError, IndexError)):
        x[:0].amax()


def test_results_that_grow():
    def results(x):
        return [x[:i].sum(1) for i in range(1, 9)] + [x[:i] * 2 for i in range(1, 9)]

    check(results, numbers(20, 3), tolerance={"rtol": 0, "atol": 0})


def test_two_sizes():
    def results(x):
        return [x[:i, : 1 + i % 7].sum() for i in range(1, 15)]

    check(results, numbers(20, 9), tolerance={"rtol": 0, "atol": 0})


def test_sizes_that_differ():
    x, y = numbers(20, 3).to(DEVICE), numbers(20, 4).to(DEVICE)
    for i in range(2, 8):
        x[:i].T @ y[:i]
    with pytest.raises(RuntimeError):
        x[:7].T @ y[:6]


def test_where_it_is_written():
    def results(x):
        for i in range(4, 9):
            x[12:15].addmm_(x[:i].T, x[:i])
            torch.sum(x[:i], 0, out=x[15])
        return x

    check(results, numbers(20, 3))


@pytest.mark.slow
def test_random_numbers_of_dropout():
    """They are drawn for the exact size, so that a seed says what they are."""
    q, k = numbers(1, 2, 4, 8).to(DEVICE), numbers(1, 2, 20, 8).to(DEVICE)
    for i in (4, 5, 9, 17):
        torch.manual_seed(3)
        got = F.scaled_dot_product_attention(q, k[:, :, :i], k[:, :, :i], dropout_p=0.5)
        torch.manual_seed(3)
        part = k[:, :, :i].contiguous()
        same(got, F.scaled_dot_product_attention(q, part, part, dropout_p=0.5).cpu())


@pytest.mark.parametrize("mode", modes())
def test_gradients_of_sums(mode):
    torch.tpu.eager_mode = mode

    def sums(x):
        for i in range(2, COUNT):
            (x[:i].sum() * i).backward()
            x[i // 2 : i].sum().backward()
            x.view(4, COUNT)[:, -i:-1].sum().backward()
            if x.device.type == "tpu":
                torch.tpu.synchronize()
        return x.grad

    want = sums(numbers(COUNT, 4).requires_grad_())
    programs, got = compiled(lambda: sums(numbers(COUNT, 4).to(DEVICE).requires_grad_()))
    assert programs <= 36
    same(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("mode", slow_but(modes(), "strict"))
def test_gradients(mode):
    torch.tpu.eager_mode = mode

    def sums(x):
        for i in range(1, 20):
            (x[:i].sum() + (x[:i].T @ x[:i]).amax()).backward()
        return x.grad

    want = sums(numbers(20, 3).requires_grad_())
    same(sums(numbers(20, 3).to(DEVICE).requires_grad_()), want, rtol=1e-5, atol=1e-5)


def test_fused_loops_settle():
    torch.tpu.eager_mode = "fused"

    def steps(x, y):
        out = []
        for i in range(2, COUNT):
            out.append(torch.tanh(x[:i].mean(0)) * 2 + (x[:i].T @ y[:i]).sum(1))
        return out

    host = numbers(COUNT, 3), numbers(COUNT, 4)
    tensors = [one.to(DEVICE) for one in host]
    for _ in range(4):
        held = steps(*tensors)  # what is held at the end shapes a program
        torch.tpu.synchronize()
        del held
    programs, got = compiled(lambda: steps(*tensors))
    assert programs == 0
    same(got, steps(*host))


def test_why():
    x = numbers(40, 6).to(DEVICE)
    for i in (9, 10, 20):
        x[:i].prod()
    text = torch.tpu.explain()
    assert "the size of operand 0's dim 0 changes, and is a run-time length bounded by 16" in text
    assert "run-time length that is now bounded by 32, not 16" in text
