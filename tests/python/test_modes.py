"""Eager modes, errors at the right place and of the right type, metrics, work on the host."""

import os
import threading

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, modes, only_tpu, python, raises_alike, slow_but


@only_tpu
def test_eager_mode_is_a_property():
    mode = torch.tpu.EagerMode
    assert torch.tpu.eager_mode is mode.FUSED or "TORCH_TPU_EAGER_MODE" in os.environ
    torch.tpu.eager_mode = mode.DEBUG
    assert torch.tpu.eager_mode is mode.DEBUG is mode.DEFER_NEVER_AND_LAUNCH_BLOCKING
    torch.tpu.eager_mode = "strict"
    assert torch.tpu.eager_mode is mode.STRICT is mode.DEFER_NEVER
    assert mode.FUSED is mode.DEFER_AND_FUSE
    with torch.tpu.set_eager_mode(mode.DEBUG):
        assert torch.tpu.eager_mode is mode.DEBUG
        with torch.tpu.set_eager_mode("strict"):
            assert torch.tpu.eager_mode is mode.STRICT
        assert torch.tpu.eager_mode is mode.DEBUG
    assert torch.tpu.eager_mode is mode.STRICT
    with pytest.raises(ZeroDivisionError), torch.tpu.set_eager_mode(mode.DEBUG):
        _ = 1 / 0
    assert torch.tpu.eager_mode is mode.STRICT
    with pytest.raises(ValueError, match="debug, strict, fused"):
        torch.tpu.eager_mode = "swift"

    @torch.tpu.set_eager_mode("debug")
    def inside():
        return torch.tpu.eager_mode

    assert inside() is mode.DEBUG


@only_tpu
@pytest.mark.filterwarnings("error")
def test_a_block_that_nobody_enters():
    blocks = [torch.tpu.no_recompile, lambda: torch.tpu.set_eager_mode("fused")]
    for block in (*blocks, lambda: torch.tpu.precision("high")):
        with pytest.warns(RuntimeWarning, match=r"does nothing by itself: write `with torch.tpu"):
            block()
        with block():
            pass
        block()(lambda: None)
    with pytest.raises(ValueError, match="swift"):
        torch.tpu.set_eager_mode("swift")


@only_tpu
def test_the_environment_chooses_how_operators_run():
    code = (
        "import torch\n"
        "torch.arange(8.0, device='tpu').add(1).mul(2).cpu()\n"
        "print(torch.tpu.eager_mode.name, torch.tpu.host_fallback, torch.tpu.metrics()['chunks'])"
    )
    for mode, policy, chunks in (("strict", "warn", 0), ("fused", "error", 1)):
        env = {"TORCH_TPU_EAGER_MODE": mode, "TORCH_TPU_HOST_FALLBACK": policy}
        assert python(code, **env) == (0, f"{mode.upper()} {policy} {chunks}\n", "")


@only_tpu
@pytest.mark.parametrize(
    "variable",
    slow_but(["TORCH_TPU_EAGER_MODE", "TORCH_TPU_HOST_FALLBACK"], "TORCH_TPU_HOST_FALLBACK"),
)
def test_a_word_that_the_environment_may_not_say(variable):
    status, _, warning = python(
        "import torch; assert not hasattr(torch, 'tpu')", fresh=True, **{variable: "swift"}
    )
    assert (status, f"{variable}: " in warning) == (0, True)


@only_tpu
@pytest.mark.parametrize("mode", modes())
def test_modes_compute_the_same(mode):
    with torch.tpu.set_eager_mode(mode):
        x = torch.arange(12.0, device="tpu").reshape(3, 4)
        x[1].mul_(2)
        y = (x @ x.t()).softmax(-1)
        host = torch.arange(12.0).reshape(3, 4)
        host[1].mul_(2)
        torch.testing.assert_close(y.cpu(), (host @ host.t()).softmax(-1))


