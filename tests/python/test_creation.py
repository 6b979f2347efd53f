"""Making tensors, their dtypes, and moving them between devices."""

import numpy as np
import pytest
import torch
from support import DEVICE, check, same

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES = [*FLOATS, *INTEGERS, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128], ids=str)
def test_there_and_back(dtype):
    x = torch.arange(-6, 6).reshape(3, 4).to(dtype)
    there = x.to(DEVICE)
    assert there.dtype == dtype and there.shape == x.shape and there.stride() == x.stride()
    assert torch.equal(there.cpu(), x)


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_conversion(source, target):
    x = torch.tensor([0, 1, 2, 3, 100]).to(source)
    if source.is_complex and not target.is_complex:
        pytest.skip("warns that the imaginary part is lost")
    check(lambda t: t.to(target), x)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.zeros(2, 3, device=d),
        lambda d: torch.ones(2, 3, dtype=torch.int32, device=d),
        lambda d: torch.full((2, 2), 7, device=d),
        lambda d: torch.full((2, 2), 0.5, dtype=torch.bfloat16, device=d),
        lambda d: torch.full((), True, device=d),
        lambda d: torch.arange(10, device=d),
        lambda d: torch.arange(1, 9, 2.5, device=d),
        lambda d: torch.arange(5, 0, -1, dtype=torch.int16, device=d),
        lambda d: torch.linspace(0, 1, 7, device=d),
        lambda d: torch.logspace(0, 2, 5, device=d),
        lambda d: torch.eye(3, 4, device=d),
        lambda d: torch.tensor([[1.5, 2], [3, 4]], device=d),
        lambda d: torch.tensor(3, device=d),
        lambda d: torch.tensor([], device=d),
        lambda d: torch.zeros(0, 3, device=d),
        lambda d: torch.tril_indices(3, 3, device=d),
        lambda d: torch.scalar_tensor(2.5, device=d),
        lambda d: torch.hann_window(8, device=d),
        lambda d: torch.zeros(2, 3, device=d).new_full((2,), 3.0),
        lambda d: torch.full_like(torch.zeros(2, 3, device=d), 4, dtype=torch.int64),
    ],
)
def test_creators(make):
    same(make(DEVICE), make("cpu"))


def test_creators_on_another_device():
    """A tensor made like another one lies where it was asked for."""
    x = torch.ones(2, 3, device=DEVICE)
    for make in (torch.zeros_like, torch.ones_like, torch.rand_like, torch.randn_like):
        made = make(x, device="cpu")
        assert made.device.type == "cpu" and made.shape == x.shape
    same(torch.full_like(x, 2.5, device="cpu"), torch.full((2, 3), 2.5))
    same(x.new_full((2,), 3, device="cpu"), torch.full((2,), 3.0))
    assert torch.randint_like(x, 4, device="cpu").device.type == "cpu"
    assert torch.zeros_like(x.cpu(), device=DEVICE).device.type == DEVICE


def test_empty_has_the_asked_layout():
    x = torch.empty(2, 3, 4, 5, device=DEVICE, memory_format=torch.channels_last)
    assert x.stride() == (60, 1, 15, 3) and x.is_contiguous(memory_format=torch.channels_last)
    y = torch.empty_strided((2, 3), (1, 2), device=DEVICE)
    assert y.stride() == (1, 2) and not y.is_contiguous()


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[::2, 1:],
        lambda t: t[:, 1],
        lambda t: t[1:2].expand(3, 4),
        lambda t: t.flip(0),
    ],
)
def test_strided_copies(view):
    host = torch.arange(12.0).reshape(3, 4)
    same(view(host).to(DEVICE), view(host))
    same(view(host.to(DEVICE)).cpu(), view(host))
    target = torch.zeros(3, 4, device=DEVICE)
    view(target).copy_(view(host)) if view(target).stride(0) else None
    expected = torch.zeros(3, 4)
    view(expected).copy_(view(host)) if view(expected).stride(0) else None
    same(target, expected)


def test_copies_convert_and_broadcast():
    x = torch.zeros(2, 3, device=DEVICE)
    x.copy_(torch.tensor([1, 2, 3]))
    assert x.tolist() == [[1, 2, 3]] * 2
    host = torch.zeros(2, 3, dtype=torch.int64)
    host.copy_(x)
    assert host.tolist() == [[1, 2, 3]] * 2


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (1, 1, 1), (2, 0, 4)], ids=str)
def test_small_and_empty_shapes(shape):
    x = torch.ones(shape)
    check(lambda t: (t + 1, t.sum(), t.reshape(-1), t.clone()), x)


def test_to_python():
    x = torch.tensor([[1, 2], [3, 4]], device=DEVICE)
    assert x.tolist() == [[1, 2], [3, 4]] and x[1, 0].item() == 3
    assert int(x[0, 0]) == 1 and float(x[1, 1]) == 4.0 and bool(x[0, 1])
    assert [row.sum().item() for row in x] == [3, 7]
    assert len(x) == 2 and 3 in x


def test_numpy():
    x = torch.arange(6.0, device=DEVICE)
    assert np.array_equal(x.cpu().numpy(), np.arange(6.0))
    same(torch.from_numpy(np.arange(4)).to(DEVICE), torch.arange(4))
    if DEVICE == "tpu":
        with pytest.raises(TypeError, match="cpu"):
            x.numpy()


def test_non_blocking_and_pinned():
    pinned = torch.arange(1024.0).pin_memory() if DEVICE == "tpu" else torch.arange(1024.0)
    there = pinned.to(DEVICE, non_blocking=True)
    back = (there * 2).to("cpu", non_blocking=True)
    if DEVICE == "tpu":
        assert pinned.is_pinned()
        torch.tpu.synchronize()
    same(back, torch.arange(1024.0) * 2)


