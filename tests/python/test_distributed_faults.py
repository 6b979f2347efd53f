"""Ranks that end, or do not arrive: the others end with a sentence that says so, in time."""

import json
import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist
import trainee
from hosts import TRAINEE, Hosts, Started, Trainees, can_make_hosts, free_port, ranks_of
from ranks import GLOO, Ranks
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


def check_a_killed_rank(ranks):
    ranks.run(reduce_once)
    ranks.start(reduce_once, 1)
    time.sleep(1)
    os.kill(ranks.processes[1].pid, signal.SIGKILL)
    text, took = error_of(ranks, 0, 30)
    assert "collective 1 (all_reduce of 3 elements of f32) failed" in text
    assert "this rank did not arrive: 1" in text
    assert took < 20


@pytest.mark.parametrize("transport", [{}, pytest.param(GLOO, marks=pytest.mark.slow)])
def test_a_killed_rank(transport):
    with Ranks(timeout=40, backend="tpu", environment=lambda rank: transport) as ranks:
        check_a_killed_rank(ranks)


def receive_from_nobody(rank, size):
    x = torch.ones(3, device="tpu")
    if rank == 0:
        dist.recv(x, 1)
    return x.cpu().tolist()


@pytest.mark.slow
def test_a_message_that_does_not_come():
    with Ranks(timeout=3, backend="tpu") as ranks:
        ranks.start(receive_from_nobody)
        text, _ = error_of(ranks, 0, 40)
        assert "collective 0 (recv of 12 bytes) failed" in text
        assert "the other end of the message is rank 1" in text


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


def reduce_apart(rank, size):
    """The sizes differ at the second collective."""
    reduce_once(rank, size)
    x = torch.ones(4 + 4 * rank, device="tpu")
    dist.all_reduce(x)
    return x.cpu().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("transport", [{}, GLOO])
def test_ranks_that_part(transport):
    """Both know why; but Gloo ends the process that gets more than it expects."""
    with Ranks(timeout=4, backend="tpu", environment=lambda rank: transport) as ranks:
        ranks.start(reduce_apart)
        line = r".*test_distributed_faults\.py:\d+ in reduce_apart"
        where = (
            rf"the ranks part at collective 1: rank 0: all_reduce \(SUM\) of 4 f32 at {line}; "
            rf"rank 1: all_reduce \(SUM\) of 8 f32 at {line}"
        )
        for rank in (1,) if transport else (0, 1):
            text, _ = error_of(ranks, rank, 40)
            assert re.search(where, text), text
        if transport:
            ranks.processes[0].join(20)
            assert ranks.processes[0].exitcode == -signal.SIGABRT


def reduce_unlike(rank, size):
    """A sum on one rank is a maximum on the other; then a sum of other numbers, as many bytes."""
    texts = []
    for dtype, op in (
        (torch.float32, ("SUM", "MAX")[rank]),
        ((torch.float32, torch.int32)[rank], "SUM"),
    ):
        group = dist.new_group()
        x = torch.ones(4, dtype=dtype, device="tpu")
        dist.all_reduce(x, getattr(dist.ReduceOp, op), group)
        with pytest.raises(RuntimeError) as error:
            x.cpu()
        texts.append(str(error.value))
    return texts


@pytest.mark.slow
def test_reductions_that_differ():
    """Which Gloo would not notice."""
    with Ranks(timeout=10, backend="tpu") as ranks:
        for texts in ranks.run(reduce_unlike):
            for text in texts:
                assert "collective 0 (all_reduce of 4 elements of" in text
                assert "asks for another collective" in text or "gave up" in text


def wait_apart(rank, size):
    reduce_once(rank, size)
    x = torch.ones(3, device="tpu")
    if rank:
        dist.broadcast(x, 0)
    else:
        dist.all_reduce(x)
    return x.cpu().tolist()


@pytest.mark.slow
def test_ranks_that_wait_for_different_things():
    with Ranks(timeout=4, backend="tpu") as ranks:
        ranks.start(wait_apart)
        line = r".*test_distributed_faults\.py:\d+ in wait_apart"
        where = (
            rf"the ranks part at collective 1: rank 0: all_reduce \(SUM\) of 3 f32 at {line}; "
            rf"rank 1: broadcast of 12 bytes from rank 0 at {line}"
        )
        for rank in (0, 1):
            text, _ = error_of(ranks, rank, 40)
            assert re.search(where, text), text


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


# -- Training, one rank of which ends in the middle of a step --


def saved_losses(folder):
    return torch.load(folder / "checkpoint.pt", map_location="cpu")["losses"]


