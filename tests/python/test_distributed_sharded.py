"""What else PyTorch has for training on several ranks: DDP's and FSDP2's options, checkpoints."""

import contextlib
import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from language import agree, alone, batch, learn, made, train
from ranks import Ranks
from support import only_tpu
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = [only_tpu, pytest.mark.cpu_plugin("the transport is called from host memory")]


@pytest.fixture(scope="module")
def ranks():
    with Ranks() as started:
        yield started


def averaged(value):
    """The mean over the ranks."""
    value = torch.as_tensor(value, device="tpu")
    dist.all_reduce(value, dist.ReduceOp.AVG)
    return float(value)


def own_part(rank, size):
    return lambda whole: whole.chunk(size)[rank].to("tpu")


# -- DDP --


def in_two(model, tokens):
    """Accumulates the gradients of two halves; ranks talk in the second."""
    losses = []
    for half, quiet in zip(tokens.chunk(2), (model.no_sync, contextlib.nullcontext), strict=True):
        with quiet():
            losses.append(learn(model, half))
    for one in model.parameters():
        one.grad /= 2
    return sum(losses) / 2


class Choosy(nn.Module):
    """Has a layer that it does not use."""

    def __init__(self, model):
        super().__init__()
        self.model, self.unused = model, nn.Linear(3, 3)

    def forward(self, tokens):
        return self.model(tokens)


def by_ddp(rank, size, way, steps):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = made().to("tpu")
    if way == "unused":
        model = DistributedDataParallel(Choosy(model).to("tpu"), find_unused_parameters=True)
    elif way == "static":
        model = DistributedDataParallel(model, static_graph=True)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=way == "view")
    if way == "hook":
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    part, how = own_part(rank, size), in_two if way == "no_sync" else learn
    if way != "zero":
        return train(model, steps, part, averaged, how)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        losses.append(averaged(learn(model, part(batch(step))).detach()))
        optimizer.step()
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("way", ["no_sync", "unused", "static", "view", "hook", "zero"])
def test_ways_of_ddp(ranks, way):
    agree(ranks.run(by_ddp, way, 50), 50)


def join(rank, size):
    """The second rank has more batches; what the first one's gradients would add is nothing."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(2, 1, bias=False).to("tpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join(divide_by_initial_world_size=False):
        for step in range(2 + rank):
            optimizer.zero_grad()
            model(torch.full((1, 2), step + 1.0, device="tpu")).sum().backward()
            optimizer.step()
    return model.module.weight.tolist()


@pytest.mark.slow
def test_join(ranks):
    torch.manual_seed(0)
    layer = nn.Linear(2, 1, bias=False)
    want = (layer.weight.detach() - 0.1 * (1 + 2 + 3)).tolist()
    for found in ranks.run(join):
        torch.testing.assert_close(found, want)


def sparse_gradients(rank, size):
    table = nn.Embedding(5, 2, sparse=True)
    nn.init.ones_(table.weight)
    model = DistributedDataParallel(table.to("tpu"))
    model(torch.tensor([rank, 3, 3] if rank else [rank], device="tpu")).sum().backward()
    return table.weight.grad.to_dense().cpu().tolist()


@pytest.mark.slow
def test_sparse_gradients(ranks):
    want = [[0.5, 0.5], [0.5, 0.5], [0, 0], [1, 1], [0, 0]]
    assert ranks.run(sparse_gradients) == [want, want]


# -- Batch normalization over the ranks --


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 1, 6))


def fit(model, steps, part, everyone):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, 2, 8, 8, generator=generator)
        optimizer.zero_grad()
        loss = F.mse_loss(model(part(x)).flatten(), part(x.mean((1, 2, 3))))
        loss.backward()
        optimizer.step()
        losses.append(everyone(loss.detach()))
    return losses, [float(one.sum()) for one in model.buffers()]


def normalized(rank, size, steps):
    model = nn.SyncBatchNorm.convert_sync_batchnorm(net()).to("tpu")
    model = DistributedDataParallel(model, broadcast_buffers=False)
    return fit(model, steps, own_part(rank, size), averaged)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 50])
def test_batch_normalization_over_ranks(ranks, steps):
    want = fit(net(), steps, lambda whole: whole, float)
    for found in ranks.run(normalized, steps):
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


# -- Attention over a sequence that the ranks share --


def attend_in_context(rank, size):
    """The output and the gradients of attention over a sequence that both ranks have a part of."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard

    mesh = dist.init_device_mesh("tpu", (size,))
    parts = [one.to("tpu") for one in queries()]
    with context_parallel(
        mesh, buffers=parts, buffer_seq_dims=[2] * 3, no_restore_buffers=set(parts)
    ):
        for one in parts:
            one.requires_grad_()
        output = F.scaled_dot_product_attention(*parts, is_causal=True)
        output.sin().sum().backward()
        results = [output.detach(), *(one.grad for one in parts)]
        return [one.cpu() for one in context_parallel_unshard(mesh, results, [2] * 4)]


def queries():
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(1, 2, 12, 8, generator=generator) for _ in range(3)]


@pytest.mark.slow
def test_attention_in_context(ranks):
    whole = [one.requires_grad_() for one in queries()]
    output = F.scaled_dot_product_attention(*whole, is_causal=True)
    output.sin().sum().backward()
    for found in ranks.run(attend_in_context):
        torch.testing.assert_close(found, [output.detach(), *(one.grad for one in whole)])


