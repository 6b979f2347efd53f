"""Numbers that are the CPU's to the last bit."""

import re

import pytest
import torch
from support import DEVICE, modes

F = torch.nn.functional
QUOTIENTS = {
    "by a number": lambda x: x / 3.0,
    "by a scalar tensor": lambda x: x / torch.tensor(0.1, dtype=x.dtype, device=x.device),
    "by a row": lambda x: x / x[:1],
    "by a column": lambda x: x / x[:, :1],
    "by a row that a view repeats": lambda x: x / x[:1].expand_as(x),
    "by what was filled": lambda x: x / torch.full_like(x, 3.0),
    "by a root": lambda x: x / x.abs().ceil().square().sqrt(),
    "twice": lambda x: x / x.T[:1, :37] / x.flip(0),
    "by a quotient": lambda x: x / (x.flip(0) / x.flip(1)),
    "inverted twice": lambda x: 1 / (1 / x),
    "in place": lambda x: x.clone().div_(7),
    "rounded": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "rounded down": lambda x: x // 0.7,
    "of lists": lambda x: torch._foreach_div([x, x + 1], 3.0)[1],
    "of lists by numbers": lambda x: torch._foreach_div([x, x + 1], [3.0, 49.0])[1],
    "the mean of three": lambda x: x[:, :3].sum(1) / 3 - x[:, :3].mean(1),
    "a gradient of a mean": lambda x: mean_gradient(x),
    "pooled": lambda x: F.avg_pool2d(x.mul(8).round()[None, None], 3, 1),
    "hard": lambda x: F.hardsigmoid(x),
}


def mean_gradient(x):
    leaf = x.detach().clone().requires_grad_()
    leaf.mean().backward()
    return leaf.grad


