"""Ranks that are threads of one process, each with a virtual device: StableHLO's collectives."""

import copy
from datetime import timedelta

import pytest
import test_distributed as processes
import test_distributed_parallel as parallel
import test_distributed_training as training
import torch
import torch.distributed as dist
import torch.nn.functional as F
from language import agree
from ranks import World
from support import only_tpu, python

pytestmark = [only_tpu, pytest.mark.cpu_plugin("it has virtual devices")]


@pytest.fixture(scope="module")
def pair():
    with World(2) as world:
        yield world


@pytest.fixture(scope="module")
def eight():
    with World(8) as world:
        yield world


@pytest.mark.slow
@pytest.mark.parametrize("kind", processes.KINDS)
def test_collectives_of_few_dtypes(pair, kind):
    dtypes, reductions = (torch.float32, torch.int64), ("SUM", "AVG", "MAX", "BXOR")
    results = pair.run(processes.compare, kind, dtypes, reductions)
    assert [wrong for _, wrong in results] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("kind", processes.KINDS)
def test_collectives_of_all_dtypes(eight, kind):
    results = eight.run(processes.compare, kind, processes.ALL, processes.REDUCTIONS)
    assert [wrong for _, wrong in results] == [[]] * 8


@pytest.mark.slow
def test_messages_cross(pair):
    assert pair.run(processes.exchange) == [[1, 1, 1], [0, 0, 0]]


def test_receiving_from_any_rank(pair):
    assert pair.run(processes.receive_from_any)[1] == (0, [0, 1, 2])
    processes.check_received_from_all(pair, 2)


@pytest.mark.slow
def test_receiving_from_all_ranks(eight):
    processes.check_received_from_all(eight, 8)


def receive_what_nobody_sends(rank, size):
    dist.barrier()
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="no rank has sent a message to rank 0"):
            dist.irecv(torch.empty(2, device="tpu")).wait(timedelta(milliseconds=200))
    dist.barrier()


def test_receiving_what_nobody_sends(pair):
    pair.run(receive_what_nobody_sends)


def test_groups_of_the_same_ranks(pair):
    processes.test_groups_of_the_same_ranks(pair)


def test_messages_to_oneself(pair):
    processes.test_messages_to_oneself(pair)


def test_uneven_all_to_all(pair):
    first, second = pair.run(processes.all_to_all_uneven)
    assert first == [[0, 1], [10, 11], [12, 13], [14, 15]]
    assert second == [[2, 3], [4, 5]]


def test_views_objects_groups_and_futures(pair):
    processes.test_views(pair)
    processes.test_premultiplied_and_coalesced(pair)
    processes.test_objects(pair)
    processes.test_subgroups(pair)
    processes.test_futures(pair)


