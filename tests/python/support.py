"""What the tests share: the device, and running one function on the CPU and on the device."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

# Naming "cpu" here checks the tests themselves.
DEVICE = os.environ.get("TORCHTPU_TEST_DEVICE", "tpu")
LOOSE = {"rtol": 1e-4, "atol": 1e-5}  # of what a compiler may compute in another order
TIERS = ("auto", "operators", "pieces", "kernels", "chunks")  # what chunks are launched as: tt_tier
ROOT = Path(__file__).resolve().parents[2]
TOLERANCES = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.complex64: {"rtol": 1e-4, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2},
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
}

only_tpu = pytest.mark.skipif(DEVICE != "tpu", reason="about torch.tpu itself")


def slow_but(cases, *quick):
    """The cases of a parametrized test, all of them slow but the ones that are named."""
    cases = list(cases)
    assert set(quick) <= set(cases), quick
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in cases]


def strides_that_matter(tensor):
    """Those of dims that have several elements."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in pairs if size > 1]


MODES = ("debug", "strict", "fused")


def modes():
    """The eager modes that this build has."""
    names = ["debug", "strict"]
    if DEVICE == "tpu":
        with (
            contextlib.suppress(NotImplementedError, RuntimeError),
            torch.tpu.set_eager_mode("fused"),
        ):
            names.append("fused")
    return names


def living(*lengths):
    """Texts of so many words: while they live, sizes equal to these are lengths, which vary."""
    return [torch.arange(n).to(DEVICE) for n in lengths]


def move(tree, device=None):
    """Copies the tensors of a tree to the device, as leaves that want gradients if theirs did."""

    def one(x):
        if not isinstance(x, torch.Tensor):
            return x
        return x.detach().clone().to(device or DEVICE).requires_grad_(x.requires_grad)

    return tree_map(one, tree)


def same(actual, expected, **tolerance):
    """Asserts that two trees are equal in structure, dtypes, shapes and, nearly, in values."""
    got, want = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, torch.Tensor):
            limits = tolerance or TOLERANCES.get(b.dtype, {})
            assert a.dtype == b.dtype and a.shape == b.shape
            a, b = a.detach().cpu(), b.detach().cpu()
            torch.testing.assert_close(a, b, equal_nan=True, **limits)
        else:
            assert a == b or (a != a and b != b)


def check(function, *args, tolerance=None, **kwargs):
    """Runs a function on the CPU and on the device and compares results and changed arguments.

    Returns the device's result, whose tensors must all lie on the device.
    """
    host_args, device_args = move((args, kwargs), "cpu"), move((args, kwargs))
    expected = function(*host_args[0], **host_args[1])
    actual = function(*device_args[0], **device_args[1])
    for leaf in tree_flatten(actual)[0]:
        if isinstance(leaf, torch.Tensor):
            assert leaf.device.type == DEVICE
    same(actual, expected, **(tolerance or {}))
    same(device_args, host_args, **(tolerance or {}))
    return actual


def check_gradients(function, *args, tolerance=None):
    """As `check`, and compares the gradients of the sum of all results as well."""
    pairs = []
    for device in ("cpu", DEVICE):
        moved = move(args, device)
        leaves = [x for x in tree_flatten(moved)[0] if isinstance(x, torch.Tensor)]
        leaves = [x for x in leaves if x.requires_grad]
        outputs = [x for x in tree_flatten(function(*moved))[0] if isinstance(x, torch.Tensor)]
        loss = sum((x * x).sum() for x in outputs if x.requires_grad)
        pairs.append((outputs, torch.autograd.grad(loss, leaves, allow_unused=True)))
    same(pairs[1][0], pairs[0][0], **(tolerance or {}))
    same(pairs[1][1], pairs[0][1], **(tolerance or {"rtol": 1e-3, "atol": 1e-4}))


def raises_alike(function, *args):
    """Asserts that a function raises the same type of exception on both devices; returns it."""
    with pytest.raises(Exception) as expected:
        function(*move(args, "cpu"))
    with pytest.raises(expected.type) as actual:
        result = function(*move(args))
        if isinstance(result, torch.Tensor):
            result.cpu()
    return actual.value


def counted(function, *names):
    """How much these metrics of the device grow while a function runs, and what it returns."""
    torch.tpu.synchronize()
    before = torch.tpu.metrics()
    result = function()
    torch.tpu.synchronize()
    after = torch.tpu.metrics()
    return [after[name] - before[name] for name in names], result


def programs_of(operators, x, numbers):
    """Returns how many programs are new when these operators follow one another, from x on."""
    before = torch.tpu.metrics()["programs"]
    for number in numbers:
        x = operators[number](x)
    x.tolist()
    return torch.tpu.metrics()["programs"] - before


def compiled(function):
    """How many programs a function has new ones made of, and what it returns."""
    [programs], result = counted(function, "programs")
    return programs, result


_nursery = None


def python(code, timeout=120, fresh=False, **environment):
    """Runs Python code in a process of its own; returns (exit status, stdout, stderr).

    The process is forked from one that has imported PyTorch, unless it is to be a fresh one: for
    tests of importing, and of what Python and PyTorch read from the environment as they start.
    """
    environment = {**os.environ, **environment}
    if fresh:
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout
        )
        return done.returncode, done.stdout, done.stderr
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        status = _forked([code, environment, *map(str, files)], timeout)
        return status, *(file.read_text() for file in files)


def alone(function, *args, timeout=300, **environment):
    """What a test file's function returns in a process where no test has run; all of it is JSON."""
    code = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from {function.__module__} import {function.__name__}
print(json.dumps({function.__name__}(*json.loads({json.dumps(args)!r}))))
"""
    status, out, errors = python(code, timeout, **environment)
    assert status == 0, errors
    return json.loads(out)


def _forked(request, timeout):
    """The exit status of a process that the nursery forks for a request (nursery.py)."""
    global _nursery
    if _nursery is None or _nursery.poll() is not None:
        command = [sys.executable, Path(__file__).with_name("nursery.py")]
        pipe = subprocess.PIPE
        _nursery = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    print(json.dumps(request), file=_nursery.stdin, flush=True)
    child = int(_nursery.stdout.readline())
    if not select.select([_nursery.stdout], [], [], timeout)[0]:
        os.kill(child, signal.SIGKILL)
        _nursery.stdout.readline()
        raise subprocess.TimeoutExpired(request[0], timeout)
    return int(_nursery.stdout.readline())