def test_the_source_may_change_after_a_copy():
    host = torch.ones(1 << 16)
    there = host.to(DEVICE, non_blocking=True, copy=True)
    if DEVICE == "tpu":
        torch.tpu.synchronize()
    host.zero_()
    assert there.sum().item() == 1 << 16


def test_contiguous_and_memory_formats():
    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    check(lambda t: t.contiguous(memory_format=torch.channels_last), x)
    check(lambda t: t.permute(0, 2, 3, 1).contiguous(), x)
    y = x.to(DEVICE, memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_complex():
    x = torch.tensor([1 + 2j, 3 - 4j])
    check(lambda t: (t.real, t.imag, t.conj() * 2, t.abs(), torch.view_as_real(t)), x)
    check(lambda t: torch.view_as_complex(t), torch.ones(3, 2))


def test_copy_keeps_conj_and_neg():
    x = torch.tensor([1 + 2j, 3 - 4j], device=DEVICE)
    assert x.conj().cpu().tolist() == [1 - 2j, 3 + 4j]
    assert x.conj().imag.cpu().tolist() == [-2, 4]
    assert x.conj().clone().resolve_conj().tolist() == [1 - 2j, 3 + 4j]


def test_lazy_clone_is_a_clone():
    """What copies on write put a context of its own where ours was, and the process died."""

    def run(x):
        window = x[1:, ::2]
        copy = torch._lazy_clone(window)
        copy += 1
        grown = torch._lazy_clone(x)
        x.mul_(3)
        return copy, grown, x, window

    x = torch.arange(12.0).reshape(3, 4)
    check(run, x)
    there = torch._lazy_clone(x.to(DEVICE)[1:, ::2])
    here = torch._lazy_clone(x[1:, ::2])
    assert there.stride() == here.stride() and there.storage_offset() == here.storage_offset()
    leaf = x.to(DEVICE).requires_grad_()
    torch._lazy_clone(leaf).sum().backward()
    assert torch.equal(leaf.grad.cpu(), torch.ones(3, 4))


SEQUENCES = [
    lambda out: torch.arange(6, out=out),
    lambda out: torch.arange(0, 6, out=out),
    lambda out: torch.range(0, 5, out=out),
    lambda out: torch.linspace(1, 6, 6, out=out),
    lambda out: torch.linspace(torch.tensor(1.0), 6, 6, out=out),
    lambda out: torch.logspace(0, 5, 6, 2, out=out),
]
WINDOWS = [
    lambda base: base[:, 1],
    lambda base: base[1:3, 2:5],
    lambda base: base[:3, :2].t(),
    lambda base: base.view(-1)[3:9],
    lambda base: base.view(-1)[::2][:6],
    lambda base: base[0],
    lambda base: base[0:0],
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("make", SEQUENCES)
@pytest.mark.filterwarnings("ignore")
def test_a_sequence_fills_a_window(make, window, dtype):
    """An out= tensor of as many elements keeps its sizes, and nothing beside it is written."""

    def run(base):
        target = window(base)
        result = make(target)
        assert result is target
        shape = torch.tensor([*target.shape, *target.stride(), target.storage_offset()])
        return base, target, shape.to(base.device)

    check(run, torch.full((6, 7), -1, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize(("start", "end", "steps"), [(1, 127, 50), (0, 100, 7), (9, 1, 33)])
def test_linspace_of_integers(start, end, steps, dtype):
    there = torch.linspace(start, end, steps, dtype=dtype, device=DEVICE)
    assert torch.equal(there.cpu(), torch.linspace(start, end, steps, dtype=dtype))
    torch.linspace(start, end, steps, out=there)
    assert torch.equal(there.cpu(), torch.linspace(start, end, steps, dtype=dtype))


UNINITIALISED = {
    "empty": lambda d, t: torch.empty(2, 3, device=d, dtype=t),
    "empty_strided": lambda d, t: torch.empty_strided((2, 3), (1, 2), device=d, dtype=t),
    "empty_permuted": lambda d, t: torch.empty_permuted((2, 3), (1, 0), device=d, dtype=t),
    "empty_like": lambda d, t: torch.empty_like(torch.ones(3, device=d, dtype=t)),
    "new_empty": lambda d, t: torch.ones(3, device=d, dtype=t).new_empty(2),
    "resize_": lambda d, t: torch.ones(3, device=d, dtype=t).resize_(2, 4),
    "resize_ of a window": lambda d, t: torch.ones(6, device=d, dtype=t)[2:4].resize_(7),
    "a smaller resize_": lambda d, t: torch.ones(6, device=d, dtype=t).resize_(2),
    "out=": lambda d, t: torch.cat([torch.ones(3, device=d, dtype=t)], out=_empty(d, t)),
}


def _empty(device, dtype):
    return torch.empty(0, device=device, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32,
                                   torch.bool, torch.float8_e5m2], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", UNINITIALISED)
def test_uninitialised_memory_is_filled(name, dtype):
    """Where algorithms are to be deterministic."""
    run = UNINITIALISED[name]
    torch.use_deterministic_algorithms(True)
    try:
        there, here = run(DEVICE, dtype), run("cpu", dtype)
    finally:
        torch.use_deterministic_algorithms(False)
    assert there.stride() == here.stride()
    if dtype == torch.float8_e5m2:  # has several NaNs
        there, here = there.float(), here.float()
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("strides", [(12, 4, 1), (2, 4, 6), (0, 0, 0)])
def test_strides_of_nothing(strides):
    x = torch.empty_strided((0, 2, 0), strides, device=DEVICE)
    assert x.stride() == strides and (x + 1).shape == (0, 2, 0)
