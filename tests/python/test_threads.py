"""Threads that work on the same tensors at the same time."""

import pytest
import torch
from support import only_tpu, python, slow_but

pytestmark = only_tpu

REPLACED = """
import sys, threading, time, torch
torch.tpu.eager_mode = sys.argv[1]
layer = torch.nn.Linear(16, 16).to("tpu")
x = torch.randn(4, 16, device="tpu")
stop = time.monotonic() + float(sys.argv[2])
problems = []

def run(one):
    try:
        while time.monotonic() < stop:
            one()
    except Exception as error:
        problems.append(error)

def compute():
    with torch.no_grad():
        assert layer(x).cpu().isfinite().all()

def replace():
    for p in layer.parameters():
        p.data = torch.full_like(p, 0.5)

def reset():
    layer.bias.detach().set_(torch.full_like(layer.bias, 0.5))

threads = [threading.Thread(target=run, args=(f,)) for f in (compute, replace, reset) * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(problems)
"""


@pytest.mark.parametrize("mode", slow_but(["strict", "fused"], "strict"))
def test_parameters_are_replaced_under_way(mode):
    """Arguments under way stay: it crashed within seconds."""
    code = f"import sys; sys.argv = ['', {mode!r}, '2']\n{REPLACED}"
    assert python(code) == (0, "[]\n", "")


def test_what_was_replaced_is_let_go():
    """Not before the thread does something else, but then."""
    code = """
import torch
p = torch.nn.Parameter(torch.zeros(1 << 20, device="tpu"))
p.data.add_(1)
torch.tpu.synchronize()
before = torch.tpu.memory_reserved()
for _ in range(20):
    p.data = torch.ones(1 << 20, device="tpu") + 1
    torch.tpu.synchronize()
print(torch.tpu.memory_reserved() - before)
"""
    assert python(code) == (0, "0\n", "")


@pytest.mark.slow
def test_a_read_does_not_wait_for_who_waits_for_room():
    """One thread keeps the queue full; the others' values are there, and are read at once."""
    code = """
import threading, time, torch
torch.tpu.eager_mode = "strict"
x, ready = torch.rand(700, 700, device="tpu"), torch.ones(4, device="tpu") + 1
ready.tolist()
stop = False

def record():
    y = x
    while not stop:
        y = y @ x

thread = threading.Thread(target=record)
thread.start()
time.sleep(2)
began = time.monotonic()
for _ in range(10):
    ready.tolist()
print((time.monotonic() - began) / 10 < 0.5)
stop = True
thread.join()
"""
    assert python(code) == (0, "True\n", "")


@pytest.mark.slow
def test_threads_that_resize_one_tensor():
    """Whoever reads it meanwhile gets numbers or an error."""
    code = """
import threading, torch
x, problems = torch.ones(100, device="tpu"), []

def resize(k):
    for i in range(300):
        try:
            x.resize_(50 + i * k % 200)
        except RuntimeError as error:
            problems.append(str(error))

def read():
    for _ in range(100):
        try:
            (x + 1).cpu()
        except RuntimeError as error:
            problems.append(str(error))

threads = [threading.Thread(target=resize, args=(k,)) for k in (1, 3, 7)]
threads.append(threading.Thread(target=read))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(x.resize_(10).fill_(2).tolist() == [2.0] * 10, any("PJRT" in one for one in problems))
"""
    assert python(code) == (0, "True False\n", "")


def test_replacing_data_takes_no_lock_of_autograds():
    table = torch._C._dispatch_dump_table("aten::_has_compatible_shallow_copy_type")
    (line,) = (line for line in table.splitlines() if line.startswith("AutogradPrivateUse1:"))
    assert line.startswith("AutogradPrivateUse1: fallthrough"), line


LANES = """
import sys, threading, torch
torch.tpu.eager_mode = "fused"
sys.setswitchinterval(1e-5)  # threads take turns in the middle of everything
DEPTH, THREADS, TIMES = 60, 4, 12
torch.manual_seed(0)
weights = [torch.rand(8, 8) / 8 for _ in range(DEPTH)]
here, there = weights, [weight.to("tpu") for weight in weights]

def forward(weights, x):
    for weight in weights:
        x = torch.tanh(x @ weight + 1) * 0.5
    return x

def training(weights, x):
    weights = [weight.detach().clone().requires_grad_() for weight in weights]
    forward(weights, x).square().mean().backward()
    return torch.stack([weight.grad.sum() for weight in weights])

def check(work, barrier=None):
    x = torch.rand(4, 8, generator=torch.Generator().manual_seed(0))
    if barrier:
        barrier.wait()
    for _ in range(TIMES):
        try:
            torch.testing.assert_close(work(there, x.to("tpu")).cpu(), work(here, x))
        except AssertionError as error:
            problems.append(error)

problems = []
work = globals()[sys.argv[1]]
check(work)
before = torch.tpu.metrics()["programs"]
barrier = threading.Barrier(THREADS)
threads = [threading.Thread(target=check, args=(work, barrier)) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(problems, torch.tpu.metrics()["programs"] - before)
"""


@pytest.mark.parametrize("work", ["forward", "training"])
def test_threads_that_do_the_same_need_no_program_anew(work):
    """They mixed their operators in ever other chunks, each of which was compiled."""
    status, out, errors = python(f"import sys; sys.argv = ['', {work!r}]\n{LANES}")
    assert (status, out[:3], errors) == (0, "[] ", "")
    assert int(out[3:]) <= 2  # chunks that recur may be fused
