"""Convolutions that programs order of PyTorch (core/kernels), and those that XLA computes."""

import threading

import pytest
import torch
from support import alone, check, check_gradients, only_tpu, python, slow_but
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = only_tpu
left_to_pytorch = pytest.mark.cpu_plugin("only its programs call PyTorch")
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-2, torch.float64: 1e-9}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
# The kernel's size, the input's, arguments: small ones, and one for several threads.
CASES = {
    "conv1d": ((6, 2, 4), (2, 4, 9), {"stride": 2, "padding": 3, "groups": 2}),
    "conv2d": ((6, 4, 3, 2), (2, 4, 9, 8), {"stride": (2, 1), "padding": (1, 0), "dilation": 2}),
    "conv2d of channels": ((8, 1, 3, 3), (3, 4, 7, 7), {"padding": 1, "groups": 4}),
    "conv2d by several threads": ((64, 64, 3, 3), (4, 64, 24, 24), {"padding": 1}),
    "conv3d": ((4, 3, 2, 3, 1), (1, 3, 4, 5, 3), {"stride": (1, 2, 1), "padding": 1}),
    "conv_transpose1d": ((4, 3, 4), (2, 4, 5), {"stride": 3, "padding": 1, "output_padding": 2}),
    "conv_transpose2d": ((4, 3, 3, 3), (2, 4, 5, 5), {"stride": (2, 1), "groups": 2}),
    "conv_transpose3d": ((2, 3, 2, 2, 2), (2, 2, 3, 3, 3), {"stride": 2, "dilation": 2}),
}


def programs(function, *args):
    """What a function is compiled to, and its gradient, if it has one."""
    compiled = torch.compile(lambda *args: function(*args))
    before = len(torch.tpu.compiler.inspect(compiled).programs)  # of equal code
    got = compiled(*args)
    if got.requires_grad:
        got.sum().backward()
    return torch.tpu.compiler.inspect(compiled).programs[before:]


def called(function, *args):
    """The convolutions that these programs leave to PyTorch."""
    texts = [one.stablehlo for one in programs(function, *args)]
    names = "convolution", "convolution_backward"
    return {name for name in names for text in texts if f'"aten::{name}_overrideable"' in text}


@left_to_pytorch
@pytest.mark.parametrize("dtype", slow_but(TOLERANCES, torch.float32), ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("name", CASES)
def test_numbers_and_gradients_are_the_cpus(name, last, dtype):
    kernel, size, arguments = CASES[name]
    if last and len(size) not in LAST:
        pytest.skip("there is no such format")
    convolve = getattr(torch.nn.functional, name.split()[0])
    x, w = torch.randn(size, dtype=dtype), torch.randn(kernel, dtype=dtype)
    channels = kernel[1] * arguments.get("groups", 1) if "transpose" in name else kernel[0]
    bias = torch.randn(channels, dtype=dtype, requires_grad=True)
    if last:
        x, w = (one.to(memory_format=LAST[len(size)]) for one in (x, w))
    error = TOLERANCES[dtype]
    tolerance = {"rtol": error, "atol": error * w[0].numel()}
    check(lambda x, w: convolve(x, w, **arguments), x, w, tolerance=tolerance)
    x, w = x.requires_grad_(), w.requires_grad_()
    check_gradients(lambda x, w, b: convolve(x, w, b, **arguments), x, w, bias, tolerance=tolerance)


@left_to_pytorch
def test_programs_call_pytorchs():
    x, w = torch.ones(2, 3, 8, 8, device="tpu"), torch.ones(4, 3, 3, 3, device="tpu")
    assert called(torch.conv2d, x, w) == {"convolution"}
    trained = w.clone().requires_grad_()
    assert called(torch.conv2d, x, trained) == {"convolution", "convolution_backward"}
    assert not called(torch.conv2d, x.long(), w.long())
    assert not called(torch.conv2d, x[:0], w)


@left_to_pytorch
@pytest.mark.parametrize("last", ["x", "w", "both"])
def test_channels_that_lie_last_are_handed_over_so(last):
    x, w = torch.randn(2, 8, 6, 6), torch.randn(4, 8, 3, 3)
    x = x.to(memory_format=torch.channels_last) if last != "w" else x
    w = w.to(memory_format=torch.channels_last) if last != "x" else w
    got, wanted = torch.conv2d(x.to("tpu"), w.to("tpu")), torch.conv2d(x, w)
    assert got.stride() == wanted.stride()
    torch.testing.assert_close(got.cpu(), wanted)
    [one] = programs(torch.conv2d, x.to("tpu"), w.to("tpu"))
    assert one.optimized.count(" copy(") == (0 if last == "both" else 1)


class Refusing(TorchDispatchMode):
    """Lets nobody compute on the CPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        assert all(one.device.type == "tpu" for one in tensors), func
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("mode", ["debug", "strict"])
def test_what_surrounds_a_launch_is_not_about_its_convolutions(mode):
    x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    a, b = x.to("tpu"), w.to("tpu")
    wanted = torch.conv2d(x, w)
    with torch.tpu.set_eager_mode(mode):
        with Refusing():
            got = torch.conv2d(a, b)
        with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
            under_autocast = torch.conv2d(a, b)
        with torch.device("meta"):
            under_device = torch.conv2d(a, b)
        mapped = torch.vmap(torch.conv2d, in_dims=(0, None))(a[None], b)[0]
    for one in (got, under_autocast, under_device, mapped):
        torch.testing.assert_close(one.cpu(), wanted)


def test_many_threads_convolve_at_once():
    cases = [(torch.randn(4, 64, n, n), torch.randn(64, 64, 3, 3)) for n in (4, 6, 24, 26)]
    before, failed = torch.get_num_threads(), []

    def work(x, w):
        wanted, a, b = torch.conv2d(x, w), x.to("tpu"), w.to("tpu")
        for _ in range(20):
            if not torch.allclose(torch.conv2d(a, b).cpu(), wanted, atol=1e-3):
                failed.append(x.shape)

    threads = [threading.Thread(target=work, args=one) for one in cases]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed and torch.get_num_threads() == before


def test_a_process_may_end_while_it_convolves():
    code = """
import torch
x, w = torch.randn(16, 64, 64, 64).to("tpu"), torch.randn(64, 64, 3, 3).to("tpu")
for _ in range(50):
    x = torch.conv2d(x, w, padding=1) * 1e-2
"""
    assert python(code) == (0, "", "")


def compare(names):
    """Runs cases as the CPU does; returns what is left to PyTorch."""
    for name in names:
        kernel, size, arguments = CASES[name]
        convolve = getattr(torch.nn.functional, name.split()[0])
        x, w = torch.randn(size, requires_grad=True), torch.randn(kernel, requires_grad=True)
        close = {"rtol": 1e-4, "atol": 1e-4 * w[0].numel()}
        check_gradients(
            lambda x, w, f=convolve, more=arguments: f(x, w, **more), x, w, tolerance=close
        )
    ones = torch.ones(1, 1, 3, 3, device="tpu")
    return [*called(torch.conv2d, ones, ones.requires_grad_())]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [["conv_transpose1d"], pytest.param([*CASES], marks=pytest.mark.slow)],
    ids=len,
)
def test_by_xla(names):
    assert alone(compare, names, TORCH_TPU_CONVOLUTIONS="xla") == []
