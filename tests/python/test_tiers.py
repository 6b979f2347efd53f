"""What chunks are launched as in Fused mode: operators, pieces, or whole; the numbers are equal."""

import subprocess
import sys
import time

import pytest
import torch
from conftest import TIERS
from support import DEVICE
from torch import nn

import torch_tpu._C as glue

pytestmark = pytest.mark.skipif(DEVICE != "tpu", reason="about Fused mode")


@pytest.fixture(autouse=True)
def fused():
    with torch.tpu.set_eager_mode("fused"):
        yield


def train(device, steps=4):
    """Returns the losses of a small model of equal layers, and its weights."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(11, 16), *layers, nn.Linear(16, 11)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randint(0, 11, (3, 5)).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("tier", TIERS)
def test_training_is_the_cpu_s_in_every_tier(tier):
    glue._force_tier(TIERS.index(tier))
    try:
        losses, weights = train("tpu")
    finally:
        glue._force_tier(TIERS.index("auto"))
    expected, expected_weights = train("cpu")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    for got, one in zip(weights, expected_weights, strict=True):
        torch.testing.assert_close(got, one, rtol=1e-3, atol=1e-5)


def launched_as(fn):
    """Returns how many operators were launched in each tier meanwhile."""
    torch.tpu.synchronize()
    before = torch.tpu.metrics()["tiers"]
    fn()
    torch.tpu.synchronize()
    return {name: n - before[name] for name, n in torch.tpu.metrics()["tiers"].items()}


@pytest.mark.tier("auto")
def test_a_chunk_s_own_program_is_taken_when_it_is_ready():
    x, weight = torch.rand(7, 23, device="tpu"), torch.rand(23, 23, device="tpu")

    def step():
        return torch.softmax((x @ weight).tanh() * 2, -1).sum().item()

    first = launched_as(step)
    assert first["chunks"] == 0 and first["operators"] >= 2, first
    deadline = time.monotonic() + 60
    while not launched_as(step)["chunks"] and time.monotonic() < deadline:
        pass
    assert launched_as(step) == {"operators": 0, "pieces": 0, "chunks": sum(first.values())}


@pytest.mark.tier("auto")
def test_explain_says_what_was_waited_for():
    x = torch.rand(3, 29, device="tpu")
    torch.linalg.vector_norm(x.logsumexp(0)).item()
    assert "waited: " in torch.tpu.explain()
    assert " ms for the program of aten::" in torch.tpu.explain()


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_bits_do_not_depend_on_where_the_stream_was_cut(deterministic):
    x, weight = torch.rand(37, 64).to("tpu"), torch.rand(64, 64).to("tpu")

    def run(read):
        y = x
        for i in range(12):
            y = torch.softmax(y @ weight, -1) + x.sum(1, keepdim=True) / 7
            if i in read:
                y.sum().item()
        return y.cpu()

    expected = run(())
    for read in ((3,), (0, 1, 2), (11,), (), tuple(range(12))):
        assert torch.equal(run(read), expected), read


def test_gradcheck_finds_a_backward_reentrant(deterministic):
    torch.manual_seed(0)
    x = torch.rand(5, 6, dtype=torch.float64).to("tpu").requires_grad_()
    w = torch.rand(6, 6, dtype=torch.float64).to("tpu").requires_grad_()

    def function(x, w):
        y = torch.tanh(x @ w)
        for _ in range(3):
            y = torch.softmax(y @ w, -1) * y.sum(0)
        return y

    assert torch.autograd.gradcheck(function, (x, w), nondet_tol=0.0)


SHORT = """
import torch
torch.tpu.eager_mode = "fused"
x = torch.rand(64, 64, device="tpu")
for _ in range(3):
    y = x
    for i in range(60):
        y = torch.softmax(y @ x, -1).tanh() * (i + 1)
    y.sum().item()
print("done", flush=True)
"""


def test_a_process_ends_while_a_compiler_runs_in_the_background(monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CACHE", "off")
    done = subprocess.run(
        [sys.executable, "-c", SHORT], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "done\n"
    assert done.stderr == ""