def meshes(rank, size):
    """Groups along both dims of a mesh, in a captured and in a compiled program."""
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("tpu", (size // 2, 2), mesh_dim_names=("a", "b"))
    first, second = mesh["a"].get_group(), mesh["b"].get_group()

    def compute(x):
        y = functional.all_reduce(x + 1, "sum", first) * 10
        return functional.all_gather_tensor(functional.all_reduce(y, "sum", second), 0, first)

    x = torch.full((2,), float(rank), device="tpu")
    captured = torch.tpu.Graph()
    with torch.tpu.graph(captured):
        y = compute(x) + 0
    captured.replay()
    return compute(x).tolist(), y.tolist(), torch.compile(compute)(x).tolist()


@pytest.mark.slow
def test_one_program_has_the_groups_of_a_mesh():
    with World(4) as four:
        assert four.run(meshes) == [([100.0] * 4,) * 3] * 4


def compile_exchange(rank, size):
    """Its parts have sizes, if equal ones, as functional collectives always have."""
    import torch.distributed._functional_collectives as functional

    def exchange(x):
        return functional.all_to_all_single(x + 1, None, None, dist.group.WORLD) * 2

    return torch.compile(exchange)(torch.full((2,), float(rank), device="tpu")).tolist()


@pytest.mark.slow
def test_a_compiled_exchange(pair):
    assert pair.run(compile_exchange) == [[2.0, 4.0]] * 2


def reduce_in_no_mesh(rank, size):
    group = dist.new_group([0, 1, 2])
    captured = torch.tpu.Graph()
    x = torch.ones(2, device="tpu")
    if rank < 3:
        with torch.tpu.graph(captured):
            dist.all_reduce(x, group=group)


@pytest.mark.slow
def test_a_group_that_no_captured_program_can_have():
    with World(4) as four, pytest.raises(AssertionError, match="along no dim of a mesh"):
        four.run(reduce_in_no_mesh)


def raise_on_one(rank, size):
    if rank == 1:
        raise ValueError("no more data")
    dist.all_reduce(x := torch.ones(2, device="tpu"))
    return x.tolist()


def reduce_on_one(rank, size):
    x = torch.ones(2, device="tpu")
    if rank == 0:
        dist.all_reduce(x)
    return x.tolist()


@pytest.mark.slow
def test_errors_end_all_ranks_and_the_next_world_is_well():
    with World(2, timeout=2) as world:
        with pytest.raises(AssertionError, match="ValueError: no more data\non rank 1 of 2"):
            world.run(raise_on_one)
        with pytest.raises(AssertionError, match=r"1 of 2 devices came to run it.* within 2 s: 1"):
            world.run(reduce_on_one)
        processes.test_objects(world)


def test_lists_of_uneven_tensors(pair):
    processes.check_uneven_lists(pair)


def test_merging(pair):
    processes.check_merge(pair, 2)


@pytest.mark.parametrize("ask", ["uneven parts", "Debug"])
def test_who_waits_for_the_word_of_a_rank_that_raises(ask):
    """The time-out of 10 minutes is not what ends it."""
    status, _out, err = python(
        f"""
import torch, torch.distributed as dist
from torch_tpu.distributed import simulate
def uneven():
    x = torch.ones(3, device="tpu")
    dist.all_to_all_single(torch.empty(2, device="tpu"), x, [1, 1], [1, 2])
def debug():
    with torch.tpu.set_eager_mode("debug"):
        dist.all_reduce(torch.ones(3, device="tpu"))
def ask():
    if dist.get_rank() == 1:
        raise ValueError("no more data")
    {{"uneven parts": uneven, "Debug": debug}}[{ask!r}]()
simulate(ask, 2)
""",
        timeout=60,
    )
    assert status == 1
    assert "ValueError: no more data" in err, err


def test_what_is_refused():
    status, out, err = python(
        """
import torch, torch_tpu.distributed as distributed
torch.ones(1, device="tpu")
for size, args in ((2, (print,)), (1, (print, 1))):
    try:
        distributed.simulate(distributed.simulate, size, args)
    except RuntimeError as error:
        print(error)
"""
    )
    assert status == 0, err
    few, nested = out.splitlines()
    assert "world_size is 2, but the plugin has 1 devices" in few
    assert "this process has a process group" in nested


def test_a_group_of_processes_is_well_after_a_world_that_failed():
    status, out, err = python(
        """
import torch, torch.distributed as dist
from torch_tpu.distributed import simulate
try:
    simulate(lambda: 1 / 0, 1)
except ZeroDivisionError:
    dist.init_process_group("tpu", store=dist.HashStore(), rank=0, world_size=1)
    x = torch.ones(2, device="tpu")
    dist.all_reduce(x, async_op=True).wait()
    print(x.tolist())
"""
    )
    assert (status, out) == (0, "[1.0, 1.0]\n"), err


# -- Training --


WAYS = (training.ddp, training.hooked_ddp, training.fsdp1, training.fsdp2)


@pytest.mark.slow
@pytest.mark.parametrize("wrap", WAYS, ids=lambda wrap: wrap.__name__)
def test_ways_to_train(pair, wrap):
    agree(pair.run(training.together, wrap, "strict", 10), 10)


def lose_in_parts(rank, size, logits, targets):
    """Some ranks are in loss_parallel while others have left it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import loss_parallel

    mesh, found = init_device_mesh("tpu", (size,)), []
    for _ in range(3):
        own = distribute_tensor(logits.to("tpu").requires_grad_(), mesh, [Shard(1)])
        with loss_parallel():
            loss = F.cross_entropy(own, targets.to("tpu"))
            loss.backward()
        whole = own.grad.full_tensor()
        found.append((loss.full_tensor().item(), whole.log_softmax(1).sum().item()))
    return found


def test_a_loss_of_parts(pair):
    logits, targets = torch.randn(6, 16), torch.tensor([3, 1, 15, 0, 7, 7])
    leaf = logits.clone().requires_grad_()
    loss = F.cross_entropy(leaf, targets)
    loss.backward()
    expected = (loss.item(), leaf.grad.log_softmax(1).sum().item())
    for found in pair.run(lose_in_parts, logits, targets):
        assert found == [pytest.approx(expected, rel=1e-5)] * 3


@pytest.mark.slow
def test_a_pipeline(pair):
    agree([losses for losses in pair.run(parallel.piped, "Schedule1F1B", 10) if losses], 10)


@pytest.mark.slow
def test_context_parallel(pair):
    agree(pair.run(parallel.in_context, "allgather", 10), 10)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=256,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config)


def train_llama(model, steps, part, everyone):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step % 4)
        tokens = part(torch.randint(0, 256, (8, 16), generator=generator))
        logits = model(input_ids=tokens).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(everyone(loss.detach()))
    return losses


def spread_llama(rank, size, model, steps):
    """FSDP2 over four devices, tensor parallel over two."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("tpu", (size // 2, 2), mesh_dim_names=("data", "tensor"))
    data, own = mesh["data"], copy.deepcopy(model).to("tpu")
    columns = "self_attn.q_proj self_attn.k_proj self_attn.v_proj mlp.gate_proj mlp.up_proj"
    plan = {name: ColwiseParallel() for name in columns.split()}
    plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    for layer in own.model.layers:
        parallelize_module(layer, mesh["tensor"], plan)
        fully_shard(layer, mesh=data)
    fully_shard(own, mesh=data)

    def part(tokens):
        return tokens.chunk(size // 2)[data.get_local_rank()].to("tpu")

    def everyone(loss):
        dist.all_reduce(loss, dist.ReduceOp.AVG, data.get_group())
        return float(loss)

    return train_llama(own, steps, part, everyone)


@pytest.mark.slow
def test_a_llama_on_eight_devices(eight):
    pytest.importorskip("transformers")
    model = llama()
    want = train_llama(copy.deepcopy(model), 50, lambda whole: whole, float)
    for losses in eight.run(spread_llama, model, 50):
        assert losses == pytest.approx(want, abs=1e-4)
