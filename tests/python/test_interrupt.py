"""Ctrl-C ends any wait, what was launched goes on, and the process can end at once."""

import time

import pytest
from support import only_tpu, python, slow_but

pytestmark = only_tpu

CODE = """
import os, signal, threading, time, torch, torch_tpu
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of shells ignore it
torch.tpu.eager_mode = {mode!r}
torch.tpu.init()
size = 1200 if torch_tpu._C.platform() in ("cpu", "accel") else 8000  # which takes a while
x = torch.rand(size, size, device="tpu")
w = torch.rand(size, size, device="tpu", requires_grad=True)
host = torch.empty(size, size).pin_memory()
pressed = []
def work(y=x):
    for _ in range(150):
        y = y @ x / size
    return y
def compile():
    y = torch.rand(1, 1, 100, device="tpu")
    for i in range(400):
        weight = torch.rand(1, 1, 3 + i % 5, device="tpu")
        y = torch.conv1d(y, weight, padding=3).sort()[0].cumsum(-1)
    return y
def press():
    pressed.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
(x @ x / size).sum().item()
torch.tpu.synchronize()
threading.Timer(0.5, press).start()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - pressed[0])
else:
    print("finished")
{more}
print("ends at", time.time())
"""

WAITS = {
    "synchronize": "y = work(); torch.tpu.synchronize()",
    "read": "y = work(); y.cpu()",
    "number": "y = work(); y.sum().item()",
    "event": "y = work(); e = torch.tpu.Event(); e.record(); e.synchronize()",
    "stream": "y = work(); torch.tpu.current_stream().synchronize()",
    "pinned": "y = work(); host.copy_(y, non_blocking=True); torch.tpu.synchronize()",
    "record": "while True: y = work()",
    "write": "while True: y = torch.rand(4 << 20).to('tpu').view(-1, 1024) @ x[:1024, :1024]",
    "backward": "work(w).sum().backward(); w.grad.sum().item()",
    "shape": "y = work(); torch.nonzero(y)",
    "compile": "compile().sum().item()",
    "trace": "torch.compile(compile)().sum().item()",
}


@pytest.mark.parametrize("wait", slow_but(WAITS, "number"))
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_wait_ends(mode, wait):
    code, out, err = python(CODE.format(mode=mode, wait=WAITS[wait], more=""))
    assert code == 0, err
    assert "interrupted after" in out, out + err
    assert float(out.split()[2]) < 0.5
    assert time.time() - float(out.split()[-1]) < 2.5


@pytest.mark.parametrize("mode", slow_but(["debug", "strict", "fused"]))
def test_what_was_launched_goes_on(mode):
    wait = "while True: y = work(); y.sum().item()"
    more = 'print("still", (x + 1).sum().item() - x.sum().item(), size**2)'
    code, out, err = python(CODE.format(mode=mode, wait=wait, more=more))
    assert code == 0 and "interrupted after" in out, out + err
    assert float(out.split()[2]) < 0.5
    assert float(out.split()[4]) == pytest.approx(float(out.split()[5]), rel=1e-3)
