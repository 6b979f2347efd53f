"""Processes: what opens the plugin and what does not, forks, and tensors sent to others."""

import subprocess
import sys

import pytest
import torch
from support import only_tpu, python, slow_but

pytestmark = only_tpu

# Runs each expression in a forked child, and says what becomes of it within ten seconds.
FORKS = """
import os, signal, sys, time, torch

def in_child(text):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            print(text, "->", eval(text), flush=True)
        except Exception as error:
            print(text, "raises", type(error).__name__, "forked" in str(error), flush=True)
        os._exit(0)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    print(text, "hangs", flush=True)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

pinned = torch.ones(3).pin_memory()
ready = torch.ones(3, device="tpu") + 1
ready.cpu()
double = torch.compile(lambda x: x * 2)
double(ready)
event = torch.Event("tpu")
pending = ready * 2
event.record()
"""

ASKED = [
    "ready.cpu()",
    "pending.tolist()",
    "pending.sum().item()",
    "repr(ready)",
    "ready.copy_(torch.zeros(3))",
    "torch.zeros(3).copy_(ready)",
    "pinned.copy_(ready, non_blocking=True)",
    "torch.zeros(3).to('tpu')",
    "ready.resize_(300)",
    "ready.add_(1)",
    "torch.empty(3, device='tpu')",
    "torch.tpu.synchronize()",
    "torch.tpu.current_stream().synchronize()",
    "torch.nn.Linear(3, 3)(torch.ones(3, 3)).to('tpu')",
    "double(ready)",
]


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_forked_child_is_told_at_once(mode):
    code = FORKS + "\n".join(f"in_child({text!r})" for text in ASKED)
    code += '\ndel ready\nprint("parent", pending.tolist())'
    status, out, errors = python(code, TORCH_TPU_EAGER_MODE=mode)
    lines = out.splitlines()
    assert status == 0, errors
    assert lines[-1] == "parent [4.0, 4.0, 4.0]"
    for text, line in zip(ASKED, lines[:-1], strict=True):
        assert line == f"{text} raises RuntimeError True"


def test_a_forked_child_may_end_and_free_tensors():
    code = FORKS + "in_child(\"globals().pop('pending') is None\")\nprint(ready.tolist())"
    status, out, errors = python(code)
    assert status == 0, errors
    assert out.split("\n")[:2] == [
        "globals().pop('pending') is None -> False",
        "[2.0, 2.0, 2.0]",
    ]


def test_workers_with_tensors_of_the_device_say_so():
    code = """
import torch

class Held(torch.utils.data.Dataset):
    data = torch.arange(8.0, device="tpu")

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.data[i]

Held.data.cpu()
try:
    list(torch.utils.data.DataLoader(Held(), num_workers=1))
except RuntimeError as error:
    print("forked" in str(error))
"""
    assert python(code)[:2] == (0, "True\n")


COUNTED = """
import torch
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
print(torch.tpu.is_initialized(), x.grad.tolist())
"""


@pytest.mark.parametrize("plugin", ["", "cpu", "/nowhere/at/all.so"])
def test_a_backward_of_the_host_opens_nothing(plugin):
    status, out, errors = python(COUNTED, TORCH_TPU_PLUGIN=plugin)
    assert (status, out, errors) == (0, "False [2.0, 2.0, 2.0]\n", "")


def test_without_a_plugin_the_host_is_alone():
    """No thread waits for a device that is not there, so a process may fork after backward()."""
    code = """
import os, torch
def step():
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
step()
print(torch.tpu.device_count(), torch.tpu.is_available(), torch.accelerator.is_available())
if os.fork() == 0:
    step()
    os._exit(0)
print(os.wait()[1])
try:
    torch.ones(1, device="tpu")
except RuntimeError as error:
    print("nowhere" in str(error))
"""
    status, out, errors = python(code, TORCH_TPU_PLUGIN="/nowhere/at/all.so")
    assert (status, out) == (0, "0 False False\n0\nTrue\n"), errors


