"""Process groups on other plugins than the CPU's: on ones that span processes, and on others."""

import contextlib

import pytest
import test_distributed as processes
import test_distributed_faults as faults
import test_distributed_parallel as parallel
import test_distributed_training as training
import test_simulate as threads
import torch
import torch.distributed as dist
from language import agree
from ranks import ON_HOST, SPANNING, Ranks
from support import only_tpu, slow_but

pytestmark = [only_tpu, pytest.mark.cpu_plugin("its ranks open another plugin")]

WAYS = {"spanning": SPANNING, "host": ON_HOST}


def ranks_by(way, size=2, **options):
    return Ranks(size, environment=lambda rank: WAYS[way], **options)


@pytest.fixture(scope="module")
def spanning():
    with ranks_by("spanning") as started:
        yield started


@pytest.fixture(scope="module", params=WAYS)
def pair(request):
    if request.param == "spanning":
        yield request.getfixturevalue("spanning")
        return
    with ranks_by("host") as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("kind", processes.KINDS)
def test_collectives_of_few_dtypes(spanning, kind):
    dtypes, reductions = (torch.float32, torch.int64), ("SUM", "AVG", "MAX", "BXOR")
    results = spanning.run(processes.compare, kind, dtypes, reductions)
    assert [wrong for _, wrong in results] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("kind", processes.KINDS)
def test_collectives_of_all_dtypes(kind, size):
    with ranks_by("spanning", size) as ranks:
        results = ranks.run(processes.compare, kind, processes.ALL, processes.REDUCTIONS)
    assert [wrong for _, wrong in results] == [[]] * size


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but(processes.KINDS, "all_reduce"))
def test_collectives_on_the_host(kind):
    """Of what Gloo reduces."""
    with ranks_by("host") as ranks:
        dtypes = torch.float32, torch.bfloat16, torch.int64
        results = ranks.run(processes.compare, kind, dtypes, ("SUM", "AVG", "MAX"))
    assert [wrong for _, wrong in results] == [[], []]


def test_messages(pair):
    processes.test_messages_cross(pair)
    processes.test_messages_to_oneself(pair)


def test_views_objects_groups_and_futures(pair):
    threads.test_views_objects_groups_and_futures(pair)
    processes.check_uneven_lists(pair)
    processes.test_split_groups(pair)


def test_groups_of_the_same_ranks(spanning):
    processes.test_groups_of_the_same_ranks(spanning)


def test_debug(spanning):
    processes.test_debug_of_ranks_that_agree(spanning)
    processes.test_debug_says_where_ranks_part(spanning, "size")


def test_graphs(spanning):
    processes.test_graphs(spanning)


def test_functional_collectives(spanning):
    processes.test_functional_collectives(spanning, False)


def devices_of_ranks(rank, size):
    from torch_tpu import _C

    dist.all_reduce(torch.ones(1, device="tpu"))
    return torch.tpu.device_count(), _C.device_ids()


def test_each_process_has_one_device(spanning):
    """Of which the plugin's numbers are not the ranks."""
    assert spanning.run(devices_of_ranks) == [(1, [1]), (1, [0])]


def test_the_flight_record(spanning, tmp_path):
    processes.test_the_flight_record(spanning, tmp_path)


def receive_from_any(rank, size):
    with pytest.raises(NotImplementedError, match="from which rank; name it"):
        dist.irecv(torch.empty(2, device="tpu"))


def test_what_is_refused(spanning):
    spanning.run(receive_from_any)


@pytest.mark.slow
def test_merging(pair):
    """Groups that may be another program's are not the plugin's to span."""
    processes.check_merge(pair, 2)