# -- FSDP2 --


def sharded(model, device="tpu", blocks=(), **options):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh(device, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options, **dict(blocks))
    return fully_shard(model, mesh=mesh, **options)


def by_fsdp2(rank, size, way, steps):
    from torch.distributed.fsdp import CPUOffloadPolicy

    options = {
        "offload": {"offload_policy": CPUOffloadPolicy()},
        "kept": {"reshard_after_forward": False},
        "resharded": {"reshard_after_forward": True},
    }[way]
    model = made() if way == "offload" else made().to("tpu")
    return train(sharded(model, **options), steps, own_part(rank, size), averaged)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["offload", "kept", "resharded"])
def test_ways_of_fsdp2(ranks, way):
    agree(ranks.run(by_fsdp2, way, 50), 50)


def in_bf16(rank, size, device, steps):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded(made().to(device), device, mp_policy=policy)
    assert all(one.dtype == torch.float32 for one in model.parameters())

    def learn(model, tokens):
        output = model(tokens[:, :-1])
        assert output.dtype == torch.bfloat16
        loss = F.cross_entropy(output.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        return loss

    part = own_part(rank, size)
    return train(model, steps, lambda all: part(all).to(device), averaged, learn)


@pytest.mark.slow
def test_mixed_precision_of_fsdp2(ranks):
    """Beside Gloo's on the CPU; numbers of 8 bits differ a little from one device to the other."""
    found, gloo = (ranks.run(in_bf16, device, 50) for device in ("tpu", "cpu"))
    torch.testing.assert_close(found, gloo, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(found[0], alone(50), rtol=5e-2, atol=5e-2)


def resized(rank, size):
    storage = torch.arange(4.0, device="tpu").untyped_storage()
    storage.resize_(0)
    empty = storage.nbytes()
    storage.resize_(16)
    return empty, storage.nbytes()


@pytest.mark.slow
def test_storages_are_resized(ranks):
    assert ranks.run(resized) == [(0, 16)] * 2


# -- Random numbers of DTensors --


def random_parts(rank, size):
    from torch.distributed.tensor import Replicate, Shard, rand

    mesh = dist.init_device_mesh("tpu", (size,))
    found = []
    for placement in (Shard(0), Replicate()):
        torch.manual_seed(7)
        first, second = (rand(4, 3, device_mesh=mesh, placements=[placement]) for _ in range(2))
        torch.manual_seed(7)
        again = rand(4, 3, device_mesh=mesh, placements=[placement])
        whole = first.full_tensor()
        assert torch.equal(whole, again.full_tensor())
        assert not torch.equal(whole, second.full_tensor())
        found.append(whole.cpu())
    return found


@pytest.mark.slow
def test_random_numbers_of_dtensors(ranks):
    first, second = ranks.run(random_parts)
    for of_parts, whole in (first, second):
        assert not torch.equal(of_parts[:2], of_parts[2:])
        assert len(whole.unique()) == 12
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


# -- Checkpoints --


def state_of(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def take_steps(model, optimizer, steps, part):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        losses.append(averaged(learn(model, part(batch(step))).detach()))
        optimizer.step()
    return losses


def save(rank, size, folder, steps):
    """Saves after some steps, at once and meanwhile."""
    import torch.distributed.checkpoint as dcp

    model = sharded(made().to("tpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    part = own_part(rank, size)
    take_steps(model, optimizer, range(steps), part)
    dcp.save(state_of(model, optimizer), checkpoint_id=f"{folder}/saved")
    future = dcp.async_save(state_of(model, optimizer), checkpoint_id=f"{folder}/meanwhile")
    take_steps(model, optimizer, range(steps, steps + 1), part)
    future.result()


def load(rank, size, folder, steps):
    """The losses of the steps behind those."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import set_state_dict

    results = []
    for name in ("saved", "meanwhile"):
        torch.manual_seed(rank)
        model = made().to("tpu")
        nn.init.zeros_(model.head.weight)
        model = sharded(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        state = state_of(model, optimizer)
        dcp.load(state, checkpoint_id=f"{folder}/{name}")
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        steps_left = range(steps, 2 * steps)
        results.append(take_steps(model, optimizer, steps_left, own_part(rank, size)))
    return results


@pytest.mark.slow
def test_checkpoints_go_to_other_numbers_of_ranks(ranks, tmp_path):
    """Saved by four; the losses of two, and of one, go on as those of one process."""
    steps = 6
    want = alone(2 * steps)[steps:]
    with Ranks(4) as four:
        four.run(save, str(tmp_path), steps)
    with Ranks(1) as one:
        (found,) = one.run(load, str(tmp_path), steps)
    for losses in (*found, *ranks.run(load, str(tmp_path), steps)[0]):
        torch.testing.assert_close(losses, want, rtol=1e-4, atol=1e-4)


def save_and_load(rank, size, folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = dist.init_device_mesh("tpu", (size,))
    whole = torch.arange(12.0, device="tpu").view(6, 2)
    dcp.save({"x": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder)
    state = {"x": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(1)])}
    dcp.load(state, checkpoint_id=folder)
    return copy.deepcopy(state["x"].full_tensor().tolist())


@pytest.mark.slow
def test_checkpoints_of_dtensors(ranks, tmp_path):
    want = torch.arange(12.0).view(6, 2).tolist()
    assert ranks.run(save_and_load, str(tmp_path)) == [want, want]
