"""Whatever fails below, Python sees an exception, and the process goes on.

Runs on a fake plugin of the C tests (TT_FAKE_PLUGIN), whose programs answer with zeros and whose
every call can be made to fail, as every allocation of the core can.
"""

import json
import os

import pytest
from support import ROOT, only_tpu, python, slow_but

FAKE = os.environ.get("TT_FAKE_PLUGIN") or str(ROOT / "build/release/libtt_fake_plugin.so")

pytestmark = [
    only_tpu,
    pytest.mark.skipif(not os.path.exists(FAKE), reason="TT_FAKE_PLUGIN names no fake plugin"),
]

KINDS = ["plugin", "memory", "memory for ever"]

# What fails the Nth call or allocation of a step, and tells what became of it.
HARNESS = """
import ctypes, faulthandler, gc, json, os, sys, time
faulthandler.enable()
import torch, torch_tpu
import torch_tpu._C as glue

mode = sys.argv[1]
fake = ctypes.CDLL(os.environ["TORCH_TPU_PLUGIN"])
fake.tt_fake_fail_at.argtypes = [ctypes.c_int64]
fake.tt_fake_failed.restype = ctypes.c_bool
torch.tpu.eager_mode = mode


def start(kind, nth):
    if kind == "plugin":
        fake.tt_fake_fail_at(nth)
    else:
        glue._fail_allocation_at(nth, kind == "memory for ever")


def stop(kind, nth):
    if kind == "plugin":
        happened = fake.tt_fake_failed()
        fake.tt_fake_fail_at(0)
    else:
        happened = glue._allocation_count() >= nth
        glue._fail_allocation_at(0, False)
    return happened


def attempt(kind, n):
    try:
        step(n)
        torch.tpu.synchronize()
    except RuntimeError as error:
        words = "injected failure" if kind == "plugin" else "out of host memory"
        assert words in str(error), error
        assert kind == "plugin" or isinstance(error, torch.OutOfMemoryError), type(error)
        return True
    return False


def settle():
    gc.collect()
    try:
        torch.tpu.synchronize()  # what an abandoned step left behind
    except RuntimeError:
        pass


def trial(kind, nth, n):
    start(kind, nth)
    failed = attempt(kind, n)
    happened = stop(kind, nth)
    settle()
    return failed, happened
"""

# Of a small training step, for some N, up to the last.
SWEEP = """
def step(n):
    x = torch.ones(n, 4, device="tpu")
    w = torch.tensor([[1.0] * n] * 4).to("tpu").requires_grad_()
    x.t()[1:3].add_(1)
    x[:, ::2].mul_(2.5)
    y = (x @ w + torch.arange(n, device="tpu")).relu()
    loss = (y * torch.rand_like(y)).sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    x.untyped_storage().resize_(8)
    return loss.item() + w.cpu().sum().item()


def freed(before):
    deadline = time.monotonic() + 10  # autograd's threads may free a little later
    while torch.tpu.memory_reserved() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    return torch.tpu.memory_reserved() == before


def sweep(kind, n):
    settle()  # an open chunk holds what it reads
    before = torch.tpu.memory_reserved()
    nth, rounds, failures, happened = 1, 0, 0, True
    while happened:
        n += 1
        failed, happened = trial(kind, nth, n)
        failures, rounds = failures + failed, rounds + 1
        if kind != "plugin":  # what memory was missing for works when there is some
            step(n)
        elif rounds % 8 == 0:  # what the compiler refused is not tried again
            step(n + 1000)
        torch.tpu.synchronize()
        assert freed(before), (kind, nth)
        nth += max(1, nth // 20)
    step(n + 2000)
    return rounds, failures


for n in (3, 4):  # programs that do not depend on n are known from here on
    step(n)
settle()
gc.freeze()  # what is there stays there: collecting is fast from here on
print(json.dumps([sweep(kind, 100 * (i + 1)) for i, kind in enumerate(KINDS)]))
"""


def script(body, mode="strict"):
    return f"import sys; sys.argv = ['', {mode!r}]; KINDS = {KINDS}\n" + HARNESS + body


@pytest.mark.parametrize("mode", slow_but(["strict", "debug", "fused"], "strict"))
def test_every_failure_is_an_exception(mode, tmp_path):
    status, out, errors = python(
        script(SWEEP, mode), 100, TORCH_TPU_PLUGIN=FAKE, TORCH_TPU_CACHE_DIR=str(tmp_path)
    )
    assert status == 0, errors
    for kind, (rounds, failures) in zip(KINDS, json.loads(out), strict=True):
        assert rounds > 15 and failures > rounds // 5, (kind, rounds, failures)


