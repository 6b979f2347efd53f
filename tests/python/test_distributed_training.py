"""Training with two processes: its losses are those of one process at the same global batch."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from language import Block, agree, made, train
from ranks import Ranks
from support import only_tpu
from torch import nn

pytestmark = [only_tpu, pytest.mark.cpu_plugin("the transport is called from host memory")]


@pytest.fixture(scope="module")
def ranks():
    with Ranks() as started:
        yield started


def together(rank, size, wrap, mode, steps):
    """The losses of a model that `wrap` spreads over the ranks. mode: "safe" is of spmd_safe's."""

    def everyone(loss):
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        return float(loss)

    def part(whole):
        return whole.chunk(size)[rank].to("tpu")

    safe = torch.tpu.distributed.spmd_safe() if mode == "safe" else contextlib.nullcontext()
    with safe, torch.tpu.set_eager_mode("fused" if mode == "safe" else mode):
        return train(wrap(made().to("tpu")), steps, part, everyone)


def ddp(model):
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)


def fsdp2(model):
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def compiled_ddp(model):
    return torch.compile(nn.parallel.DistributedDataParallel(model))


def compiled_fsdp2(model):
    for block in model.blocks:
        block.compile()
    return fsdp2(model)


def fsdp1(model):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({Block})
    device = torch.device("tpu", torch.tpu.current_device())
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=device)


def averaging_hook(state, bucket):
    """A communication hook of DDP's."""
    tensor = bucket.buffer().div_(dist.get_world_size())
    work = dist.all_reduce(tensor, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def hooked_ddp(model):
    wrapped = ddp(model)
    wrapped.register_comm_hook(None, averaging_hook)
    return wrapped


def tensor_parallel(model):
    """Each rank has a part of the blocks' large layers."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("tpu", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


@pytest.mark.slow
def test_ddp(ranks):
    agree(ranks.run(together, ddp, "strict", 3), 3)


def parallel(rank, size, steps):
    """As `together`; the ranks share the layers, and each sees the whole batch."""
    model = tensor_parallel(made().to("tpu"))
    # PyTorch's loops over lists refuse to mix DTensors with others.
    return train(model, steps, lambda whole: whole.to("tpu"), float, foreach=False)


@pytest.mark.slow
def test_tensor_parallel(ranks):
    agree(ranks.run(parallel, 50), 50)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrap",
    [fsdp1, hooked_ddp, compiled_ddp, compiled_fsdp2],
    ids=lambda wrap: wrap.__name__,
)
def test_other_ways(ranks, wrap):
    agree(ranks.run(together, wrap, "strict", 50), 50)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["debug", "strict", "fused", "safe"])
@pytest.mark.parametrize("wrap", [ddp, fsdp2], ids=lambda wrap: wrap.__name__)
def test_fifty_steps(ranks, wrap, mode):
    agree(ranks.run(together, wrap, mode, 50), 50)
