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


def gradients(task, device, compiled=False):
    """Of a new model's loss of one batch, by parameter."""
    torch.manual_seed(7)
    model = task.model().to(device).train()
    if compiled:
        model.compile(fullgraph=True)
    batch = [one.to(device) for one in task.batch(torch.Generator().manual_seed(7))]
    task.loss(model, *batch).backward()
    return {name: one.grad for name, one in model.named_parameters()}


def compiled_model(task):
    model = task.model()
    model.compile(fullgraph=True)
    return model


@pytest.mark.parametrize("name", MODELS)
@torch._dynamo.config.patch(allow_rnn=True)  # it leaves recurrent layers alone otherwise
def test_trained(name, trainer):
    """Each is a program forward and one backward, without a break of the graph."""
    task = importlib.import_module(name).TASK
    expected, known = gradients(task, "cpu"), set(compiler.compiled())
    actual = gradients(task, DEVICE, compiled=True)
    eager = gradients(task, DEVICE)
    largest = max(float(one.abs().max()) for one in expected.values())
    limits = {"rtol": 1e-3, "atol": 1e-5 * largest}
    same(actual, expected, **limits)
    same(actual, eager, **limits)
    made = [(one.programs, one.why) for one in compiler.compiled() if one not in known]
    assert made == [(1, "")] * 2
    torch._dynamo.reset()
    compiled = dataclasses.replace(task, model=lambda: compiled_model(task))
    losses = trainer.train(compiled, DEVICE, steps=4)
    difference = trainer.difference(losses, trainer.train(task, "cpu", steps=4))
    assert difference <= trainer.TOLERANCE