# Of a compiled training step: of one that was compiled before, and of the first ones of others.
COMPILED = """
def net(x, w, total):
    total.add_(x.sum())
    y = (x @ w).relu()
    return (y * y).sum() + torch.rand_like(y).sum()


def step(n):
    x, total = torch.ones(n, 4, device="tpu"), torch.zeros((), device="tpu")
    w = torch.ones(4, 4, device="tpu").requires_grad_()
    function(x, w, total).backward()
    with torch.no_grad():
        w.sub_(0.1 * w.grad)
    return w.sum().item() + total.item()


def sweep(kind, n, first):
    global function
    function = torch.compile(net, fullgraph=True)
    step(n)
    nth, rounds, failures, happened = 1, 0, 0, True
    while happened:
        if first:
            torch._dynamo.reset()
            function = torch.compile(net, fullgraph=True)
            n += 1
        failed, happened = trial(kind, nth, n)
        failures, rounds = failures + failed, rounds + 1
        step(n + 1000 if first and kind == "plugin" else n)  # what is refused is not tried again
        nth += max(1, nth // 5) if first else 1
    return rounds, failures


found = [
    sweep(kind, 100 * (i + 1) + 1000 * first, first)
    for first in (False, True) for i, kind in enumerate(KINDS)
]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_every_failure_of_compiled_functions_is_an_exception(tmp_path):
    status, out, errors = python(
        script(COMPILED),
        400,
        TORCH_TPU_PLUGIN=FAKE,
        TORCH_TPU_CACHE="off",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    )
    assert status == 0, errors
    for rounds, failures in json.loads(out):
        assert rounds > 15 and failures > rounds // 8, (rounds, failures)


# One operator of a chunk fails always; then only programs of several additions do.
CHUNKS = """
import ctypes, os, torch
fake = ctypes.CDLL(os.environ["TORCH_TPU_PLUGIN"])
torch.tpu.eager_mode = "fused"


def step(x):
    y = x + 1
    z = y.neg()
    w = y + 2
    return y, z, w, z * w


x = torch.ones(4).to("tpu")
fake.tt_fake_fail_programs(b"stablehlo.negate", 1, 2)
y, z, w, last = step(x)
try:
    torch.tpu.synchronize()
except RuntimeError as error:
    print(str(error).replace("\\n", " "))
print(y.tolist(), w.tolist())
for bad in (z, last):
    try:
        bad.tolist()
    except RuntimeError as error:
        print("injected" in str(error))
fake.tt_fake_fail_programs(b"stablehlo.add", 2, 2)
results = step(x)
torch.tpu.synchronize()
print([r.tolist()[0] for r in results], torch.tpu.metrics()["replays"])
"""


def test_a_chunk_that_fails_names_the_operator(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(CHUNKS)
    code = f"import runpy; runpy.run_path({str(script)!r})"
    status, out, errors = python(
        code, TORCH_TPU_PLUGIN=FAKE, TORCH_TPU_CACHE="off", TORCH_TPU_LOG="launch"
    )
    assert status == 0, errors
    error, values, *refused, last = out.splitlines()
    assert error.startswith(f"aten::neg, called at {script}:9 in step: ")
    chunk = f"a chunk of 4 operators, aten::add.Tensor at {script}:8 in step to aten::mul.Tensor"
    assert f"because {chunk} at {script}:11 in step had failed" in error
    assert values == f"{[0.0] * 4} {[0.0] * 4}"
    assert refused == ["True", "True"]
    assert last == f"{[0.0] * 4} 2"
    assert f"{chunk} at {script}:11 in step failed: PJRT_" in errors
    assert "; run operator by operator: no error" in errors


def test_out_of_device_memory():
    code = """
import torch
kept = []
try:
    for _ in range(8):
        kept.append(torch.ones(2**26, device="tpu"))
        torch.tpu.synchronize()  # the fifth has no room
except torch.OutOfMemoryError as error:
    print(len(kept), "Out of memory" in str(error))
kept.clear()
print(torch.ones(2**26, device="tpu").sum().item())
"""
    status, out, errors = python(
        code, TORCH_TPU_PLUGIN=FAKE, TORCH_TPU_CACHE="off", TT_FAKE_MEMORY=str(2**30)
    )
    assert status == 0, errors
    assert out.split() == ["5", "True", "0.0"], (out, errors)


def test_a_client_that_cannot_be_created():
    code = """
import ctypes, os, torch
fake = ctypes.CDLL(os.environ["TORCH_TPU_PLUGIN"])
fake.tt_fake_fail_at.argtypes = [ctypes.c_int64]
for nth in range(1, 12):
    fake.tt_fake_fail_at(nth)
    try:
        torch.ones(1, device="tpu")
    except RuntimeError as error:
        assert "injected" in str(error), error
    else:
        break
fake.tt_fake_fail_at(0)
print(nth > 3, torch.ones(2, device="tpu").cpu().tolist())
"""
    status, out, errors = python(code, TORCH_TPU_PLUGIN=FAKE, TORCH_TPU_CACHE="off")
    assert status == 0, errors
    assert out.strip() == "True [0.0, 0.0]", (out, errors)
