"""The models of the examples, trained through torch.compile: the CPU's losses and gradients."""

import dataclasses
import importlib
import sys

import pytest
import torch
from support import DEVICE, ROOT, only_tpu, same

from torch_tpu import compiler

FOLDER = ROOT / "examples" / "models"
MODELS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "trainer")
pytestmark = [only_tpu, pytest.mark.slow, pytest.mark.usefixtures("fresh_dynamo")]


@pytest.fixture
def trainer(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    return importlib.import_module("trainer")


def gradients(task, device, **options):
    """Of a new model's loss of one batch, by parameter."""
    torch.manual_seed(7)
    model = task.model().to(device).train()
    batch = [one.to(device) for one in task.batch(torch.Generator().manual_seed(7))]
    used = torch.compile(model, **options) if options else model
    task.loss(used, *batch).backward()
    return {name: one.grad for name, one in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_trained(name, trainer):
    """Each is a graph forward and one backward, without a break, and no operator runs alone."""
    task = importlib.import_module(name).TASK
    expected = gradients(task, "cpu")
    torch._dynamo.utils.counters.clear()
    actual = gradients(task, DEVICE, fullgraph=True)
    eager = gradients(task, DEVICE)
    largest = max(float(one.abs().max()) for one in expected.values())
    limits = {"rtol": 1e-3, "atol": 1e-5 * largest}
    same(actual, expected, **limits)
    same(actual, eager, **limits)
    assert not torch._dynamo.utils.counters["graph_break"]
    assert [(one.programs, one.why) for one in compiler.compiled()] == [(1, "")] * 2
    torch._dynamo.reset()
    compiled = dataclasses.replace(task, model=lambda: torch.compile(task.model()))
    losses = trainer.train(compiled, DEVICE, steps=4)
    difference = trainer.difference(losses, trainer.train(task, "cpu", steps=4))
    print(f"{name}: the largest difference of a loss is {difference:.1e} of it")
    assert difference <= trainer.TOLERANCE