BAD_INDEX = {
    "index": lambda d: torch.arange(4.0, device=d)[torch.tensor([1, 4], device=d)],
    "index_select": lambda d: torch.arange(4.0, device=d).index_select(
        0, torch.tensor([9], device=d)
    ),
    "gather": lambda d: torch.ones(2, 3, device=d).gather(1, torch.tensor([[5]], device=d)),
    "embedding": lambda d: F.embedding(torch.tensor([7], device=d), torch.ones(5, 2, device=d)),
    "nll_loss": lambda d: F.cross_entropy(torch.ones(1, 3, device=d), torch.tensor([3], device=d)),
    "scatter": lambda d: torch.zeros(3, device=d).scatter(0, torch.tensor([3], device=d), 1.0),
    "index_add": lambda d: torch.zeros(3, device=d).index_add(
        0, torch.tensor([-5], device=d), torch.ones(1, device=d)
    ),
    "one_hot": lambda d: F.one_hot(torch.tensor([4], device=d), 3),
}


@only_tpu
@pytest.mark.parametrize("name", BAD_INDEX)
def test_debug_finds_an_index_out_of_range_at_its_line(name):
    with pytest.raises((IndexError, RuntimeError)) as expected:
        BAD_INDEX[name]("cpu")
    with torch.tpu.set_eager_mode("debug"), pytest.raises(expected.type) as actual:
        BAD_INDEX[name]("tpu")
    assert str(actual.value)
    assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2]  # the device goes on


@only_tpu
def test_a_tensor_outlives_a_refused_write():
    x, index = torch.zeros(3, device="tpu"), torch.tensor([5], device="tpu")
    with torch.tpu.set_eager_mode("debug"):
        with pytest.raises(IndexError):
            x[index] = 1
        assert x.tolist() == [0, 0, 0]
        x.add_(1)
    assert x.tolist() == [1, 1, 1]


@only_tpu
def test_strict_does_not_crash_on_a_bad_index():
    x = torch.arange(4.0, device="tpu")
    x[torch.tensor([2, 100], device="tpu")].cpu()
    assert (x + 1).tolist() == [1, 2, 3, 4]