def test_counting_opens_nothing():
    code = """
import torch
print(torch.tpu.device_count(), torch.tpu.is_available(), torch.accelerator.device_count())
print(torch.accelerator.is_available(), torch.tpu.is_initialized())
x = torch.ones(2, device="tpu:2", requires_grad=True)
(x * 2).sum().backward()
print(x.grad.tolist(), torch.tpu.device_count())
"""
    status, out, errors = python(code, TORCH_TPU_PLUGIN="cpu", TORCH_TPU_CPU_DEVICES="3")
    assert status == 0, errors
    assert out == "3 True 3\nTrue False\n[2.0, 2.0] 3\n"


def test_a_backward_of_the_host_comes_before_the_plugin():
    code = """
x = torch.ones(2, device="tpu:2", requires_grad=True)
(x * 2).sum().backward()
print(x.grad.tolist())
"""
    settings = {"TORCH_TPU_PLUGIN": "cpu", "TORCH_TPU_CPU_DEVICES": "3"}
    status, out, errors = python(COUNTED + code, **settings)
    assert (status, out) == (0, "False [2.0, 2.0, 2.0]\n[2.0, 2.0]\n"), errors


@pytest.mark.parametrize("count", slow_but(["0", "-1", "4294967298", "two", "1025"], "two", "1025"))
def test_a_wrong_number_of_devices_is_refused(count):
    code = """
import torch
try:
    torch.ones(2, device="tpu")
except RuntimeError as error:
    print("TORCH_TPU_CPU_DEVICES" in str(error))
else:
    print(torch.tpu.device_count())
"""
    expected = "1\n" if count in ("0", "two") else "True\n"
    got = python(code, TORCH_TPU_PLUGIN="cpu", TORCH_TPU_CPU_DEVICES=count)
    assert got[:2] == (0, expected)


SENT = """
import torch, torch.multiprocessing as mp

def show(i, x, w, results=None):
    print(x.device, x.sum().item(), type(w).__name__, w.requires_grad, w.dtype, w.sum().item())

if __name__ == "__main__":
    x = torch.arange(70000.0, device="tpu")
    w = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16, device="tpu"))
    mp.spawn(show, (x, w), nprocs=2)
    process = mp.get_context("spawn").Process(target=show, args=(0, x, w))
    process.start()
    del x, w
    process.join()
    print(process.exitcode)
"""


@pytest.mark.slow
def test_tensors_are_arguments_of_processes(tmp_path):
    script = tmp_path / "sent.py"
    script.write_text(SENT)
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    line = "tpu:0 2449965056.0 Parameter True torch.bfloat16 3.0\n"
    assert (run.returncode, run.stdout) == (0, 3 * line + "0\n"), run.stderr


AT_EXIT = """
import atexit, os, sys, weakref, torch
path = sys.argv[1]
x = torch.ones(4, device="tpu") + 1

def compute():
    return torch.arange(4.0, device="tpu") * 2 + x

def save(name):
    torch.save(compute(), os.path.join(path, name))

class Holder:
    def __del__(self, write=os.write, compute=compute):
        write(1, str(compute().tolist()).encode())

compute()
atexit.register(save, "handler")
weakref.finalize(Holder, save, "finalizer")
_holder = Holder()  # a name that Python clears first
pending = x * 3
"""


@pytest.mark.parametrize("mode", slow_but(["strict", "fused"], "fused"))
def test_what_runs_at_exit_computes_and_saves(mode, tmp_path):
    code = f"import sys; sys.argv = ['', {str(tmp_path)!r}]\n{AT_EXIT}"
    run = python(code, fresh=True, TORCH_TPU_EAGER_MODE=mode)
    assert run == (0, "[2.0, 4.0, 6.0, 8.0]", "")
    for name in ("handler", "finalizer"):
        assert torch.load(tmp_path / name, map_location="cpu").tolist() == [2.0, 4.0, 6.0, 8.0]


def test_a_fork_among_open_chunks():
    """Wherever a chunk is, or is due, the child is told and the parent goes on."""
    code = """
import os, signal, time, torch
torch.tpu.eager_mode = "fused"
x = torch.ones(8, device="tpu")
for i in range(12):
    for _ in range(40 + 11 * i):
        x = x * 0.5 + 1
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        try:
            x + 1
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
print(x.tolist() == [2.0] * 8)
"""
    assert python(code)[:2] == (0, "True\n")
