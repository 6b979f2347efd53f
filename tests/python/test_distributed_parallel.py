"""PyTorch's ways of spreading a model, but for data: losses are those of one process, all 50.

Tensor, sequence, pipeline, context and expert parallelism, also several at once.
"""

import pytest
import torch
import torch.distributed as dist
from language import BATCH, LENGTH, WIDTH, agree, batch, cross_entropy, made, train
from ranks import Ranks
from support import only_tpu
from torch import nn

pytestmark = [only_tpu, pytest.mark.cpu_plugin("the transport is called from host memory")]


@pytest.fixture(scope="module")
def ranks():
    with Ranks() as started:
        yield started


@pytest.fixture(scope="module")
def four_ranks():
    with Ranks(4) as started:
        yield started


def mesh_of(**sizes):
    return dist.init_device_mesh("tpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))


# -- Tensor and sequence parallel --


def spread(model, mesh):
    """Each rank has a part of every large layer, and of the sequence between them."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    def embedding():
        return RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))

    last = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, {"tokens": embedding(), "places": embedding(), "head": last})
    for block in model.blocks:
        plan = {name: SequenceParallel(use_local_output=True) for name in ("first", "second")}
        for name in ("query", "key", "value", "up"):
            plan[name] = ColwiseParallel(input_layouts=Shard(1))
        for name in ("project", "down"):
            plan[name] = RowwiseParallel(output_layouts=Shard(1))
        parallelize_module(block, mesh, plan)
    return model


def learn_in_parts(model, tokens):
    """Without the whole of the output on any rank."""
    from torch.distributed.tensor.parallel import loss_parallel

    with loss_parallel():
        output = model(tokens[:, :-1], torch.arange(LENGTH, device=tokens.device)[None])
        loss = cross_entropy(output, tokens[:, 1:])
        loss.backward()
    return loss.full_tensor()


def sequence_parallel(rank, size, steps):
    model = spread(made().to("tpu"), mesh_of(tp=size))
    return train(model, steps, lambda all: all.to("tpu"), float, learn_in_parts, foreach=False)


@pytest.mark.slow
def test_tensor_and_sequence_parallel(ranks):
    agree(ranks.run(sequence_parallel, 50), 50)


def sharded_and_parallel(rank, size, steps):
    """FSDP2 over two pairs of ranks, each of which shares the layers."""
    from torch.distributed.fsdp import fully_shard

    mesh = mesh_of(dp=size // 2, tp=2)
    model = spread(made().to("tpu"), mesh["tp"])
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    group, own = mesh["dp"].get_group(), mesh["dp"].get_local_rank()

    def everyone(loss):
        dist.all_reduce(loss, dist.ReduceOp.AVG, group=group)
        return float(loss)

    def part(all):
        return all.chunk(size // 2)[own].to("tpu")

    return train(model, steps, part, everyone, learn_in_parts, foreach=False)


@pytest.mark.slow
def test_fsdp2_and_tensor_parallel(four_ranks):
    agree(four_ranks.run(sharded_and_parallel, 50), 50)


# -- Pipeline --


class First(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.tokens, self.places = model.tokens, model.places

    def forward(self, tokens):
        return self.tokens(tokens) + self.places.weight


def stages(model):
    """Four modules that follow one another."""
    return [First(model), *model.blocks, model.head]


def piped(rank, size, schedule, steps):
    """The last rank's losses, of a pipeline of two stages, or of four, two on each rank."""
    from torch.distributed import pipelining
    from torch.distributed.pipelining import PipelineStage

    parts = stages(made().to("tpu"))
    kind = getattr(pipelining, schedule)
    if schedule in ("ScheduleGPipe", "Schedule1F1B"):
        own = {rank: nn.Sequential(*parts[2 * rank : 2 * rank + 2])}
    elif schedule == "ScheduleZBVZeroBubble":
        own = {place: parts[place] for place in (rank, 3 - rank)}
    else:
        own = {place: parts[place] for place in (rank, rank + 2)}
    count = size if len(own) == 1 else 4
    made_stages = [
        PipelineStage(part, place, count, torch.device("tpu", torch.tpu.current_device()))
        for place, part in own.items()
    ]
    single = made_stages[0] if len(own) == 1 else made_stages
    runner = kind(single, 4, loss_fn=cross_entropy)
    parameters = [one for part in own.values() for one in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    has = {"first": 0 in own, "last": count - 1 in own}
    losses = []
    for step in range(steps):
        tokens = batch(step).to("tpu")
        of_parts = []
        optimizer.zero_grad()
        runner.step(
            *([tokens[:, :-1]] if has["first"] else []),
            target=tokens[:, 1:] if has["last"] else None,
            losses=of_parts,
        )
        optimizer.step()
        if has["last"]:
            losses.append(float(torch.stack(of_parts).mean()))
    return losses


SCHEDULES = (
    "ScheduleGPipe Schedule1F1B ScheduleInterleaved1F1B ScheduleLoopedBFS "
    "ScheduleInterleavedZeroBubble ScheduleZBVZeroBubble"
).split()


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipelines(ranks, schedule):
    agree([losses for losses in ranks.run(piped, schedule, 50) if losses], 50)


# -- Context parallel --


def in_context(rank, size, rotate, steps):
    """Each rank has a part of every sequence."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    set_rotate_method(rotate)
    mesh = mesh_of(cp=size)

    def learn(model, tokens):
        parts = [tokens[:, :-1].clone(), tokens[:, 1:].clone(), torch.arange(LENGTH, device="tpu")]
        with context_parallel(
            mesh, buffers=parts, buffer_seq_dims=[1, 1, 0], no_restore_buffers=set(parts)
        ):
            loss = cross_entropy(model(parts[0], parts[2]), parts[1])
            loss.backward()
        for one in model.parameters():
            dist.all_reduce(one.grad, dist.ReduceOp.AVG)
        return loss

    def everyone(loss):
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        return float(loss)

    return train(made().to("tpu"), steps, lambda all: all.to("tpu"), everyone, learn)


@pytest.mark.slow
@pytest.mark.parametrize("rotate", ["allgather", "alltoall"])
def test_context_parallel(ranks, rotate):
    agree(ranks.run(in_context, rotate, 50), 50)


# -- Experts --

EXPERTS = 4


class Experts(nn.Module):
    """Each token is seen by one of several layers, all of which one process has."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=EXPERTS).tolist()
        mixed = self.mix(x[order], counts)
        return x + torch.zeros_like(x).index_copy(0, order, mixed) * weights[:, None]

    def mix(self, tokens, counts):
        parts = tokens.split(counts)
        return torch.cat([layer(part) for layer, part in zip(self.layers, parts, strict=True)])


class SpreadExperts(Experts):
    """The same, of which each rank keeps some of the layers, and is sent their tokens."""

    def keep(self, rank, size, functional):
        self.size, self.functional = size, functional
        self.own = self.layers[rank * EXPERTS // size : (rank + 1) * EXPERTS // size]
        del self.layers
        return self

    def mix(self, tokens, counts):
        each = EXPERTS // self.size
        sent = torch.tensor(counts, device="tpu")
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        got = got.view(self.size, each).tolist()
        to = [sum(counts[one * each : (one + 1) * each]) for one in range(self.size)]
        come = [sum(one) for one in got]
        arrived = self.exchange(tokens, come, to)
        runs = arrived.split([count for of_rank in got for count in of_rank])
        mixed = [self.own[i % each](run) for i, run in enumerate(runs)]
        return self.exchange(torch.cat(mixed), to, come)

    def exchange(self, tokens, come, to):
        if self.functional:
            from torch.distributed._functional_collectives import all_to_all_single_autograd

            return all_to_all_single_autograd(tokens, come, to, dist.group.WORLD)
        from torch.distributed.nn.functional import all_to_all_single

        output = tokens.new_empty(sum(come), tokens.shape[1])
        return all_to_all_single(output, tokens, come, to)


def train_experts(model, steps, part, everyone):
    """Losses of fitting a fixed function, with plain gradient descent."""
    shared = list(model.gate.parameters())
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(4 * BATCH, WIDTH, generator=generator)
        x, y = part(x), part(x.roll(1, 1))
        model.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        losses.append(float(everyone(loss.detach())))
        for one in shared:
            everyone(one.grad)
        with torch.no_grad():
            for one in model.parameters():
                if one.grad is not None:
                    one -= 0.1 * one.grad
    return losses


def spread_experts(rank, size, functional, steps):
    torch.manual_seed(0)
    model = SpreadExperts().keep(rank, size, functional).to("tpu")
    for one in model.own.parameters():  # whose loss is that of all ranks' tokens
        one.register_hook(lambda gradient: gradient / size)

    def everyone(tensor):
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        return tensor

    return train_experts(model, steps, lambda all: all.chunk(size)[rank].to("tpu"), everyone)


@pytest.mark.slow
@pytest.mark.parametrize("case", [(True, 50), (False, 50)], ids=str)
def test_expert_parallel(ranks, case):
    functional, steps = case
    torch.manual_seed(0)
    expected = train_experts(Experts(), steps, lambda all: all, lambda tensor: tensor)
    for losses in ranks.run(spread_experts, functional, steps):
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
