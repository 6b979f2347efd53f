"""Several devices of a process: virtual ones of the CPU plugin or of the accelerator-like one."""

import os

import pytest
from support import only_tpu, python, slow_but

pytestmark = only_tpu
SEVERAL = {
    "TORCH_TPU_PLUGIN": os.environ.get("TORCH_TPU_PLUGIN", "cpu"),
    "TORCH_TPU_CPU_DEVICES": "3",
    "TT_ACCEL_DEVICES": "3",
}


@pytest.fixture(autouse=True)
def several():
    """Plugins of real devices cannot be asked for three."""
    import torch

    import torch_tpu._C as glue

    torch.tpu.init()
    if glue.platform() not in ("cpu", "accel") and torch.tpu.device_count() < 3:
        pytest.skip(f"{glue.platform()} has {torch.tpu.device_count()} devices")


def run(code, **environment):
    code, out, err = python("import torch\n" + code, **{**SEVERAL, **environment})
    assert code == 0, err
    return out


@pytest.mark.parametrize("mode", slow_but(["debug", "strict", "fused"], "strict"))
def test_operators_and_the_current_device(mode):
    run(
        """
assert torch.tpu.device_count() == 3
x = [torch.full((4,), float(i), device=f"tpu:{i}") for i in range(3)]
y = [one * 2 + 1 for one in x]
assert [str(one.device) for one in y] == ["tpu:0", "tpu:1", "tpu:2"]
assert [one[0].item() for one in y] == [1.0, 3.0, 5.0]
with torch.tpu.device(2):
    assert torch.ones(2, device="tpu").device.index == 2
    with torch.tpu.device(1):
        assert torch.tpu.current_device() == 1
assert torch.tpu.current_device() == 0
torch.tpu.set_device(1)
assert torch.rand(3, device="tpu").device.index == 1
try:
    x[0] + x[1]
except RuntimeError as error:
    assert "same device" in str(error)
else:
    raise AssertionError
""",
        TORCH_TPU_EAGER_MODE=mode,
    )


@pytest.mark.parametrize("copies", slow_but([300, 10_000], 300))
def test_copies_between_devices_leave_the_host_alone(copies):
    run(
        f"copies = {copies}"
        """
import ctypes
import torch_tpu._C as glue

x = torch.arange(24.0, device="tpu:0").view(4, 6)
count = getattr(ctypes.CDLL(glue.plugin_path()), "tt_accel_count", None)  # by the plugin
before = [count(what) for what in (b"h2d", b"d2h", b"d2d")] if count else []
torch.tpu.reset_metrics()
for i in range(copies):
    x = x.to(f"tpu:{(i + 1) % 3}")
torch.tpu.synchronize(x.device)
metrics = torch.tpu.metrics()
assert metrics["reads"] == 0 and metrics["writes"] == 0, metrics
assert metrics["transfers"] == copies
after = [count(what) for what in (b"h2d", b"d2h", b"d2d")] if count else []
assert not count or after == [*before[:2], before[2] + copies], (before, after)
assert torch.equal(x.cpu(), torch.arange(24.0).view(4, 6))
y = torch.zeros(6, 4, dtype=torch.float64, device="tpu:2")
y.copy_(x.t())
assert torch.equal(y.cpu(), torch.arange(24.0).view(4, 6).t().double())
y[1:3] = x[0, :4].to("tpu:2")
assert y[2].tolist() == [0.0, 1.0, 2.0, 3.0]
"""
    )


@pytest.mark.parametrize("mode", slow_but(["strict", "fused"], "fused"))
def test_a_model_split_over_two_devices_trains_as_on_one(mode):
    run(
        """
import torch.nn as nn
def losses(first, second):
    torch.manual_seed(0)
    a, b = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 4)
    a.to(first), b.to(second)
    optimizer = torch.optim.AdamW([*a.parameters(), *b.parameters()], lr=1e-2)
    found = []
    for step in range(12):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 8, generator=generator)
        target = torch.randint(4, (16,), generator=generator)
        out = b(a(x.to(first)).to(second))
        loss = nn.functional.cross_entropy(out, target.to(second))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
assert losses("tpu:0", "tpu:1") == losses("tpu:0", "tpu:0")
""",
        TORCH_TPU_EAGER_MODE=mode,
    )


def test_random_state_and_memory_are_a_devices_own():
    run(
        """
torch.manual_seed(5)
a, b = torch.rand(4, device="tpu:0"), torch.rand(4, device="tpu:1")
assert torch.equal(a.cpu(), b.cpu())
torch.tpu.synchronize()
before = torch.tpu.memory_allocated(2)
x = torch.ones(1 << 16, device="tpu:2") * 2
torch.tpu.synchronize(2)
assert torch.tpu.memory_allocated(2) - before >= 1 << 18
"""
    )


def test_threads_with_devices_of_their_own():
    run(
        """
import threading
results = {}
def work(index):
    torch.tpu.set_device(index)
    x = torch.ones(8, device="tpu", requires_grad=True)
    for _ in range(50):
        (x * x).sum().backward()
    results[index] = x.grad.cpu()
threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
assert all(torch.equal(results[i], torch.full((8,), 100.0)) for i in range(3))
"""
    )


def test_a_graph_on_another_device():
    run(
        """
torch.tpu.set_device(1)
x = torch.zeros(3, device="tpu")
graph = torch.tpu.Graph()
with torch.tpu.graph(graph):
    x.add_(1)
torch.tpu.set_device(0)
y = torch.ones(2, device="tpu") + 1
graph.replay()
graph.replay()
assert x.tolist() == [2.0] * 3 and y.tolist() == [2.0] * 2
"""
    )


def test_each_device_has_a_current_stream():
    run(
        """
first, second = torch.tpu.Stream(0), torch.tpu.Stream(1)
with torch.tpu.stream(first), torch.tpu.stream(second):
    assert torch.tpu.current_stream(0) == first
    assert torch.tpu.current_stream(1) == second
    assert torch.tpu.current_stream(2) == torch.tpu.default_stream(2)
for i in range(3):
    assert torch.tpu.current_stream(i) == torch.tpu.default_stream(i)
"""
    )
