"""What CUDA accepts and the CPU does not."""

import pytest
import torch
from support import DEVICE, only_tpu

pytestmark = only_tpu

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("arguments", [(4,), (8, 0, 7), (5, 2, 9), (3, 4, 4)])
def test_integers_are_counted(dtype, arguments):
    """The bins of CUDA's integer arithmetic are the CPU's, where its floats are exact."""
    x = torch.tensor([0, 7, 3, 3, 9, 5, 4, 1, 8], dtype=dtype)
    counts = torch.histc(x.to(DEVICE), *arguments)
    assert counts.dtype == dtype
    assert torch.equal(counts.cpu(), torch.histc(x.double(), *arguments).to(dtype))


def test_experts_are_counted():
    """As mixtures of experts in transformers do it on every device but the CPU."""
    experts = torch.tensor([3, 0, 1, 3, 3, 7], dtype=torch.int32)
    counts = torch.histc(experts.to(DEVICE), bins=8, min=0, max=7)
    assert counts.tolist() == torch.bincount(experts, minlength=8).tolist()


def test_booleans_have_absolute_values():
    x = torch.tensor([True, False])
    assert torch.equal(x.to(DEVICE).abs().cpu(), x)
    assert torch.equal(torch.nn.functional.softsign(x.to(DEVICE)).cpu(), x / 2)


def test_complex_sums_without_nan():
    nan = float("nan")
    x = torch.tensor([1 + 2j, complex(nan, 1), complex(2, nan), 3 - 1j])
    assert x.to(DEVICE).nansum().item() == 4 + 1j
    assert x.to(DEVICE).nanmean().item() == 2 + 0.5j


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "nansum", "nanmean"])
@pytest.mark.parametrize("dim", [None, 0, (0, 1)])
def test_sums_of_complex_halves(name, dim):
    if name == "prod" and isinstance(dim, tuple):
        pytest.skip("prod takes one dim")
    x = torch.randn(3, 4, dtype=torch.complex64).to(torch.complex32)
    function, wide = getattr(torch, name), x.to(torch.complex64)
    got = function(x.to(DEVICE), dim) if dim is not None else function(x.to(DEVICE))
    want = getattr(torch, name.removeprefix("nan"))  # there is none, and the CPU has no such sum
    want = want(wide, dim) if dim is not None else want(wide)
    assert got.dtype == torch.complex32
    torch.testing.assert_close(got.cpu().to(want.dtype), want, rtol=1e-2, atol=1e-2)


def test_quotients_of_numbers_and_complex_halves():
    x = torch.tensor([1 + 2j, 2 - 1j])
    for number in (True, 2, 0.5, 1j):
        for dtype in (torch.complex32, torch.complex64, torch.float32):
            y = x.to(dtype) if dtype.is_complex else x.real
            got = torch.div(number, y.to(DEVICE))
            want = torch.div(number, y.to(torch.complex64) if dtype.is_complex else y)
            assert got.dtype == (dtype if dtype.is_complex else want.dtype)
            torch.testing.assert_close(got.cpu().to(want.dtype), want, rtol=1e-2, atol=1e-2)
