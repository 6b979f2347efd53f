"""Ctrl-C ends a wait, and what was launched goes on."""

import pytest
from support import only_tpu, python

pytestmark = only_tpu

CODE = """
import os, signal, threading, time, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of shells ignore it
torch.tpu.eager_mode = {mode!r}
x = torch.rand(1200, 1200, device="tpu")
def work():
    y = x
    for _ in range(150):
        y = y @ x / 1200
    return y
(x @ x / 1200).sum().item()
torch.tpu.synchronize()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    y = work()
    {wait}
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - begin)
else:
    print("finished after", time.monotonic() - begin)
print("still", (torch.ones(2, device="tpu") + 1).tolist())
os._exit(0)
"""


@pytest.mark.diagonal
@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
@pytest.mark.parametrize("wait", ["torch.tpu.synchronize()", "y.cpu()", "y.sum().item()"])
def test_a_wait_ends(mode, wait):
    if mode == "debug" and "sync" in wait:
        wait = "y.sum().item()"
    code, out, err = python(CODE.format(mode=mode, wait=wait))
    assert code == 0, err
    assert "interrupted after" in out, out + err
    assert float(out.split()[2]) < 2.5
    assert "still [2.0, 2.0]" in out