@pytest.mark.diagonal
@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", QUOTIENTS)
def test_a_quotient_is_rounded_once(name, dtype, mode):
    """XLA would multiply by the reciprocal of a divisor that is broadcast."""
    x = torch.randn(41, 37, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    x = x.to(dtype)
    x[3, 3:7] = torch.tensor([float("nan"), float("inf"), -0.0, 0.0], dtype=dtype)
    x[0, :], x[:, 0] = 3.3, -0.7
    run = QUOTIENTS[name]
    with torch.tpu.set_eager_mode(mode):
        there = run(x.to(DEVICE)).cpu()
    assert torch.equal(there.nan_to_num(7.5), run(x).nan_to_num(7.5))


def flushes_denormals():
    """XLA does on CPUs, unlike on GPUs."""
    return (torch.tensor(1e-30, device=DEVICE) * 1e-10).item() == 0


EXTREMES = [0.0, -0.0, 1.0, -3.0, 1e10, 1e-10, -1e20, 1e-20, 1e30, 1e-30, 1e38, 60.0, -60.0, 0.3]
CHAINS = {
    "x / y / z": lambda x, y: x / y / y.neg(),
    "x / (y / z)": lambda x, y: x / (y / x),
    "(x / y) / (z / w)": lambda x, y: (x / y) / (y / x),
    "a quotient moved": lambda x, y: (x / y).view(14, 14).T.reshape(196) / y,
    "a quotient that is read": lambda x, y: torch.stack([x / y, x / y / y]),
    "in place": lambda x, y: x.clone().div_(y).div_(y),
    "complex": lambda x, y: (torch.complex(x, y) / 1e20j / 1e20j).real.clamp(-1e-3, 1e-3),
    "x / exp(y)": lambda x, y: x / y.clamp(-80, 90).exp(),
    "exp(x) * exp(y)": lambda x, y: x.clamp(-80, 90).exp() * y.clamp(-80, 90).exp(),
    "exp(x) to a power": lambda x, y: x.clamp(-80, 90).exp() ** 0.3,
    "x / pow(y, z)": lambda x, y: x / y.pow(-5),
    "log(pow(x, y))": lambda x, y: x.pow(y.clamp(-3, 3)).log(),
    "1 / sigmoid": lambda x, y: 1 / x.clamp(-80, 90).sigmoid(),
    "sqrt squared": lambda x, y: x.sqrt() * x.sqrt(),
    "rsqrt squared": lambda x, y: x.rsqrt() * x.rsqrt(),
}


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("name", CHAINS)
def test_no_step_of_a_chain_is_left_out(name, mode):
    """XLA would compute x / y / z as x / (y * z), which overflows where the quotients do not."""
    x = torch.tensor(EXTREMES)
    x, y = (one.flatten() for one in torch.meshgrid(x, x, indexing="ij"))
    run = CHAINS[name]
    with torch.tpu.set_eager_mode(mode):
        there = run(x.to(DEVICE), y.to(DEVICE)).cpu()
    torch.set_flush_denormal(flushes_denormals())
    try:
        here = run(x, y)
    finally:
        torch.set_flush_denormal(False)
    torch.testing.assert_close(there, here, rtol=1e-5, atol=0, equal_nan=True)


FACTORS = {
    "addcmul": lambda x, at, by: torch.addcmul(x, x, x, value=by),
    "addcmul, in place": lambda x, at, by: x.clone().addcmul_(x, x, value=by),
    "addcmul, of two dtypes": lambda x, at, by: torch.addcmul(x, x.short(), x.long(), value=by),
    "addcmul, lists": lambda x, at, by: torch._foreach_addcmul([x], [x], [x], by)[0],
    "addcmul, lists of factors": lambda x, at, by: torch._foreach_addcmul([x], [x], [x], [by])[0],
    "index_add": lambda x, at, by: torch.index_add(x, 0, at, x[:2], alpha=by),
    "index_add, in place": lambda x, at, by: x.clone().index_add_(0, at, x[:2], alpha=by),
}


@pytest.mark.parametrize("work", FACTORS.values(), ids=FACTORS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_a_factor_of_integers_is_whole(work, dtype):
    x, at = torch.tensor([1, 2, 3, 100], dtype=dtype), torch.tensor([3, 0])
    for by in (1.5, 2.7, 2) + ((-1.5,) if dtype.is_signed else ()):
        want, got = work(x, at, by), work(x.to(DEVICE), at.to(DEVICE), by)
        assert got.dtype == want.dtype and got.tolist() == want.tolist()


HELD = {
    "full": lambda dtype, by, on: torch.full((2,), by, dtype=dtype, device=on),
    "scalar_tensor": lambda dtype, by, on: torch.scalar_tensor(by, dtype=dtype, device=on),
    "full_like": lambda dtype, by, on: torch.full_like(torch.ones(2, device=on), by, dtype=dtype),
    "new_full": lambda dtype, by, on: torch.ones(2, device=on, dtype=dtype).new_full((2,), by),
    "fill_": lambda dtype, by, on: torch.ones(2, device=on, dtype=dtype).fill_(by),
    "written": lambda dtype, by, on: written(torch.ones(2, device=on, dtype=dtype), by),
    "masked_fill": lambda dtype, by, on: (x := torch.ones(2, device=on, dtype=dtype)).masked_fill(
        x > 0, by
    ),
    "pad": lambda dtype, by, on: F.pad(torch.ones(2, device=on, dtype=dtype), (1, 1), value=by),
    "threshold": lambda dtype, by, on: F.threshold(torch.ones(2, device=on, dtype=dtype), 1, by),
}


def written(x, by):
    x[0] = by
    return x


@pytest.mark.parametrize("work", HELD.values(), ids=HELD)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool, torch.float32], ids=str)
def test_a_number_that_the_dtype_does_not_hold_is_refused(work, dtype):
    for by in (5, 300, -1, -1.5, 2**40, 1e39, float("inf"), float("nan"), True):
        try:
            want = work(dtype, by, "cpu")
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                work(dtype, by, DEVICE)
        else:
            torch.testing.assert_close(work(dtype, by, DEVICE).cpu(), want, equal_nan=True)


def test_half_a_float_of_one_element_may_become_infinite():
    for shape in ((), (1,)):
        x = torch.zeros(shape, dtype=torch.float16)
        assert x.to(DEVICE).fill_(1e6).item() == x.fill_(1e6).item() == float("inf")
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.zeros(2, dtype=torch.float16, device=DEVICE).fill_(1e6)
