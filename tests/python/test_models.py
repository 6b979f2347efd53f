"""The models among the examples train on the device as they do on the CPU."""

import functools
import importlib
import subprocess
import sys

import pytest
import torch
from support import DEVICE, ROOT, modes

FOLDER = ROOT / "examples" / "models"
STEPS = 20
NAMES = ("resnet", "unet", "lstm", "vit", "bert", "diffusion")
QUICK = {("bert", "fused")}


def cases():
    for name in NAMES:
        for mode in [mode for mode in modes() if mode != "debug"]:
            # Chunks of whole models take the compiler longer than all of their operators.
            quick = (name, mode) in QUICK
            yield pytest.param(name, mode, marks=[] if quick else [pytest.mark.slow])


@pytest.fixture
def trainer(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small tensors are not worth waiting for other threads
    yield importlib.import_module("trainer")
    torch.set_num_threads(threads)


@functools.cache
def reference(name):
    trainer, model = importlib.import_module("trainer"), importlib.import_module(name)
    return trainer.train(model.TASK, "cpu", STEPS)


@pytest.mark.parametrize(("name", "mode"), cases())
def test_losses(name, mode, trainer, no_host):
    expected = reference(name)
    assert min(expected) < 0.9 * expected[0]
    if DEVICE == "tpu":
        torch.tpu.eager_mode = mode
    actual = trainer.train(importlib.import_module(name).TASK, DEVICE, STEPS)
    assert trainer.difference(actual, expected) <= trainer.TOLERANCE, (actual, expected)


@pytest.mark.slow
def test_command_line():
    command = [sys.executable, FOLDER / "vit.py", "--device", DEVICE, "--steps", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "losses differ by at most" in done.stdout
