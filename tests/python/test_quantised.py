"""Quantised tensors: integers and scales as on the CPU."""

import io

import pytest
import torch
from support import DEVICE

DTYPES = [torch.qint8, torch.quint8, torch.qint32]
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)) * 3
SCALES, ZEROS = torch.linspace(0.03, 0.7, 6), torch.arange(6)


def per_tensor(x, dtype):
    return torch.quantize_per_tensor(x, 0.1, 3, dtype)


def per_channel(x, dtype):
    return torch.quantize_per_channel(x, SCALES.to(x.device), ZEROS.to(x.device), 1, dtype)


def by_tensors(x, dtype):
    scale, zero = torch.tensor(0.07, device=x.device), torch.tensor(5, device=x.device)
    return torch.quantize_per_tensor(x, scale, zero, dtype)


def with_float_zeros(x, dtype):
    scales, zeros = SCALES.to(x.device), (ZEROS / 3).to(x.device)
    return torch.quantize_per_channel(x, scales, zeros, 1, dtype)


def check(ours, cpu):
    assert ours.device.type == DEVICE
    assert (ours.dtype, ours.qscheme()) == (cpu.dtype, cpu.qscheme())
    assert (ours.shape, ours.stride()) == (cpu.shape, cpu.stride())
    assert torch.equal(ours.int_repr().cpu(), cpu.int_repr())
    assert torch.equal(ours.dequantize().cpu(), cpu.dequantize())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("make", [per_tensor, per_channel, by_tensors])
def test_integers_and_numbers(make, dtype):
    check(make(X.to(DEVICE), dtype), make(X, dtype))


def test_zero_points_of_fractions():
    check(with_float_zeros(X.to(DEVICE), torch.quint8), with_float_zeros(X, torch.quint8))


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_a_scale_that_fits(dtype, reduced):
    for x in (X, X.abs(), -X.abs(), torch.zeros(3)):
        ours, cpu = (
            torch.quantize_per_tensor_dynamic(one, dtype, reduced) for one in (x.to(DEVICE), x)
        )
        check(ours, cpu)
        assert (ours.q_scale(), ours.q_zero_point()) == (cpu.q_scale(), cpu.q_zero_point())


VIEWS = {
    "t": lambda q: q.t(),
    "slice": lambda q: q[1:3],
    "view": lambda q: q.view(2, 12),
    "unsqueeze": lambda q: q.unsqueeze(0).squeeze(0),
    "unfold": lambda q: q.unfold(0, 2, 1),
    "select": lambda q: q[2],
    "contiguous": lambda q: q.t().contiguous(),
    "clone": lambda q: q.clone(),
    "flip": lambda q: q.flip(1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views(view):
    check(view(per_tensor(X.to(DEVICE), torch.qint8)), view(per_tensor(X, torch.qint8)))


def test_what_is_written_through_a_view_is_seen():
    results = []
    for device in (DEVICE, "cpu"):
        q = per_tensor(X.to(device), torch.qint8)
        q[1:3].copy_(torch.ones(2, 6, device=device))
        q[0].fill_(-1)
        results.append(q)
    check(*results)


@pytest.mark.parametrize("make", [per_tensor, per_channel])
def test_there_and_back(make):
    cpu = make(X, torch.qint8)
    ours = cpu.to(DEVICE)
    check(ours, cpu)
    assert torch.equal(ours.cpu(), cpu)
    assert torch.equal(ours, make(X.to(DEVICE), torch.qint8))
    assert not torch.equal(ours, make(X.to(DEVICE) + 1, torch.qint8))
    buffer = io.BytesIO()
    torch.save(ours, buffer)
    buffer.seek(0)
    check(torch.load(buffer, weights_only=False), cpu)
    assert str(ours.q_scale() if make is per_tensor else ours.q_per_channel_axis()) in repr(ours)


def test_of_integers():
    raw = torch.randint(-128, 128, (4, 6), dtype=torch.int8)
    ours = torch._make_per_tensor_quantized_tensor(raw.to(DEVICE), 0.5, 2)
    check(ours, torch._make_per_tensor_quantized_tensor(raw, 0.5, 2))
    parameters = SCALES, ZEROS, 1
    there = (x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in parameters)
    ours = torch._make_per_channel_quantized_tensor(raw.to(DEVICE), *there)
    check(ours, torch._make_per_channel_quantized_tensor(raw, *parameters))


def test_lists():
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([1, 2])
    there = scales.to(DEVICE), zeros.to(DEVICE)
    ours = torch.quantize_per_tensor([X.to(DEVICE), X.to(DEVICE) + 1], *there, torch.qint8)
    cpu = torch.quantize_per_tensor([X, X + 1], scales, zeros, torch.qint8)
    for pair in zip(ours, cpu, strict=True):
        check(*pair)
    for a, b in zip(torch.dequantize(ours), torch.dequantize(cpu), strict=True):
        assert torch.equal(a.cpu(), b)


def test_dequantize_of_what_is_not_quantised():
    assert torch.equal(X.double().to(DEVICE).dequantize().cpu(), X.double().dequantize())


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda x: torch._empty_affine_quantized([2], dtype=x.dtype, device=x.device), "quantized"),
        (lambda x: torch.quantize_per_tensor(x.double(), 0.1, 0, torch.qint8), "(?i)float"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 300, torch.qint8), "zero_point"),
        (lambda x: torch.empty_like(x).copy_(per_tensor(x, torch.qint8)), "quantize"),
        (lambda x: per_channel(x, torch.qint8).flip(0), "quantized|quantised"),
    ],
    ids=["made of floats", "doubles", "zero point", "plain target", "flipped channels"],
)
def test_refused(work, says):
    for device in (DEVICE, "cpu"):
        with pytest.raises(RuntimeError, match=says):
            work(X.to(device))
