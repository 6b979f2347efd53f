"""The examples run, and agree with the CPU."""

import subprocess
import sys

import pytest
from support import DEVICE, ROOT

pytestmark = pytest.mark.slow


def run(name, *args, launcher=()):
    done = subprocess.run(
        [sys.executable, *launcher, f"examples/{name}", "--device", DEVICE, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_train_and_generate(tmp_path):
    out = run("train_gpt.py", "--steps", "6", "--batch", "4", "--out", str(tmp_path))
    assert "they agree" in out and (tmp_path / "train_gpt.png").stat().st_size > 5000
    out = run("generate_kv.py", "--length", "12", "--weights", str(tmp_path / "gpt.pt"))
    assert "as on the CPU: True" in out


def test_two_processes(tmp_path):
    torchrun = "-m", "torch.distributed.run", "--nproc-per-node=2"
    options = "--steps", "6", "--batch", "4", "--out", str(tmp_path)
    out = run("train_distributed.py", *options, launcher=torchrun)
    assert "2 processes and" in out and "they agree" in out
    assert (tmp_path / "train_distributed.png").stat().st_size > 5000


def test_digits():
    assert "unseen digits" in run("mnist_cnn.py", "--epochs", "6")
