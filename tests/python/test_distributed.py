"""torch.distributed on "tpu": collectives of two processes, against Gloo on CPU tensors."""

import contextlib
import json
import pickle
import re
import time
from datetime import timedelta
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.distributed as dist
from ranks import GLOO, Ranks
from support import TIERS, only_tpu, slow_but

pytestmark = [only_tpu, pytest.mark.cpu_plugin("the transport is called from host memory")]

INTEGERS = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SMALL = (torch.float8_e5m2, torch.float8_e4m3fn)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (*INTEGERS, *FLOATS, *SMALL, *COMPLEX, torch.bool)
GLOO_REDUCES = (*FLOATS, *INTEGERS[:2], *INTEGERS[3:5])
REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
KINDS = (
    "all_reduce reduce broadcast all_gather all_gather_single reduce_scatter "
    "reduce_scatter_single all_to_all all_to_all_single gather scatter send"
).split()


@pytest.fixture(scope="module")
def ranks():
    with Ranks() as started:
        yield started


@pytest.fixture(scope="module")
def ranks_by_gloo():
    with Ranks(environment=lambda rank: GLOO) as started:
        yield started


def tensor_of(rank, dtype, numel=12):
    """What a rank starts with: small numbers, of which sums and products are exact."""
    generator = torch.Generator().manual_seed(rank + 1)
    whole = torch.randint(0, 4, (numel,), generator=generator)
    if dtype == torch.bool:
        return whole > 1
    if dtype.is_complex:
        return torch.complex(whole.double(), whole.flip(0).double()).to(dtype)
    if dtype.is_floating_point:
        return torch.tensor([0.0, 0.5, 1.0, 2.0])[whole].to(dtype)
    if dtype in (torch.uint64, torch.int64):
        return ((whole - 2 if dtype == torch.int64 else whole) * 2**61 + whole).to(dtype)
    return whole.to(dtype)


def reduced(name, tensors):
    """The reduction as PyTorch's operators on the host compute it."""
    first = tensors[0].dtype
    if first == torch.bool:
        name = {"SUM": "BOR", "MAX": "BOR", "PRODUCT": "BAND", "MIN": "BAND"}.get(name, name)
    narrow = first.itemsize == 1 and first.is_floating_point
    if name in ("MIN", "MAX") and first in (torch.uint16, torch.uint32, torch.uint64):
        both = [
            torch.tensor([int(x) for x in one.tolist()], dtype=torch.float64) for one in tensors
        ]
        stacked = torch.stack(tensors)
        chosen = torch.stack(both).argmin(0) if name == "MIN" else torch.stack(both).argmax(0)
        columns = stacked.view(torch.uint8).reshape(len(tensors), chosen.numel(), -1)
        picked = [columns[int(k), i] for i, k in enumerate(chosen)]
        return torch.stack(picked).flatten().view(first)
    if first in (torch.uint16, torch.uint32, torch.uint64):
        signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[first.itemsize]
        assert name != "AVG"
        return reduced(name, [one.view(signed) for one in tensors]).view(first)
    total = tensors[0].float() if narrow else tensors[0].clone()
    for one in tensors[1:]:
        one = one.float() if narrow else one
        if name in ("SUM", "AVG"):
            total = total + one
        elif name == "PRODUCT":
            total = total * one
        elif name in ("MIN", "MAX"):
            total = torch.minimum(total, one) if name == "MIN" else torch.maximum(total, one)
        else:
            total = {"BAND": total & one, "BOR": total | one, "BXOR": total ^ one}[name]
    if name == "AVG":
        whole = not (first.is_floating_point or first.is_complex)
        parts = torch.view_as_real(total) if first.is_complex else total  # as NCCL divides
        parts = parts.div(len(tensors), rounding_mode="trunc" if whole else None)
        total = torch.view_as_complex(parts) if first.is_complex else parts
    return total.to(first)