def agree(losses, steps=8):
    torch.testing.assert_close(losses, trainee.alone(steps), rtol=1e-4, atol=1e-5)


def error_at_the_end(started, which, within=45):
    """What a process said that an exception ended."""
    status, text = started.end(which, within)
    assert status == 1 and "Traceback (most recent call last)" in text, text
    return text


STOPPED = "--fault=stop", "--timeout=4"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 0], ids=["", "which has the store"])
@pytest.mark.parametrize("options", [["--fault=kill"], STOPPED], ids=["killed", "stopped"])
def test_a_rank_in_the_middle_of_a_step(tmp_path, options, rank):
    """Killed: noticed at once. Stopped: when the time-out has passed."""
    other = 1 - rank
    with Trainees(tmp_path, *options, f"--rank={rank}") as started:
        text = error_at_the_end(started, other)
        assert f"rank {other} of 2: collective " in text, text
        reason = "this rank did not arrive: 1" if rank else "the store does not answer"
        assert reason in text, text
        started.processes[rank].kill()
        started.end(rank)
        assert not started.left()
    if rank:
        agree(saved_losses(tmp_path), 3)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["raise", "memory"])
def test_a_rank_that_an_exception_ends(tmp_path, fault):
    """The others are told which."""
    error = {"raise": "ValueError: on purpose", "memory": "OutOfMemoryError: "}[fault]
    with Trainees(tmp_path, f"--fault={fault}") as started:
        assert error in error_at_the_end(started, 1)
        text = error_at_the_end(started, 0)
        assert f"this rank did not arrive: 1 (it ended with {error}" in text
        assert not started.left()


@pytest.mark.slow
def test_a_slow_rank(tmp_path):
    """Is waited for."""
    with Trainees(tmp_path, "--fault=slow", "--timeout=30") as started:
        assert [started.end(rank)[0] for rank in (0, 1)] == [0, 0], started.text(0)
        assert not started.left()
    agree(saved_losses(tmp_path))


@pytest.mark.slow
def test_an_elastic_restart(tmp_path):
    """torchrun starts all ranks again, and these go on from what was saved."""
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    with Started() as started:
        options = "--monitor-interval=0.2", f"--master-port={free_port()}", TRAINEE, tmp_path
        started.start([*torchrun, *options, "--fault=kill", "--timeout=20"])
        status, text = started.end(0, 58)
        assert status == 0, text
        assert not started.left()
    assert "rank 1 begins at step 3" in text and "rank 1 is done" in text, text
    agree(saved_losses(tmp_path))


# -- Hosts whose network is cut --


def train_on(hosts, started, folder, *options):
    for host, environment in enumerate(ranks_of(29400, 2, hosts.address(0))):
        arguments = [TRAINEE, folder, *options]
        started.start(arguments, environment | hosts.environment(host), hosts.prefix(host))


def cut_while_training(hosts, started):
    """When both have begun."""
    for rank in (-2, -1):
        started.await_text(rank, "ended step 1")
    hosts.set_cable(1, False)


needs_hosts = pytest.mark.skipif(not can_make_hosts(), reason="needs iproute2, and the right")


@pytest.mark.slow
@needs_hosts
def test_a_network_that_is_cut_for_a_moment(tmp_path):
    """Nothing is lost: what was on its way is sent again."""
    with Hosts() as hosts, Started() as started:
        train_on(hosts, started, tmp_path, "--timeout=30", "--pause=0.2")
        cut_while_training(hosts, started)
        time.sleep(2)
        hosts.set_cable(1, True)
        assert [started.end(rank)[0] for rank in (0, 1)] == [0, 0], started.text(0)
        assert not started.left()
    agree(saved_losses(tmp_path))


@pytest.mark.slow
@needs_hosts
def test_a_network_that_is_cut_and_healed(tmp_path):
    """Both ends say so; when it is whole again, training goes on from what was saved."""
    with Hosts() as hosts, Started() as started:
        train_on(hosts, started, tmp_path, "--timeout=4", "--pause=0.2")
        cut_while_training(hosts, started)
        assert "this rank did not arrive: 1" in error_at_the_end(started, 0)
        assert "the store does not answer" in error_at_the_end(started, 1)
        assert not started.left()
        hosts.set_cable(1, True)
        train_on(hosts, started, tmp_path, "--timeout=20")
        assert [started.end(rank)[0] for rank in (2, 3)] == [0, 0], started.text(2)
        assert "begins at step 0" not in started.text(2)
        assert not started.left()
    agree(saved_losses(tmp_path))
