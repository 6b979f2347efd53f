"""Devices of launched processes: each owns one, whose index is its local rank."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import for_cuda
import pytest
import torch
import torch.distributed as dist
import trainee
from hosts import TRAINEE, Hosts, Started, can_make_hosts
from ranks import Ranks
from support import ROOT, only_tpu, slow_but

from torch_tpu.distributed._fresh import fresh_store

pytestmark = [only_tpu, pytest.mark.cpu_plugin("each process has one device")]


def agree(store, ranks, timeout=10):
    """What these ranks of three agree on; each is a thread."""
    limit = timedelta(seconds=timeout)
    with ThreadPoolExecutor() as pool:
        made = [pool.submit(fresh_store, store, rank, 3, limit, "g") for rank in ranks]
    for rank, one in zip(ranks, made, strict=True):
        one.result().set(f"by {rank}", "")
    stores = [one.result() for one in made]
    return all(one.check([f"by {rank}" for rank in ranks]) for one in stores)


def test_a_store_that_restarts_leave_behind(monkeypatch):
    """Ranks that are started again agree on a part of it; who does not come is named."""
    store = dist.HashStore()
    assert fresh_store(store, 0, 3, timedelta(seconds=1), "g") is store
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    for _ in range(3):
        with pytest.raises(
            dist.DistBackendError, match=r"group g: .* did not come: 1 \(the time-out"
        ):
            agree(store, [0, 2], 0.2)
        with pytest.raises(dist.DistBackendError, match="did not come: 0"):
            agree(store, [1, 2], 0.2)
        assert agree(store, [0, 1, 2])


def split(rank, size):
    """The groups that asked for a fresh part of their store, when one was split."""
    import torch_tpu.distributed as package

    dist.distributed_c10d._get_default_group().bound_device_id = torch.device("tpu", 0)
    names, original = [], package.fresh_store
    package.fresh_store = lambda *args: names.append(args[-1]) or original(*args)
    group = dist.split_group(dist.group.WORLD, [[0, 1]])
    x = torch.ones(2, device="tpu")
    dist.all_reduce(x, group=group)
    return group.group_name, names, x.tolist()


@pytest.mark.slow
def test_groups_that_are_split_ask_for_their_own_store():
    environment = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    with Ranks(backend="tpu", environment=lambda rank: environment) as ranks:
        for name, names, values in ranks.run(split):
            assert names == [name] and values == [2, 2]


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
other = 1 - local_rank
for index in range(torch.tpu.device_count()):  # as scripts loop over the host's devices
    torch.tpu.synchronize(index)
    torch.tpu.reset_peak_memory_stats(index)
    assert (torch.tpu.memory_allocated(index) == 0) == (index == other)
    assert (torch.tpu.get_device_properties(index).id == -1) == (index == other)
    assert torch.tpu.get_device_name(index) == torch.tpu.get_device_name(local_rank)
assert torch.tpu.mem_get_info(other)[0] == torch.tpu.mem_get_info(local_rank)[1]
assert torch.tpu.metrics()["bytes_held"] == torch.tpu.memory_reserved(local_rank) > 0
with torch.random.fork_rng(range(2), device_type="tpu"):
    states = torch.tpu.get_rng_state_all()
    torch.tpu.seed_all()
    assert torch.tpu.default_generators[other].initial_seed() == torch.tpu.initial_seed()
    assert not torch.equal(torch.tpu.get_rng_state_all()[other], states[other])
assert torch.equal(torch.tpu.get_rng_state_all()[other], states[other])
mesh = dist.init_device_mesh("tpu", (2,))
assert mesh.get_local_rank() == local_rank
dist.destroy_process_group()
print(f"well {local_rank}\\n", end="")
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


def name_an_index(rank, size, named):
    """As scripts do that start their ranks themselves: `model.to(rank)`, with nothing before."""
    own = 1 - rank if named == "another" else rank
    x = torch.ones(2) if named == "none" else torch.ones(2).to(own)
    y = torch.ones(2, device="tpu")
    dist.all_reduce(y)
    count = torch.tpu.device_count()
    return str(x.device), str(y.device), torch.tpu.current_device(), count, y.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("named", ["rank", *slow_but(["another", "none", "environment"])])
def test_ranks_that_name_an_index(named):
    told = named == "environment"
    with Ranks(
        backend="tpu", environment=lambda i: {"LOCAL_RANK": str(i)} if told else {}
    ) as ranks:
        for rank, found in enumerate(ranks.run(name_an_index, named)):
            own = 1 - rank if named == "another" else rank
            x = "cpu" if named == "none" else f"tpu:{own}"
            assert found == (x, f"tpu:{own}", own, 2, [2.0, 2.0])


def set_before(rank, size):
    """The plugin stays closed, so that it may be told of the other ranks yet."""
    torch.tpu.set_device(rank)
    return torch.tpu.is_initialized(), torch.tpu.current_device()


@pytest.mark.slow
def test_choosing_a_device_opens_nothing():
    with Ranks(backend="tpu") as ranks:
        assert ranks.run(set_before) == [(False, 0), (False, 1)]


PLACE = """
print(f"{os.environ['TPU_VISIBLE_CHIPS']} {os.environ['RANK']}\\n", end="")
"""
COUNT = """
import os
import torch
import torch.distributed as dist