def perform(kind, rank, tensors, device, reduction="SUM", group=None):
    """The collective of the ranks' tensors, of which this rank gives its own; its results.

    rank: in the group. Its second rank, if there is one, is the root.
    """
    op = getattr(dist.ReduceOp, reduction)
    size = len(tensors)
    last, root = size - 1, min(1, size - 1)
    source = dist.get_global_rank(group or dist.group.WORLD, root)
    own = tensors[rank].clone().to(device)
    part = own.numel() // size
    parts = [torch.zeros(part, dtype=own.dtype, device=device) for _ in range(size)]
    wholes = [torch.zeros_like(own) for _ in range(size)]
    chunks = list(own.view(size, part).unbind())
    if kind == "all_reduce":
        dist.all_reduce(own, op, group)
        return [own]
    if kind == "reduce":
        dist.reduce(own, source, op, group)
        return [own] if rank == root else []
    if kind == "broadcast":
        dist.broadcast(own, source, group)
        return [own]
    if kind == "all_gather":
        dist.all_gather(wholes, own, group)
        return wholes
    if kind == "all_gather_single":
        whole = torch.zeros(size * own.numel(), dtype=own.dtype, device=device)
        dist.all_gather_single(whole, own, group)
        return [whole]
    if kind == "reduce_scatter":
        dist.reduce_scatter(parts[0], chunks, op, group)
        return [parts[0]]
    if kind == "reduce_scatter_single":
        dist.reduce_scatter_single(parts[0], own, op, group)
        return [parts[0]]
    if kind == "all_to_all":
        dist.all_to_all(parts, chunks, group)
        return parts
    if kind == "all_to_all_single":
        dist.all_to_all_single(wholes[0], own, group=group)
        return [wholes[0]]
    if kind == "gather":
        dist.gather(own, wholes if rank == root else None, source, group)
        return wholes if rank == root else []
    if kind == "scatter":
        dist.scatter(parts[0], chunks if rank == root else None, source, group)
        return [parts[0]]
    if rank == 0 and last:
        dist.send(own, group=group, group_dst=last)
    if rank != last or not last:
        return []
    dist.recv(wholes[0], group=group, group_src=0)
    return [wholes[0]]


def expected(kind, rank, tensors, reduction, group):
    """The same as of Gloo's on byte tensors, or by operators on the host."""
    if "reduce" in kind:
        total = reduced(reduction, tensors)
        if kind == "reduce":
            return [total] if rank == min(1, len(tensors) - 1) else []
        return [total.chunk(len(tensors))[rank] if "scatter" in kind else total]
    as_bytes = [one.view(torch.uint8) for one in tensors]
    found = perform(kind, rank, as_bytes, "cpu", group=group)
    return [one.view(tensors[0].dtype) for one in found]


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


def compare(rank, size, kind, dtypes, reductions, members=None):
    """How many cases there are, and those that differ from Gloo's, or from the host's operators.

    members: of a group of some ranks, which the others do not see.
    """
    group = dist.new_group(members) if members else None
    if members and rank not in members:
        return 0, []
    rank, size = (members.index(rank), len(members)) if members else (rank, size)
    count, wrong = 0, []
    for dtype in dtypes:
        tensors = [tensor_of(one, dtype, 12 if 12 % size == 0 else 2 * size) for one in range(size)]
        for reduction in reductions:
            if not applies(dtype, reduction, kind):
                continue
            count += 1
            found = perform(kind, rank, tensors, "tpu", reduction, group)
            wants = [expected(kind, rank, tensors, reduction, group)]
            if "reduce" in kind and dtype in GLOO_REDUCES and reduction != "AVG":
                wants.append(perform(kind, rank, tensors, "cpu", reduction, group))
            for want in wants:
                for got, one in zip(found, want, strict=True):
                    if got.dtype != one.dtype or not torch.equal(bits(got), bits(one)):
                        wrong.append((kind, dtype, reduction, members, got.cpu(), one))
    if group:
        dist.destroy_process_group(group)
    return count, wrong


def applies(dtype, reduction, kind):
    if "reduce" not in kind:
        return reduction == "SUM"
    if dtype.is_complex:
        return reduction in ("SUM", "AVG")
    if dtype.is_floating_point:
        return not reduction.startswith("B")
    return reduction != "AVG" or dtype not in (torch.bool, *INTEGERS[5:])


@pytest.mark.parametrize("kind", slow_but(KINDS, "all_reduce", "all_gather", "broadcast"))
def test_collectives_of_few_dtypes(ranks, kind):
    dtypes, reductions = (torch.float32, torch.int64), ("SUM", "AVG", "MAX")
    assert [wrong for _, wrong in ranks.run(compare, kind, dtypes, reductions)] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("started", ["ranks", "ranks_by_gloo"])
def test_collectives_of_all_dtypes(request, started, kind):
    ranks = request.getfixturevalue(started)
    assert [wrong for _, wrong in ranks.run(compare, kind, ALL, REDUCTIONS)] == [[], []]


GROUPS = ([0, 1, 2, 3], [0, 2], [1, 2, 3], [0, 1, 3], [2])


