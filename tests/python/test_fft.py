"""Fourier transforms against the CPU, none of them on the host."""

import pytest
import torch
from support import DEVICE, check, check_gradients, modes, only_tpu

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]
NORMS = ["backward", "ortho", "forward"]


def real(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype)


def complex_numbers(*shape, dtype=torch.complex64):
    return torch.randn(shape, dtype=dtype)


@pytest.mark.diagonal
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dim", [(0,), (2, 0), (1, 3, 2), (0, 1, 2, 3)])
def test_transforms_of_several_dims(norm, dim):
    x, z = real(2, 3, 4, 5), complex_numbers(2, 3, 4, 5)
    for function in (torch.fft.fftn, torch.fft.ifftn, torch.fft.irfftn, torch.fft.hfftn):
        check(lambda a, f=function: f(a, dim=dim, norm=norm), z)
    for function in (torch.fft.fftn, torch.fft.rfftn, torch.fft.ihfftn):
        check(lambda a, f=function: f(a, dim=dim, norm=norm), x)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 11])
def test_lengths_are_cut_and_filled(length):
    x, z = real(3, 8, dtype=torch.float64), complex_numbers(3, 8, dtype=torch.complex128)
    for function in (torch.fft.rfft, torch.fft.fft, torch.fft.ihfft):
        check(lambda a, f=function: f(a, n=length), x)
    for function in (torch.fft.fft, torch.fft.ifft, torch.fft.irfft, torch.fft.hfft):
        check(lambda a, f=function: f(a, n=length), z)


@pytest.mark.parametrize("mode", modes())
def test_gradients(mode):
    x, z = real(3, 6).requires_grad_(), complex_numbers(3, 6).requires_grad_()
    with torch.tpu.set_eager_mode(mode):
        check_gradients(lambda a: torch.view_as_real(torch.fft.rfft(a)), x)
        check_gradients(lambda a: torch.fft.irfft(a, n=7), z)
        check_gradients(lambda a: torch.view_as_real(torch.fft.ifft2(a, norm="ortho")), z)


def test_nothing_to_transform():
    """The CPU's library refuses this."""
    assert torch.fft.rfft(real(0, 4).to(DEVICE)).shape == (0, 3)
    assert torch.fft.fftn(complex_numbers(0, 3).to(DEVICE), dim=(1,)).shape == (0, 3)
    assert torch.fft.irfft(complex_numbers(0, 3).to(DEVICE), n=4).shape == (0, 4)


def test_short_time_transform_and_back():
    x, window = real(2, 64), torch.hann_window(16)

    def there_and_back(signal, shape):
        z = torch.stft(signal, 16, hop_length=4, window=shape, return_complex=True)
        return z, torch.istft(z, 16, hop_length=4, window=shape, length=64)

    check(there_and_back, x, window)


def test_a_result_is_given():
    z = complex_numbers(4, 4)
    check(lambda a, out: torch.fft.fft(a, out=out), z, torch.empty_like(z))


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("suffix", ["", "2", "n"])
def test_half_precision_as_on_cuda(kind, suffix):
    name = kind.removesuffix("fft") + "fft" + suffix
    function = getattr(torch.fft, name)
    half, single = torch.float16, torch.float32
    x = real(4, 8, 16)
    if kind in ("irfft", "hfft"):
        half, single, x = torch.complex32, torch.complex64, complex_numbers(4, 8, 16)
    x = x.to(half)
    wide, mine = x.to(single).requires_grad_(), x.to(DEVICE).requires_grad_()
    want, got = function(wide, norm="ortho"), function(mine, norm="ortho")
    narrower = {torch.float32: torch.float16, torch.complex64: torch.complex32}
    assert got.dtype == narrower[want.dtype]
    for each in (want, got):
        each.to(want.dtype).abs().sum().backward()
    assert mine.grad.dtype == half
    for a, b in ((got, want), (mine.grad, wide.grad)):
        torch.testing.assert_close(a.detach().cpu().to(b.dtype), b.detach(), rtol=2e-2, atol=2e-2)
    with torch.inference_mode():
        assert function(mine, norm="ortho").tolist() == got.tolist()


def test_bfloat16_is_refused_as_by_both():
    with pytest.raises(RuntimeError, match="BFloat16"):
        torch.fft.fft(torch.ones(4, dtype=torch.bfloat16, device=DEVICE))
