"""Checks, creation into given tensors, fake quantisation, implicit derivatives: against the CPU."""

import mpmath
import pytest
import torch
from support import DEVICE, check, modes, move, only_tpu, same

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]
aten = torch.ops.aten


@pytest.fixture(params=[mode for mode in modes() if mode != "debug"])
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


def test_asserts_wait():
    torch._assert_async(torch.tensor(1, device=DEVICE))
    with pytest.raises(RuntimeError, match="why"):
        torch._assert_async(torch.tensor(0, device=DEVICE), "why")


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_creation():
    assert torch.range(1, 4, 0.5, device=DEVICE).tolist() == [1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert torch.range(5, 1, -2, dtype=torch.int64, device=DEVICE).tolist() == [5, 3, 1]
    out = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert torch.randperm(7, out=out) is out
    assert sorted(out.tolist()) == list(range(7))


def test_being_set_to():
    x = torch.ones(3, 2, device=DEVICE)
    assert x.is_set_to(x[:]) and not x.is_set_to(x[1:]) and not x.is_set_to(x.clone())


def test_dtypes_reach_decompositions_as_dtypes():
    a, b = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    scales = torch.tensor(0.5), torch.tensor(2.0)
    for dtype in (torch.float32, torch.bfloat16):
        check(lambda x, y, *s, d=dtype: torch._scaled_mm(x, y.t(), *s, out_dtype=d), a, b, *scales)


def test_scaled_products_stay_finite():
    """Small floats hold no large number, and a conversion alone would make NaN of it.

    So do some CPUs; that is why they are not asked.
    """
    a, b = (torch.randn(16, 32).mul(8).to(torch.float8_e4m3fn) for _ in range(2))
    scales = torch.tensor(0.5), torch.tensor(100.0)
    for x in (a, a.to(torch.float8_e5m2)):
        most = torch.finfo(x.dtype).max
        expected = (x.float() @ b.float().t() * 50).clamp(-most, most).to(x.dtype)
        assert (expected.float().abs() == most).any()
        actual = torch._scaled_mm(move(x), move(b).t(), *move(scales))
        assert actual.dtype == x.dtype and torch.equal(actual.cpu().float(), expected.float())


def test_fake_quantisation(mode):
    x, scale = torch.randn(4, 5) * 3, torch.rand(4) + 0.1
    zero, zeros = torch.tensor([2], dtype=torch.int32), torch.arange(-2, 2, dtype=torch.int32)
    limits = -8, 7
    check(aten.fake_quantize_per_tensor_affine_cachemask, x, 0.1, 3, *limits)
    for enabled in (torch.tensor([0]), torch.tensor([1])):
        function = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        check(function, x, scale[:1], zero, enabled, *limits)
    for points in (zeros, zeros + 0.3):
        check(aten.fake_quantize_per_channel_affine_cachemask, x, scale, points, 0, *limits)
    grad = torch.randn(4, 5)
    whole, rows = (scale[:1], zero.float()), (scale, zeros.float(), 0)
    for name, more in (("per_tensor", whole), ("per_channel", rows)):
        function = getattr(aten, f"_fake_quantize_learnable_{name}_affine")
        check(function, x, *more, *limits, 0.5)
        backward = getattr(aten, f"_fake_quantize_learnable_{name}_affine_backward")
        check(backward, grad, x, *more, *limits, 0.5)


@pytest.mark.slow
def test_channels_of_a_new_observer():
    """It begins with no extremes, and learns how many channels there are."""
    for shape in ((4, 3), (5, 2, 3)):
        found = []
        for device in ("cpu", DEVICE):
            torch.manual_seed(0)
            observed = [torch.tensor([]), torch.tensor([]), torch.ones(1), torch.zeros(1).int()]
            observed = [one.to(device) for one in observed]
            on = torch.ones(1, device=device).long()
            for _ in range(2):
                x = torch.randn(shape).to(device)
                out = torch.fused_moving_avg_obs_fake_quant(
                    x, on, on, *observed, 0.01, -128, 127, 0, True, True
                )
                found.append([one.cpu().clone() for one in (out, *observed)])
        for want, got in zip(found[:2], found[2:], strict=True):
            same(got, want)


@pytest.mark.slow
@pytest.mark.diagonal
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("by_row", [False, True])
def test_observers_of_ranges(mode, by_row, symmetric):
    function, count = aten._fused_moving_avg_obs_fq_helper, 4 if by_row else 1
    for scale, limits, (observing, rounding) in (
        (1.0, (-128, 127), (1, 1)),
        (1e-4, (0, 255), (1, 1)),
        (0.0, (-8, 7), (1, 1)),
        (100.0, (0, 255), (1, 0)),
        (1.0, (-8, 7), (0, 1)),
    ):
        least, most = torch.full((count,), torch.inf), torch.full((count,), -torch.inf)
        if not observing:
            least, most = torch.full((count,), -1.0), torch.full((count,), 2.0)
        state = [least, most, torch.ones(count), torch.zeros(count, dtype=torch.int32)]
        switches = torch.tensor([observing]), torch.tensor([rounding])

        def twice(x, on, off, *own, limits=limits):
            more = (*own, 0.01, *limits, 0, by_row, symmetric)
            return function(x, on, off, *more), function(x + x.abs(), on, off, *more)

        check(twice, torch.randn(4, 6) * scale, *switches, *state)


# -- Derivatives of random variables by their parameters --


def slope(distribution, density, a):
    step = mpmath.mpf(10) ** -12
    rise = distribution(a + step) - distribution(a - step)
    return float(-rise / (2 * step) / density(a))


def gamma_slope(a, x):
    return slope(
        lambda p: mpmath.gammainc(p, 0, x, regularized=True),
        lambda p: x ** (p - 1) * mpmath.exp(-x) / mpmath.gamma(p),
        a,
    )


def beta_slope(x, a, total):
    b = total - a
    return slope(
        lambda p: mpmath.betainc(p, b, 0, x, regularized=True),
        lambda p: x ** (p - 1) * (1 - x) ** b / mpmath.beta(p, b),
        a,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives_of_gamma_variables(dtype):
    alpha = torch.tensor([0.01, 0.5, 1, 5, 100]).repeat_interleave(4).to(dtype)
    x = torch._standard_gamma(alpha).clamp(min=1e-20)
    x[::3] *= 1.5
    got = torch._standard_gamma_grad(*move((alpha, x))).cpu()
    with mpmath.workdps(40):
        pairs = zip(alpha.tolist(), x.tolist(), strict=True)
        want = [gamma_slope(mpmath.mpf(a), mpmath.mpf(v)) for a, v in pairs]
    limit = 1e-5 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(got, torch.tensor(want, dtype=dtype), rtol=limit, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives_of_beta_variables(dtype):
    sizes = torch.tensor([0.1, 1, 5, 100], dtype=dtype)
    a, b = (one.flatten() for one in torch.meshgrid(sizes, sizes, indexing="ij"))
    x = torch.distributions.Beta(a, b).sample().clamp(1e-6, 1 - 1e-6)
    got = torch._dirichlet_grad(*move((x, a, a + b))).cpu()
    with mpmath.workdps(40):
        triples = zip(x.tolist(), a.tolist(), (a + b).tolist(), strict=True)
        want = [beta_slope(*(mpmath.mpf(one) for one in three)) for three in triples]
    limit = 1e-3 if dtype == torch.float32 else 1e-8
    torch.testing.assert_close(got, torch.tensor(want, dtype=dtype), rtol=limit, atol=0)


@pytest.mark.slow
def test_gradients_of_samples(mode):
    rate = torch.full((2000,), 3.0, device=DEVICE, requires_grad=True)
    torch.distributions.Gamma(rate, 1.0).rsample().mean().backward()
    assert abs(rate.grad.sum().item() - 1) < 0.1
    weights = torch.full((2000, 3), 2.0, device=DEVICE, requires_grad=True)
    torch.distributions.Dirichlet(weights).rsample()[:, 0].mean().backward()
    assert abs(weights.grad[:, 0].sum().item() - 1 / 9) < 0.03


POWERS_OF_BOOLEANS = {
    "pow": lambda x, e: x**e,
    "in_place": lambda x, e: x.pow_(e),
    "out": lambda x, e: torch.pow(x, e, out=torch.empty_like(x)),
    "list": lambda x, e: torch._foreach_pow([x, x[1:]], e),
    "lists": lambda x, e: torch._foreach_pow([x, x[1:]], [e, 2]),
    "list_out": lambda x, e: aten._foreach_pow([x], e, out=[torch.empty_like(x)]),
    "list_in_place": lambda x, e: torch._foreach_pow_([x], e) and x,
}


@pytest.mark.parametrize("name", POWERS_OF_BOOLEANS)
def test_powers_of_booleans(name, mode):
    for exponent in (True, False):
        check(POWERS_OF_BOOLEANS[name], torch.tensor([True, False, True]), exponent)


@pytest.mark.parametrize("number", [1.0, 1.5])
@pytest.mark.parametrize("size", [2, 3])
def test_equal_compares_numbers_of_other_dtypes(number, size):
    def compare(device):
        whole = torch.ones(size, dtype=torch.int32, device=device)
        return torch.equal(torch.full((2,), number, device=device), whole)

    assert compare(DEVICE) == compare("cpu")


def test_splitting_at_places_on_the_device():
    x = torch.arange(12.0).reshape(6, 2)
    for places in (torch.tensor([1, 4]), torch.tensor(3)):
        parts = torch.tensor_split(x.to(DEVICE), places.to(DEVICE))
        assert [one.tolist() for one in parts] == [one.tolist() for one in x.tensor_split(places)]
    with pytest.raises(RuntimeError, match="dtype of long, but got Float"):
        torch.tensor_split(x.to(DEVICE), torch.tensor([1.0], device=DEVICE))
