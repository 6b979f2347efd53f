"""Devices of launched processes: each owns one, whose index is its local rank."""

import subprocess
import sys

import pytest
import torch
from ranks import Ranks
from support import only_tpu

pytestmark = [only_tpu, pytest.mark.cpu_plugin("each process has one device")]

SCRIPT = """
import os
import torch
import torch.distributed as dist

local_rank = int(os.environ["LOCAL_RANK"])
assert torch.ones(1, device="tpu").device.index == local_rank
device = torch.device("tpu", local_rank)
torch.tpu.set_device(device)
dist.init_process_group()
assert torch.tpu.device_count() == torch.accelerator.device_count() == 2
x = torch.full((3,), local_rank + 1.0, device=device, requires_grad=True)
(x * x).sum().backward()
assert x.grad.device == device and torch.rand(2, device="tpu").device == device
total = x.detach().clone()
dist.all_reduce(total)
assert total.tolist() == [3, 3, 3]
try:
    torch.ones(1, device=f"tpu:{1 - local_rank}")
except RuntimeError as error:
    assert f"this process has 1 tpu device(s), numbered from {local_rank}" in str(error)
else:
    raise AssertionError
mesh = dist.init_device_mesh("tpu", (2,))
assert mesh.get_local_rank() == local_rank
dist.destroy_process_group()
print("well", local_rank)
"""


@pytest.mark.slow
def test_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["well 0", "well 1"]


def choose(rank, size):
    torch.tpu.set_device(rank)
    x = torch.ones(2, device=f"tpu:{rank}")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.tpu.set_device(rank + 2)
    return str(x.device), str(torch.ones(2, device="tpu").device), torch.tpu.current_device()


@pytest.mark.slow
def test_ranks_that_choose_an_index():
    with Ranks(backend="tpu") as ranks:
        assert ranks.run(choose) == [("tpu:0", "tpu:0", 0), ("tpu:1", "tpu:1", 1)]