ERRORS = {
    "shapes": (lambda a, b: a + b, [(2, 3), (4, 5)]),
    "matmul": (lambda a, b: a @ b, [(2, 3), (2, 3)]),
    "view": (lambda a: a.view(7), [(2, 3)]),
    "dim": (lambda a: a.sum(5), [(2, 3)]),
    "select": (lambda a: a[9], [(2, 3)]),
    "cat": (lambda a, b: torch.cat([a, b]), [(2, 3), (2, 4)]),
    "stack": (lambda a, b: torch.stack([a, b]), [(2, 3), (2, 4)]),
    "item": (lambda a: a.item(), [(2, 3)]),
    "bool": (lambda a: bool(a), [(2, 3)]),
    "cast": (lambda a: a.add_(1j), [(2, 3)]),
    "in-place shape": (lambda a, b: a.add_(b), [(3,), (2, 3)]),
    "conv channels": (lambda a, b: F.conv2d(a, b), [(1, 3, 4, 4), (2, 5, 3, 3)]),
    "linear": (lambda a, b: F.linear(a, b), [(2, 3), (4, 5)]),
    "layer norm": (lambda a: F.layer_norm(a, (5,)), [(2, 3)]),
    "no gradient": (lambda a: a.backward(), [()]),
    "softmax dim": (lambda a: a.softmax(3), [(2, 3)]),
    "expand": (lambda a: a.expand(4, 3), [(2, 3)]),
    "permute": (lambda a: a.permute(0, 0), [(2, 3)]),
    "index dtype": (lambda a: a[a], [(2, 3)]),
    "bitwise": (lambda a: a & 1, [(2, 3)]),
    "empty max": (lambda a: a.max(), [(0,)]),
    "negative size": (lambda a: torch.zeros(-1, device=a.device), [()]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_the_cpu_s_type(name):
    function, shapes = ERRORS[name]
    error = raises_alike(function, *(torch.ones(shape) for shape in shapes))
    assert str(error)


@only_tpu
def test_devices_do_not_mix():
    with pytest.raises(RuntimeError):
        (torch.ones(2, device="tpu") + torch.ones(2)).cpu()
    assert (torch.ones(2, device="tpu") + torch.tensor(1.0)).tolist() == [2, 2]
    with pytest.raises(RuntimeError):
        torch.nn.Linear(2, 2)(torch.ones(1, 2, device="tpu"))


@only_tpu
def test_metrics():
    torch.tpu.reset_metrics()
    x = torch.ones(3, device="tpu")
    for _ in range(5):
        x = x * 1.5
    x.cpu()
    metrics = torch.tpu.metrics()
    assert metrics and all(isinstance(name, str) for name in metrics)


@only_tpu
def test_a_loop_stops_compiling():
    def step(x, rate):
        return (x * rate + 0.1).tanh()

    torch.tpu.eager_mode = "strict"  # test_kernels.py has the same of Fused
    x = torch.ones(4, device="tpu")
    for i in range(3):
        x = step(x, 0.5 + 0.1 * i)
    torch.tpu.synchronize()
    before = {k: v for k, v in torch.tpu.metrics().items() if "compil" in k and isinstance(v, int)}
    for i in range(10):
        x = step(x, 0.01 * i + 2.5)
    torch.tpu.synchronize()
    after = {k: v for k, v in torch.tpu.metrics().items() if k in before}
    assert before and after == before


@only_tpu
def test_host_fallback_is_a_choice():
    assert torch.tpu.host_fallback in ("warn", "silent", "error")
    torch.tpu.host_fallback = "silent"
    assert torch.tpu.host_fallback == "silent"
    with torch.tpu.set_host_fallback("error"):
        assert torch.tpu.host_fallback == "error"
    assert torch.tpu.host_fallback == "silent"
    with pytest.raises((ValueError, RuntimeError)):
        torch.tpu.host_fallback = "loud"


def test_data_dependent_shapes():
    x = torch.tensor([3.0, -1.0, 2.0, 0.0], device=DEVICE)
    assert x[x > 0].tolist() == [3, 2]
    assert x.nonzero().tolist() == [[0], [1], [2]]
    assert torch.unique(torch.tensor([2, 1, 2], device=DEVICE)).tolist() == [1, 2]
    assert torch.masked_select(x, x < 1).tolist() == [-1, 0]
    assert torch.repeat_interleave(torch.tensor([2, 1], device=DEVICE)).tolist() == [0, 0, 1]


@only_tpu
def test_blocks_of_threads_that_overlap_leave_nothing():
    before = torch.tpu.eager_mode
    entered, left, seen = threading.Event(), threading.Event(), []

    def first():
        with torch.tpu.set_eager_mode("debug"):
            entered.wait()
        left.set()

    def second():
        with torch.tpu.set_eager_mode("fused"):
            entered.set()
            left.wait()
            seen.append(torch.tpu.eager_mode.name)

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["FUSED"] and torch.tpu.eager_mode == before


# -- Waits --


@only_tpu
def test_waits_are_told():
    x = torch.ones(3, device="tpu")
    assert torch.tpu.get_sync_debug_mode() == 0
    try:
        torch.tpu.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match=r"waits for a tensor's value at .*test_modes.py:\d+"):
            x.sum().item()
        torch.tpu.set_sync_debug_mode(2)
        assert torch.tpu.get_sync_debug_mode() == 2
        for wait in (lambda: x.cpu(), lambda: x.nonzero(), lambda: str(x), lambda: bool(x[0])):
            with pytest.raises(RuntimeError, match=r"at .*test_modes.py:\d+ .*set_sync_debug"):
                wait()
        y = x + 1
        torch.tpu.synchronize()
    finally:
        torch.tpu.set_sync_debug_mode("default")
    assert y.tolist() == [2, 2, 2]
    for wrong in ("loud", 3):
        with pytest.raises(ValueError, match=str(wrong)):
            torch.tpu.set_sync_debug_mode(wrong)