@pytest.mark.slow
@pytest.mark.parametrize("transport", [{}, GLOO])
def test_collectives_of_groups(transport):
    """Of all dtypes, by groups of all sizes; prints how many."""
    total = 0
    with Ranks(4, environment=lambda rank: transport) as four:
        for kind in KINDS:
            for members in GROUPS:
                found = four.run(compare, kind, ALL, REDUCTIONS, members)
                assert [wrong for _, wrong in found] == [[]] * 4
                total += max(count for count, _ in found)
    print(f"{total} cases, no difference")


def exchange(rank, size):
    """Both send first, or both receive first: neither waits for the other to do the opposite."""
    other = 1 - rank
    own, got = torch.full((100_000,), float(rank), device="tpu"), torch.empty(100_000, device="tpu")
    received = []
    for receive_first in (False, True):
        calls = [lambda: dist.isend(own, other), lambda: dist.irecv(got, other)]
        for work in [call() for call in (reversed(calls) if receive_first else calls)]:
            work.wait()
        received.append(got[-1].item())
        got.zero_()
    batch = [dist.P2POp(dist.irecv, got, other), dist.P2POp(dist.isend, own, other)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return [*received, got[0].item()]


def send_to_itself(rank, size):
    """As NCCL's batches may."""
    own, got = torch.full((4,), rank + 1.0, device="tpu"), torch.zeros(4, device="tpu")
    batch = [dist.P2POp(dist.irecv, got, rank), dist.P2POp(dist.isend, own, rank)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return got.tolist()


def test_messages_to_oneself(ranks):
    assert ranks.run(send_to_itself) == [[1] * 4, [2] * 4]


def test_messages_cross(ranks):
    assert ranks.run(exchange) == [[1, 1, 1], [0, 0, 0]]


def exchange_in_debug(rank, size, safe):
    block = torch.tpu.distributed.spmd_safe() if safe else contextlib.nullcontext()
    with block, torch.tpu.set_eager_mode("debug"):
        return exchange(rank, size)


@pytest.mark.parametrize("safe", [False, True])
def test_debug_does_not_wait_for_messages(ranks, safe):
    assert ranks.run(exchange_in_debug, safe) == ranks.run(exchange)


def send_and_leave(rank, size):
    """The sender ends its group before the receiver asks for the message."""
    group = dist.new_group()
    x = torch.full((3,), 7.0 * (1 - rank), device="tpu")
    if rank == 0:
        dist.send(x, 1, group=group)
    else:
        time.sleep(0.3)
        dist.recv(x, 0, group=group)
    dist.destroy_process_group(group)
    return x.tolist()


def test_messages_outlive_their_group(ranks):
    assert ranks.run(send_and_leave)[1] == [7, 7, 7]


def receive_from_any(rank, size):
    if rank == 0:
        dist.send(torch.arange(3.0, device="tpu"), 1, tag=5)
        return None
    got = torch.empty(3, device="tpu")
    source = dist.recv(got, tag=5)
    return source, got.tolist()


def test_receiving_from_any_rank(ranks):
    assert ranks.run(receive_from_any)[1] == (0, [0, 1, 2])


def receive_from_all(rank, size):
    """From any before anything is sent; one that names its sender gets what that sent."""
    if rank:
        ready = torch.empty(1, device="tpu")
        dist.recv(ready, 0)
        for number in (rank, 10.0 * rank):
            dist.send(torch.full((2,), float(number), device="tpu"), 0)
        return []
    first, second = torch.empty(2, device="tpu"), torch.empty(2, device="tpu")
    work = dist.irecv(first)
    assert not work.is_completed()
    for one in range(1, size):
        dist.send(torch.ones(1, device="tpu"), one)
    work.wait()
    got = [(work._source_rank(), first.tolist())]
    dist.recv(second, got[0][0])
    got.append((got[0][0], second.tolist()))
    for _ in range(2 * size - 4):
        source = dist.recv(first)
        got.append((source, first.tolist()))
    return got


def check_received_from_all(ranks, size):
    got = ranks.run(receive_from_all)[0]
    first = got[0][0]
    assert got[:2] == [(first, [first] * 2), (first, [10 * first] * 2)]
    assert sorted(got) == sorted((r, [n] * 2) for r in range(1, size) for n in (r, 10 * r))


def test_receiving_from_all_ranks(ranks):
    check_received_from_all(ranks, 2)


def all_to_all_uneven(rank, size):
    splits = [[1, 2], [3, 0]]  # rows that the first index sends to the second
    rows = sum(splits[rank])
    own = torch.arange(2.0 * rows, device="tpu").view(rows, 2) + 10 * rank
    to_me = [splits[one][rank] for one in range(size)]
    got = torch.empty(sum(to_me), 2, device="tpu")
    dist.all_to_all_single(got, own, to_me, splits[rank])
    return got.tolist()


def test_uneven_all_to_all(ranks):
    first, second = ranks.run(all_to_all_uneven)
    assert first == [[0, 1], [10, 11], [12, 13], [14, 15]]
    assert second == [[2, 3], [4, 5]]


def reduce_views(rank, size):
    """Tensors that do not lie row by row, or share their memory, and one without elements."""
    whole = torch.arange(24.0, device="tpu").view(4, 6) + rank
    dist.all_reduce(whole.t()[1:5:2])
    parts = torch.zeros(2 * size, device="tpu")
    dist.all_gather(list(parts.chunk(size)), torch.full((2,), 1.0 + rank, device="tpu"))
    dist.all_reduce(torch.empty(0, 3, device="tpu"))
    number = torch.tensor(rank + 1, device="tpu")
    dist.all_reduce(number)
    return whole.tolist(), parts.tolist(), number.item()


def test_views(ranks):
    tensor = torch.arange(24.0).view(4, 6)
    for rank, (whole, parts, number) in enumerate(ranks.run(reduce_views)):
        want = tensor + rank
        want.t()[1:5:2] = (2 * tensor + 1).t()[1:5:2]
        assert whole == want.tolist() and parts == [1, 1, 2, 2] and number == 3


def other_reductions(rank, size):
    x = torch.full((3,), rank + 1.0, device="tpu")
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    y = [torch.full((2,), rank + 1.0, device="tpu"), torch.full((3,), 1.0, device="tpu")]
    with dist._coalescing_manager(async_ops=True) as works:
        for one in y:
            dist.all_reduce(one)
    works.wait()
    gathered = [torch.empty(2, device="tpu"), torch.empty(4, device="tpu")]
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(gathered[0], torch.full((1,), float(rank), device="tpu"))
        dist.all_gather_into_tensor(gathered[1], torch.full((2,), float(rank), device="tpu"))
    return [one.tolist() for one in (x, *y, *gathered)]


def test_premultiplied_and_coalesced(ranks):
    want = [[1.5] * 3, [3, 3], [2, 2, 2], [0, 1], [0, 0, 1, 1]]
    assert ranks.run(other_reductions) == [want, want]


def gather_several(rank, size):
    """all_gather_coalesced: of each rank a list of all that it gave."""
    own = [torch.full((2,), float(rank), device="tpu"), torch.full((1, 3), 10.0, device="tpu")]
    found = [[torch.empty_like(one) for one in own] for _ in range(size)]
    dist.all_gather_coalesced(found, own)
    return [[one.tolist() for one in of_rank] for of_rank in found]


def test_gathering_several(ranks):
    want = [[[0, 0], [[10, 10, 10]]], [[1, 1], [[10, 10, 10]]]]
    assert ranks.run(gather_several) == [want, want]


def split(rank, size):
    """Groups that are split from the whole; those with Gloo beside name the backend to keep."""
    dist.distributed_c10d._get_default_group().bound_device_id = torch.device("tpu", 0)
    own = dist.split_group(split_ranks=[[0], [1]], backend="tpu:tpu")
    x = torch.ones(2, device="tpu")
    dist.all_reduce(x, group=own)
    both = dist.split_group(split_ranks=[[1, 0]], timeout=timedelta(seconds=5), backend="tpu:tpu")
    dist.all_reduce(x, group=both)
    backend = both._get_backend(torch.device("tpu"))
    options = backend.options
    dist.distributed_c10d._get_default_group().bound_device_id = None
    return x.tolist(), dist.get_world_size(own), options._timeout.seconds, backend.rank()


def test_split_groups(ranks):
    assert ranks.run(split) == [([2, 2], 1, 5, rank) for rank in range(2)]


def time_outs(rank, size):
    groups = [dist.new_group(), dist.new_group(timeout=timedelta(minutes=30))]
    backends = [one._get_backend(torch.device("tpu")) for one in groups]
    return [one.options._timeout.seconds for one in backends]


def test_default_time_out(ranks):
    """10 minutes, as NCCL's."""
    assert ranks.run(time_outs) == [[600, 1800]] * 2


def watched(rank, size):
    """What a profiler sees, and whether what was waited for is complete."""
    x = torch.ones(3, device="tpu")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        complete = work.is_completed()
    return complete, [one.name for one in profile.events() if one.name.startswith("tpu:")]


def test_profiled(ranks):
    assert ranks.run(watched) == [(True, ["tpu:all_reduce"])] * 2


def traced(rank, size, folder):
    """What a trace tells of collectives, as PyTorch's analysers of traces read it."""
    x, all_ = torch.ones(3, device="tpu"), torch.empty(6, device="tpu")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(x)
        dist.all_gather_into_tensor(all_, x)
    path = f"{folder}/{rank}.json"
    profile.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    told = [one["args"] for one in events if one.get("name") == "record_param_comms"]
    names = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Process Group Ranks")
    return [[one[name] for name in names] for one in told]


def test_traces_tell_of_collectives(ranks, tmp_path):
    want = [["allreduce", 3, 3, "Float"], ["_allgather_base", 3, 6, "Float"]]
    assert ranks.run(traced, str(tmp_path)) == [[[*one, "[0, 1]"] for one in want]] * 2


def monitored(rank, size):
    """A barrier of all, and one that the second rank does not come to."""
    dist.monitored_barrier(timeout=timedelta(seconds=30))
    if rank == 0:
        with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier in 100 ms"):
            dist.monitored_barrier(timeout=timedelta(milliseconds=100))


@pytest.mark.slow
def test_monitored_barriers():
    with Ranks(backend="tpu") as two:  # of their own, since a failed barrier ends a group
        two.run(monitored)


def objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    lists = [rank, "text"] if rank == 0 else [None, None]
    dist.broadcast_object_list(lists, src=0)
    return found, lists


def test_objects(ranks):
    want = ([{"rank": 0}, {"rank": 1}], [0, "text"])
    assert ranks.run(objects) == [want, want]


class Holder:
    """What is pickled by its class's own words holds a tensor all the same."""

    def __init__(self, tensor):
        self.tensor = tensor


def foreign(rank, size, folder):
    """What other ranks have pickled or saved comes to this one's own device."""
    own = torch.device("tpu", rank)
    x = torch.full((2,), float(rank), device="tpu")
    assert x.device == own
    found = [None] * size
    dist.all_gather_object(found, {"x": x, "holder": Holder(x + 10)})
    lists = [x, torch.nn.Parameter(x)] if rank == 0 else [None, None]
    dist.broadcast_object_list(lists, src=0)
    file = f"{folder}/of-{rank}.pt"
    torch.save({"x": x, "half": x.half()}, file)
    torch.save(x, f"{file}.old", _use_new_zipfile_serialization=False)
    queued = ForkingPickler.dumps(x.clone())
    pickled = [None] * size
    dist.all_gather_object(pickled, pickle.dumps(x))
    dist.barrier()
    other = f"{folder}/of-{1 - rank}.pt"
    read = torch.load(other, weights_only=True)
    all_read = [
        *(one["x"] for one in found),
        *(one["holder"].tensor - 10 for one in found),
        *lists,
        read["x"],
        read["half"].float(),
        torch.load(f"{other}.old"),
        torch.load(other, map_location="tpu")["x"],
        *map(pickle.loads, pickled),
        pickle.loads(queued),
    ]
    assert {one.device for one in all_read} == {own}
    assert torch.load(other, map_location="cpu")["x"].device.type == "cpu"
    return [one.tolist()[0] for one in all_read]


@pytest.mark.slow
def test_tensors_of_other_ranks_come_to_the_own_device(tmp_path):
    environment = lambda rank: {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}  # noqa: E731
    with Ranks(environment=environment) as pair:
        results = pair.run(foreign, str(tmp_path))
    for rank, found in enumerate(results):
        other = 1 - rank
        assert found == [0, 1, 0, 1, 0, 0, other, other, other, other, 0, 1, rank]


def test_what_another_device_saved_in_a_process_alone(tmp_path):
    """It owns no second one, and is no rank: PyTorch says what to do."""
    x = torch.ones(2, device="tpu")
    file = tmp_path / "x.pt"
    torch.save(x, file)
    assert torch.load(file).device == x.device
    text = f"tpu:{torch.tpu.device_count()}"
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(file, map_location=text)


def merge(rank, size):
    """Groups of one rank each become one group, in which the last to come is the first rank."""
    own = [dist.new_group([one]) for one in range(size)][rank]
    store = dist.PrefixStore("merge", dist.distributed_c10d._get_default_store())
    time.sleep(0.3 * (size - 1 - rank))
    merged = own.merge_remote_group(store, size, timedelta(seconds=20), f"merged-{size}")
    x = torch.tensor([2.0**rank], device="tpu")
    merged.allreduce([x]).wait()
    everyone = [torch.empty(1, device="tpu") for _ in range(size)]
    merged.allgather([everyone], [torch.tensor([float(rank)], device="tpu")]).wait()
    root = torch.tensor([float(rank)], device="tpu")
    merged.broadcast(root, 1).wait()
    options = merged._get_backend(torch.device("tpu")).options
    with torch.tpu.set_eager_mode("debug"):
        merged.allreduce([torch.ones(2, device="tpu")]).wait()
    merged.barrier().wait()
    return merged.rank(), x.item(), [one.item() for one in everyone], root.item(), options


def check_merge(world, size):
    results = world.run(merge_facts)
    ranks = [one[0] for one in results]
    assert sorted(ranks) == list(range(size))
    gathered = [float(ranks.index(one)) for one in range(size)]
    for rank, (_, total, everyone, root, name) in enumerate(results):
        assert (total, everyone, root) == (2**size - 1, gathered, gathered[1]), rank
        assert name == f"merged-{size}"


def merge_facts(rank, size):
    *facts, options = merge(rank, size)
    return *facts, options.group_name


def test_merging(ranks):
    check_merge(ranks, 2)


def uneven_lists(rank, size):
    """all_gather and reduce_scatter of tensors of another size on each rank, as NCCL's."""
    own = torch.full((rank + 1, 2), rank + 1.0, device="tpu", requires_grad=True)
    everyone = [torch.empty(one + 1, 2, device="tpu") for one in range(size)]
    dist.all_gather(everyone, own)
    parts = [torch.full((one + 1, 2), 10.0 * one + rank, device="tpu") for one in range(size)]
    summed, most = torch.empty(rank + 1, 2, device="tpu"), torch.empty(rank + 1, 2, device="tpu")
    dist.reduce_scatter(summed, parts)
    dist.reduce_scatter(most, parts, dist.ReduceOp.MAX, async_op=True).wait()
    for one, part in enumerate(parts):  # are as they were
        assert part.eq(10 * one + rank).all()
    with pytest.raises(RuntimeError, match=f"all_gather.*{2 * rank + 2} elements of f32, not"):
        dist.all_gather(everyone[::-1], own)
    return [one.tolist() for one in (*everyone, summed, most)]


def check_uneven_lists(world):
    for rank, found in enumerate(world.run(uneven_lists)):
        rows = rank + 1
        wanted = [[[1.0] * 2], [[2.0] * 2] * 2, [[20.0 * rank + 1] * 2] * rows]
        assert found == [*wanted, [[10.0 * rank + 1] * 2] * rows]


def test_lists_of_uneven_tensors(ranks):
    check_uneven_lists(ranks)


def subgroups(rank, size):
    """A group of its own for each rank, and another one of both."""
    own = [dist.new_group([one]) for one in range(size)][rank]
    both = dist.new_group([0, 1])
    x = torch.ones(2, device="tpu")
    dist.all_reduce(x, group=own)
    alone = x.tolist()
    first = dist.all_reduce(x, group=both, async_op=True)
    second = dist.all_reduce(x, async_op=True)
    second.wait()
    first.wait()
    result = x.tolist()
    dist.barrier(both)
    sequence = both._get_backend(torch.device("tpu"))._get_sequence_number_for_group()
    dist.destroy_process_group(both)
    return alone, result, sequence


def test_subgroups(ranks):
    assert ranks.run(subgroups) == [([1, 1], [4, 4], 1)] * 2


def reduce_crosswise(rank, size):
    """In two groups of the same ranks, which each rank asks in another order."""
    first, second = dist.new_group(), dist.new_group()
    found = []
    for _ in range(5):
        x, y = torch.full((4,), 1.0 + rank, device="tpu"), torch.full((4,), 10.0, device="tpu")
        asked = [(first, x), (second, y)]
        for group, one in asked if rank % 2 else asked[::-1]:
            work = dist.all_reduce(one, group=group, async_op=True)
            time.sleep(0.02)
        work.wait()
        found += [x[0].item(), y[0].item()]
    return found


def test_groups_of_the_same_ranks(ranks):
    assert ranks.run(reduce_crosswise) == [[3.0, 20.0] * 5] * 2


def futures(rank, size):
    x = torch.full((2,), rank + 1.0, device="tpu")
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2).wait()
    work.wait()
    torch.tpu.synchronize()
    return doubled.tolist(), work.is_completed(), work.is_success()


def test_futures(ranks):
    assert ranks.run(futures) == [([6, 6], True, True)] * 2


def refusals(rank, size):
    texts = []
    for call in (
        lambda: dist.all_reduce(torch.ones(2, device="tpu"), dist.ReduceOp.BAND),
        lambda: dist.all_gather_into_tensor(
            torch.empty(3, device="tpu"), torch.ones(2, device="tpu")
        ),
        lambda: dist.all_to_all_single(
            torch.empty(2, device="tpu"), torch.ones(2, device="tpu"), [1, 2], [1, 1]
        ),
    ):
        with pytest.raises((RuntimeError, ValueError)) as error:
            call()
        texts.append(str(error.value).splitlines()[0])
    return texts


def test_refusals(ranks):
    for bits_of_floats, sizes, splits in ranks.run(refusals):
        assert "BAND, BOR and BXOR are for integers and bools, not for f32" in bits_of_floats
        assert "must have 2 times the elements of the input tensor" in sizes
        assert "split sizes" in splits.lower()


def functional(rank, size, compiled):
    import torch.distributed._functional_collectives as funcol

    def f(x):
        y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
        z = funcol.all_gather_tensor(y + rank, 0, dist.group.WORLD)
        return funcol.reduce_scatter_tensor(z, "avg", 0, dist.group.WORLD) + y

    call = torch.compile(f, backend="tpu") if compiled else f
    results = [
        call(torch.full((4,), rank + number, device="tpu")).tolist() for number in (1.0, 2.0)
    ]
    reasons = [one.why for one in torch_tpu_compiled()] if compiled else []
    return results, reasons


def torch_tpu_compiled():
    from torch_tpu.compiler import compiled

    return compiled()


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_functional_collectives(ranks, compiled):
    for rank, (results, reasons) in enumerate(ranks.run(functional, compiled)):
        assert results == [[12 + rank] * 4, [20 + rank] * 4]
        assert not any(reasons)


def issue_apart(rank, size, kind, mode, timeout):
    """What is said where the ranks differ at their second collective; in a group of its own."""
    group = dist.new_group(timeout=timedelta(seconds=timeout))
    x, y = torch.ones(4, device="tpu"), torch.ones(8, device="tpu")
    with torch.tpu.set_eager_mode(mode):
        dist.all_reduce(x, group=group)
        x.cpu()
        with pytest.raises(RuntimeError) as found:
            if kind == "kind" and rank == 0:
                dist.all_reduce(x, group=group)
            elif kind == "kind":
                dist.broadcast(x, 0, group=group)
            elif kind == "size":
                dist.all_reduce(y if rank else x, group=group)
            elif kind == "dtype":
                dist.all_reduce(x.int() if rank else x, group=group)
            elif kind == "op":
                op = dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM
                dist.all_reduce(x, op, group=group)
            elif kind == "root":
                dist.broadcast(x, rank, group=group)
            else:
                splits = [1, 3]
                dist.all_to_all_single(torch.empty_like(x), x, splits, splits, group=group)
            x.cpu()
            y.cpu()
    return str(found.value)


APART = {
    "kind": "rank 0: all_reduce (SUM) of 4 f32 at {}; rank 1: broadcast of 4 f32 from rank 0 at {}",
    "size": "rank 0: all_reduce (SUM) of 4 f32 at {}; rank 1: all_reduce (SUM) of 8 f32 at {}",
    "dtype": "rank 0: all_reduce (SUM) of 4 f32 at {}; rank 1: all_reduce (SUM) of 4 i32 at {}",
    "op": "rank 0: all_reduce (SUM) of 4 f32 at {}; rank 1: all_reduce (MAX) of 4 f32 at {}",
    "root": "rank 0: broadcast of 4 f32 from rank 0 at {}; "
    "rank 1: broadcast of 4 f32 from rank 1 at {}",
    "splits": "rank 0: all_to_all of f32 sends 3 elements to rank 1 at {}; "
    "rank 1 takes 1 from it at {}",
}
LINE = r".*test_distributed\.py:\d+ in issue_apart"


@pytest.mark.parametrize("kind", slow_but(APART, "kind", "splits"))
def test_debug_says_where_ranks_part(ranks, kind):
    where = re.escape(APART[kind]).replace(r"\{\}", LINE)
    for text in ranks.run(issue_apart, kind, "debug", 30):
        assert re.search(f"the ranks part at collective 1: {where}", text), text


def not_in_debug(rank, size):
    """What is told to those who wait for others' words; in a group of its own."""
    group = dist.new_group(timeout=timedelta(seconds=2))
    x = torch.ones(4, device="tpu")
    if rank == 0:
        with torch.tpu.set_eager_mode("debug"), pytest.raises(dist.DistBackendError) as found:
            dist.all_reduce(x, group=group)
        return str(found.value)
    return ""


@pytest.mark.slow
def test_debug_on_one_rank(ranks):
    text = ranks.run(not_in_debug)[0]
    assert "rank 1 has not said what its collective 0 is, while this one's is all_reduce" in text
    assert "all ranks have to be in Debug mode" in text


def in_debug(rank, size):
    """Different lines are no difference."""
    with torch.tpu.set_eager_mode("debug"):
        group, x = dist.new_group(), torch.ones(4, device="tpu")
        if rank:
            dist.all_reduce(x, group=group)
        else:
            dist.all_reduce(x, group=group)
        parts = [torch.empty_like(x) for _ in range(size)] if rank == 1 else None
        dist.gather(x, parts, dst=1, group=group)
        dist.barrier(group=group)
        splits = [[1, 3], [3, 1]][rank]
        y = torch.empty(splits[0] + [3, 1][rank], device="tpu")
        dist.all_to_all_single(y, x, [splits[0], [3, 1][rank]], splits, group=group)
    return y.tolist()


def test_debug_of_ranks_that_agree(ranks):
    assert ranks.run(in_debug) == [[2.0] * 4, [2.0] * 4]


def captured(rank, size):
    x = torch.full((3,), rank + 1.0, device="tpu")
    y = torch.zeros(3, device="tpu")
    dist.barrier()
    graph = torch.tpu.Graph()
    with torch.tpu.graph(graph):
        z = x * 2
        dist.all_reduce(z)
        y.copy_(z + 1)
    results = []
    for _ in range(3):
        graph.replay()
        results.append(y[0].item())
        x += 1
    return results


def test_graphs(ranks):
    assert ranks.run(captured) == [[7, 11, 15]] * 2


def among_operators(rank, size, safe):
    """The launches of a few operators and two collectives, and what they compute."""
    import torch_tpu._C as glue

    results, counts = [], []
    glue._force_tier(TIERS.index("chunks"))
    with torch.tpu.set_eager_mode("fused"), contextlib.ExitStack() as stack:
        if safe:
            stack.enter_context(torch.tpu.distributed.spmd_safe())
        for _ in range(4):
            x = torch.full((4,), rank + 1.0, device="tpu")
            before = torch.tpu.metrics()["launches"]
            y = x * 2 + 1
            dist.all_reduce(y, op=dist.ReduceOp.SUM)
            y = y * 3
            work = dist.all_reduce(y, async_op=True)
            work.wait()
            results.append((y - 1).tolist())
            counts.append(torch.tpu.metrics()["launches"] - before)
    glue._force_tier(TIERS.index("auto"))
    assert not torch_tpu_setting()
    return results[-1], counts[-1]


def torch_tpu_setting():
    from torch_tpu.tpu.modes import Setting

    return Setting.SPMD_SAFE.now()


@pytest.mark.parametrize("safe", [False, True])
def test_collectives_among_operators(ranks, safe):
    launches = 1 if safe else 5
    assert ranks.run(among_operators, safe) == [([47] * 4, launches)] * 2


def fly(rank, size, folder):
    """The last entry of the record, which lies in files, too."""
    x = torch.ones(6, device="tpu")
    dist.all_reduce(x)
    x.cpu()
    torch.tpu.distributed.dump_flight_record(f"{folder}/trace{rank}")
    torch.tpu.distributed.dump_flight_record(f"{folder}/rank{rank}.json")
    return torch.tpu.distributed.flight_record()["entries"][-1]


def test_the_flight_record(ranks, tmp_path):
    for entry in ranks.run(fly, str(tmp_path)):
        assert entry["profiling_name"] == "gloo:all_reduce"
        assert entry["input_sizes"] == [[6]] and entry["input_dtypes"] == ["f32"]
        assert entry["state"] == "completed"
        assert entry["frames"][0]["filename"].endswith("test_distributed.py")
        assert entry["frames"][0]["name"] == "fly"
    assert json.loads((tmp_path / "rank0.json").read_text())["entries"]


@pytest.mark.slow
def test_pytorchs_analyser_reads_the_flight_record(ranks, tmp_path):
    pytest.importorskip("tabulate")  # the analyser's own, for its tables
    ranks.run(fly, str(tmp_path))
    for file in tmp_path.glob("*.json"):
        file.unlink()
    from torch.distributed.flight_recorder import fr_trace

    fr_trace.main([str(tmp_path), "-p", "trace"])