device = torch.device("tpu", int(os.environ["LOCAL_RANK"]))
dist.init_process_group()
x = torch.ones(2, device=device)
dist.all_reduce(x)
print(f"{x.device} {x.tolist()}\\n", end="")  # at once: others print, too
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "tpu"])
def test_as_many_processes_as_devices(name, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(COUNT)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={name}", script]
    environment = os.environ | {"TORCH_TPU_CPU_DEVICES": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["tpu:0 [2.0, 2.0]", "tpu:1 [2.0, 2.0]"]


@pytest.mark.slow
def test_the_environment_of_a_slice(tmp_path):
    """The recipe for TPUs, whose variables the CPU plugin does not read."""
    script = tmp_path / "script.py"
    script.write_text(COUNT + PLACE)
    launch = f"{sys.executable} -m torch_tpu launch --topology v5e:2x2 --hosts 127.0.0.1"
    line = f'eval "$({launch} --rank $RANK)"; exec {sys.executable} {script}'
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", "--no-python"]
    command = [*torchrun, "--master-addr=127.0.0.1", "sh", "-c", line]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert ": no; " not in done.stderr  # of the checks
    expected = [f"{rank} {rank}" for rank in range(4)]
    assert [line for line in sorted(done.stdout.splitlines()) if line in expected] == expected


@pytest.mark.slow
@pytest.mark.skipif(not can_make_hosts(), reason="needs iproute2, and the right")
def test_two_hosts(tmp_path):
    """torchrun on each of them, two processes each."""
    with Hosts(2) as hosts, Started() as started:
        for host in range(2):
            torchrun = ["-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={host}"]
            torchrun += ["--nproc-per-node=2", f"--master-addr={hosts.address(0)}"]
            started.start(
                [*torchrun, TRAINEE, tmp_path], hosts.environment(host), hosts.prefix(host)
            )
        texts = []
        for host in range(2):
            status, text = started.end(host, 55)
            assert status == 0, text
            texts.append(text)
        assert not started.left()
    assert "rank 1 is done" in texts[0] and "rank 3 is done" in texts[1]
    losses = torch.load(tmp_path / "checkpoint.pt", map_location="cpu")["losses"]
    torch.testing.assert_close(losses, trainee.alone(8), rtol=1e-4, atol=1e-5)


def printed_losses(script, folder, **environment):
    """What the script prints on each of two ranks."""
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", path, folder]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=150, env=os.environ | environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("losses ")]
    assert len(lines) == 2, done.stdout
    return [[float(word) for word in line.split()[1:]] for line in lines]


@pytest.mark.slow
def test_a_script_for_cuda(tmp_path):
    """Moves over by two words."""
    script = (ROOT / "tests/python/for_cuda.py").read_text()
    found = printed_losses(script.replace("nccl", "tpu").replace("cuda", "tpu"), tmp_path)
    assert found[0] == found[1]
    torch.testing.assert_close(found[0], for_cuda.alone(), rtol=2e-2, atol=2e-2)
