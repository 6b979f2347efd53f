"""Bessel and Airy functions against values of many digits."""

import mpmath
import pytest
import torch
from support import DEVICE, check, modes, only_tpu

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]

EXACT = {
    "bessel_j0": lambda x: mpmath.besselj(0, x),
    "bessel_j1": lambda x: mpmath.besselj(1, x),
    "bessel_y0": lambda x: mpmath.bessely(0, x),
    "bessel_y1": lambda x: mpmath.bessely(1, x),
    "modified_bessel_i0": lambda x: mpmath.besseli(0, x),
    "modified_bessel_i1": lambda x: mpmath.besseli(1, x),
    "modified_bessel_k0": lambda x: mpmath.besselk(0, x),
    "modified_bessel_k1": lambda x: mpmath.besselk(1, x),
    "scaled_modified_bessel_k0": lambda x: mpmath.besselk(0, x) * mpmath.exp(x),
    "scaled_modified_bessel_k1": lambda x: mpmath.besselk(1, x) * mpmath.exp(x),
    "spherical_bessel_j0": mpmath.sinc,
    "airy_ai": mpmath.airyai,
}
POSITIVE = {name for name in EXACT if name.endswith(("y0", "y1", "k0", "k1"))}


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXACT)
def test_values(name, dtype):
    x = torch.cat([torch.linspace(0.05, 20, 60), torch.logspace(-3, 1.5, 20)]).to(dtype)
    if name not in POSITIVE:
        x = torch.cat([x, -x])
    exact = [float(EXACT[name](mpmath.mpf(v))) for v in x.tolist()]
    want = torch.tensor(exact, dtype=torch.float64)
    got = getattr(torch.special, name)(x.to(DEVICE)).cpu()
    assert got.dtype == dtype
    error = (got.double() - want).square().sum() / want.square().sum()
    assert error < (1e-24 if dtype == torch.float64 else 1e-10)
    scale = want.abs().clamp(min=1e-2)
    limit = 1e-9 if dtype == torch.float64 else 1e-4
    assert ((got.double() - want).abs() / scale).max() < limit


@pytest.mark.parametrize("name", EXACT)
def test_edges_integers_and_modes(name):
    function = getattr(torch.special, name)
    edges = [0.0, -0.0, torch.inf, torch.nan, 1e-30, 1e30]
    edges += [-1.0] if name in POSITIVE else [-torch.inf]
    check(function, torch.tensor(edges))
    check(function, torch.arange(1, 5))
    check(function, torch.zeros(0, 3))
    for mode in modes():
        with torch.tpu.set_eager_mode(mode):
            check(function, torch.tensor([[0.5, 1.5], [2.5, 9.5]]))


@pytest.mark.parametrize("wide", [False, True])
def test_whole_operands_become_the_default_dtype(wide):
    """Whatever the target's dtype is, and whatever the default was before."""
    x, n = torch.arange(1, 5), torch.arange(2, 6)
    before = torch.get_default_dtype()
    for default in (before, torch.float64 if wide else torch.bfloat16, before):
        torch.set_default_dtype(default)
        try:
            check(torch.sqrt, x)
            check(torch.div, x, n)
            check(lambda x, n: x * 2.5 + n, x, n)
        finally:
            torch.set_default_dtype(before)
    for dtype in (torch.complex64, torch.float64, torch.float32):
        for function in (torch.special.zeta, torch.special.hermite_polynomial_h, torch.atan2):
            limits = {"rtol": 1e-5, "atol": 1e-6}
            check(
                lambda f, x, n, out: f(x, n, out=out),
                function,
                x,
                n,
                torch.zeros(4, dtype=dtype),
                tolerance=limits,
            )


def test_powers_of_two():
    """A whole power scales, and may be larger than a number can be; others are rounded."""
    x = torch.tensor([1.5 * 2.0**-100, -(2.0**100), 0.0, torch.inf, 3.0])
    check(torch.ldexp, x, torch.tensor([200, -200, 400, -400, 127]))
    check(torch.ldexp, x.double(), torch.tensor([1000, -1000, 3000, -3000, 1]))
    check(torch.ldexp, torch.ones(2).bfloat16(), torch.tensor([3, -4]))
    fraction = torch.tensor([1.3, 2.7])
    for dtype in (torch.int64, torch.float32, torch.bfloat16, torch.complex64):
        check(torch.ldexp, torch.tensor([3, 5]).to(dtype), fraction.bfloat16())
        check(torch.ldexp, torch.tensor([3, 5]).to(dtype), fraction.bfloat16()[0])


def test_a_sign_that_stays_on_the_host():
    x = torch.randn(5)
    for sign in (torch.tensor(-1.0), torch.tensor(2, dtype=torch.int64)):
        check(lambda x, s=sign: torch.copysign(x, s), x)
        check(lambda x, s=sign: torch.copysign(s, x), x)
        check(lambda x, s=sign: x.copysign_(s), x)