def all_at_once(rank, size):
    """Groups, messages and operators of all kinds under way, asked for in any order."""
    groups = [dist.new_group(), dist.new_group(), dist.new_group([0, 1, 2]), dist.new_group([1, 3])]
    generator = torch.Generator().manual_seed(rank)
    own = [one for one, group in enumerate(groups) if rank in dist.get_process_group_ranks(group)]
    works, found = [], []
    for turn in range(12):
        for one in torch.randperm(len(own), generator=generator).tolist():
            x = torch.full((3,), float(turn + own[one]), device="tpu")
            works.append(dist.all_reduce(x, group=groups[own[one]], async_op=True))
            found.append((own[one], turn, x))
        sent = torch.full((2,), float(rank + turn), device="tpu")
        got = torch.empty(2, device="tpu")
        works.append(dist.irecv(got, (rank - 1) % size))
        works.append(dist.isend(sent, (rank + 1) % size))
        found.append((-1, turn, got))
    for work in works:
        work.wait()
    wrong = []
    for one, turn, x in found:
        members = dist.get_world_size(groups[one]) if one >= 0 else 1
        value = (turn + one) * members if one >= 0 else (rank - 1) % size + turn
        if x[0].item() != value:
            wrong.append((one, turn, x[0].item(), value))
    return wrong


@pytest.mark.slow
def test_one_order_of_launches():
    with ranks_by("spanning", 4) as ranks:
        for _ in range(3):
            assert ranks.run(all_at_once) == [[]] * 4


@pytest.mark.slow
def test_one_program_has_the_groups_of_a_mesh():
    with ranks_by("spanning", 4) as four:
        assert four.run(threads.meshes) == [([100.0] * 4,) * 3] * 4


@pytest.mark.slow
@pytest.mark.parametrize("wrap", threads.WAYS, ids=lambda wrap: wrap.__name__)
def test_ways_to_train(pair, wrap):
    agree(pair.run(training.together, wrap, "fused", 10), 10)


@pytest.mark.slow
def test_a_pipeline(spanning):
    agree([losses for losses in spanning.run(parallel.piped, "Schedule1F1B", 10) if losses], 10)


# -- Faults --


@pytest.mark.slow
@pytest.mark.parametrize("way", ["spanning", pytest.param("host", marks=pytest.mark.slow)])
def test_a_killed_rank(way):
    with ranks_by(way, timeout=40, backend="tpu") as ranks:
        faults.check_a_killed_rank(ranks)


@pytest.mark.slow
def test_a_rank_that_does_not_arrive():
    with ranks_by("spanning", timeout=4, backend="tpu") as ranks:
        ranks.run(faults.reduce_once)
        ranks.start(faults.reduce_once, 1)
        text, took = faults.error_of(ranks, 0, 40)
        assert "this rank did not arrive: 1 (the time-out is 4 s)" in text
        assert took < 30
        ranks.processes[1].kill()


@pytest.mark.slow
def test_what_goes_on():
    with ranks_by("spanning", timeout=4, backend="tpu") as ranks:
        assert ranks.run(faults.go_on_after) == [[3, 3, 3], [2, 2, 2]]


@pytest.mark.slow
def test_ranks_that_part():
    with ranks_by("spanning", timeout=4, backend="tpu") as ranks:
        ranks.start(faults.reduce_apart)
        for rank in (0, 1):
            text, _ = faults.error_of(ranks, rank, 40)
            assert "another rank launches another program" in text
            assert "the ranks part at collective 1: rank 0: all_reduce (SUM) of 4 f32 at" in text
            assert "in reduce_apart; rank 1: all_reduce (SUM) of 8 f32 at" in text


def abort_and_go_on(rank, size):
    group = dist.new_group()
    dist.all_reduce(torch.ones(2, device="tpu"), group=group)
    group._get_backend(torch.device("tpu")).abort()
    with pytest.raises(RuntimeError, match="it was aborted"):
        dist.all_reduce(torch.ones(2, device="tpu"), group=group)
        torch.tpu.synchronize()
    with contextlib.suppress(RuntimeError):
        torch.tpu.synchronize()
    x = torch.ones(2, device="tpu")
    dist.all_reduce(x)  # another group goes on
    return x.tolist()


def test_abort(spanning):
    assert spanning.run(abort_and_go_on) == [[2.0, 2.0]] * 2
