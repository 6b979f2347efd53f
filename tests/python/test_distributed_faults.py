"""Ranks that end, or do not arrive: the others end with a sentence that says so, in time."""

import json
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from support import only_tpu

pytestmark = [only_tpu, pytest.mark.cpu_plugin("the transport is called from host memory")]


def reduce_once(rank, size, away=-1):
    """The rank that is away does not take part."""
    x = torch.ones(3, device="tpu")
    if rank == away:
        time.sleep(60)
    dist.all_reduce(x)
    return x.cpu().tolist()


def error_of(ranks, rank, within):
    before = time.monotonic()
    well, text = ranks.result(rank, within)
    assert not well, text
    return text, time.monotonic() - before


@pytest.mark.slow
def test_a_rank_that_does_not_arrive(tmp_path):
    prefix = {"TORCH_TPU_FLIGHT_RECORD": str(tmp_path / "record")}
    with Ranks(timeout=4, backend="tpu", environment=lambda rank: prefix) as ranks:
        ranks.run(reduce_once)
        ranks.start(reduce_once, 1)
        text, took = error_of(ranks, 0, 40)
        assert "rank 0 of 2: collective 1 (all_reduce of 3 elements of f32) failed" in text
        assert "this rank did not arrive: 1 (the time-out is 4 s)" in text
        assert took < 30
        ranks.processes[1].kill()
    entries = json.loads((tmp_path / "record0.json").read_text())["entries"]
    assert [one["state"] for one in entries] == ["completed", "started"]


@pytest.mark.slow
def test_a_killed_rank():
    with Ranks(timeout=40, backend="tpu") as ranks:
        ranks.run(reduce_once)
        ranks.start(reduce_once, 1)
        time.sleep(1)
        os.kill(ranks.processes[1].pid, signal.SIGKILL)
        text, took = error_of(ranks, 0, 30)
        assert "collective 1 (all_reduce of 3 elements of f32) failed" in text
        assert "this rank did not arrive: 1" in text
        assert took < 20


def fail_alone(rank, size):
    """A rank's own error, within what a collective reads, is told there; the other's names it."""
    x = torch.ones(3, device="tpu")
    dist.all_reduce(x)
    if rank == 1:
        raise ValueError("on purpose")
    dist.all_reduce(x)
    return x.cpu().tolist()


@pytest.mark.slow
def test_a_rank_that_raises():
    with Ranks(timeout=4, backend="tpu") as ranks:
        ranks.start(fail_alone)
        assert "on purpose" in error_of(ranks, 1, 40)[0]
        assert "this rank did not arrive: 1" in error_of(ranks, 0, 40)[0]


def go_on_after(rank, size):
    """What does not depend on a collective that failed goes on; what does, does not."""
    x, y = torch.ones(3, device="tpu"), torch.ones(3, device="tpu")
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        y += 1
        assert y.cpu().tolist() == [2, 2, 2]  # while the other one is away
        assert not work.is_completed()
        with pytest.raises(RuntimeError, match="did not arrive: 1"):
            x.cpu()
        with pytest.raises(dist.DistBackendError, match="collective 0"):
            work.wait()
        with pytest.raises(dist.DistBackendError, match="collective 0"):
            dist.barrier()
    else:
        time.sleep(12)
    return (y + 1).cpu().tolist()


@pytest.mark.slow
def test_what_goes_on():
    with Ranks(timeout=4, backend="tpu") as ranks:
        assert ranks.run(go_on_after) == [[3, 3, 3], [2, 2, 2]]


def abort_group(rank, size):
    x = torch.ones(3, device="tpu")
    dist.all_reduce(x)
    values = x.cpu().tolist()
    dist.barrier()
    dist.distributed_c10d._abort_process_group()
    return values


@pytest.mark.slow
def test_abort():
    with Ranks(backend="tpu") as ranks:
        assert ranks.run(abort_group) == [[2, 2, 2]] * 2
