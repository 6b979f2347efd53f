"""Race PyTorch's Gloo on CPU tensors: the same ranks do both in turn, burst by burst.

usage: torchrun --nproc-per-node=2 bench/distributed.py [--cases ddp,fsdp2] [--mode fused] [--safe]
Cases: ddp, fsdp2: a step of a GPT of 4 layers, width 128, batch 4 x 64 a rank, AdamW;
all_reduce-4MB, all_reduce-4kB, or any other size. torchrun gives each rank one thread for PyTorch's
CPU operators. Prints a line of JSON for each case: milliseconds of both (median of the bursts), and
the median ratio of neighbouring bursts.
"""

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, TOKENS = 512, 128, 4, 4, 4, 64
Step = Callable[[], object]


class Block(nn.Module):
    """A layer of the GPT, as its authors write it: attention by hand, then a gated network."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, False)
        self.gate, self.up = nn.Linear(WIDTH, 4 * WIDTH, False), nn.Linear(WIDTH, 4 * WIDTH, False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.register_buffer("mask", torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [batch, tokens, width] to the same shape."""
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind()
        weights = (q @ k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5
        weights = weights.masked_fill(self.mask, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        down: torch.Tensor = self.down(F.silu(self.gate(y)) * self.up(y))
        return x + down


class GPT(nn.Module):
    """Predicts each next number."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, False)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Maps [batch, tokens] to [batch, tokens, vocabulary]."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def wrapped(model: GPT, how: str, device: str) -> nn.Module:
    """Returns the model as the ranks share it."""
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def training(how: str, device: str) -> Step:
    """Returns a function that does one step, and gives back the loss."""
    torch.manual_seed(0)
    model = wrapped(GPT().to(device), how, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(dist.get_rank())
    pair = [torch.randint(0, VOCABULARY, (BATCH, TOKENS)).to(device) for _ in range(2)]

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def reducing(size: str, device: str) -> Step:
    """Returns a function that reduces so many bytes of float32, such as "4MB"."""
    factor = {"kB": 1 << 10, "MB": 1 << 20}[size[-2:]]
    x = torch.ones(int(size[:-2]) * factor // 4, device=device)
    return lambda: dist.all_reduce(x, dist.ReduceOp.MAX)


def burst(step: Step, device: str, steps: int) -> float:
    """Returns the milliseconds of a step, all ranks beginning together; a step is waited for."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
        if device == "tpu":
            torch.tpu.synchronize()
    return (time.perf_counter() - begin) * 1e3 / steps


def race(case: str, rounds: int, steps: int) -> dict[str, object]:
    """Returns the figures of one case."""
    how, _, size = case.partition("-")
    make = (lambda device: reducing(size, device)) if size else (lambda d: training(how, d))
    sides = {device: make(device) for device in ("tpu", "cpu")}
    losses = {device: [side() for _ in range(8)][-1] for device, side in sides.items()}
    if not size:
        ours, theirs = (float(losses[device]) for device in sides)  # type: ignore[arg-type]
        assert abs(ours - theirs) < 1e-4, losses
    times: dict[str, list[float]] = {device: [] for device in sides}
    for _ in range(rounds):
        for device, side in sides.items():
            times[device].append(burst(side, device, steps))
    ratio = statistics.median(a / b for a, b in zip(times["tpu"], times["cpu"], strict=True))
    medians = {f"{device}_ms": round(statistics.median(all_), 3) for device, all_ in times.items()}
    return {"case": case, "ranks": dist.get_world_size()} | medians | {"ratio": round(ratio, 3)}


def main() -> None:
    """Races, and prints the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="ddp,fsdp2,all_reduce-4MB,all_reduce-4kB")
    parser.add_argument("--mode", default="fused")
    parser.add_argument("--safe", action="store_true", help="spmd_safe: collectives in programs")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5, help="of a burst")
    args = parser.parse_args()

    dist.init_process_group("cpu:gloo,tpu:tpu")
    safe = torch.tpu.distributed.spmd_safe() if args.safe else contextlib.nullcontext()
    with torch.tpu.set_eager_mode(args.mode), safe:
        for case in args.cases.split(","):
            figures = race(case, args.rounds, args.steps)
            if dist.get_rank() == 0:
                print(json.dumps(figures | {"mode": args.mode, "safe": args.safe}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
