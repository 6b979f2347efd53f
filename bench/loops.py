"""Does Fused mode settle? Twelve shapes of loops, each in Fused and in Strict mode.

usage: python bench/loops.py [--json] [--optimizers] [--loop NAME]... [--iterations N]
Each loop has a process of its own. The columns: programs asked for during the first iterations, and
after them (the goal is 0), operators per chunk, milliseconds for an iteration in both modes, and
how far the losses are apart.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

WARMUP = 5
CLASSES = 10
Steps = Iterator[Tensor | float]
Loop = Callable[[], Steps]

LOOPS: dict[str, Loop] = {}


def loop(function: Loop) -> Loop:
    """Adds a loop to the bench; it yields its loss, read or not, after every iteration."""
    LOOPS[function.__name__.replace("_", " ")] = function
    return function


def mlp(width: int = 64, dropout: float = 0.0) -> nn.Sequential:
    """Returns a small classifier on the device."""
    layers: list[nn.Module] = []
    for size in (32, width, width):
        layers += [nn.Linear(size, width), nn.LayerNorm(width), nn.GELU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(width, CLASSES)).to("tpu")


def batches(size: int = 16) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields random inputs and labels on the device, the same in every run."""
    generator = torch.Generator().manual_seed(3)
    while True:
        x = torch.randn(size, 32, generator=generator)
        y = torch.randint(CLASSES, (size,), generator=generator)
        yield x.to("tpu"), y.to("tpu")


def read_every(period: int) -> Steps:
    """Yields from a training loop that reads its loss every `period` iterations (0: never)."""
    model, data = mlp(), batches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i in count():
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.item() if period and i % period == 0 else loss.detach()


@loop
def item_each_step() -> Steps:
    """Reads the loss in each iteration."""
    return read_every(1)


@loop
def item_every_tenth() -> Steps:
    """Reads it in the first of ten iterations."""
    return read_every(10)


@loop
def item_never() -> Steps:
    """Never reads it."""
    return read_every(0)


@loop
def schedule() -> Steps:
    """Changes the learning rate after each iteration."""
    model, data = mlp(), batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    while True:
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        yield loss.detach()


@loop
def accumulation() -> Steps:
    """Gathers the gradients of four batches."""
    model, data = mlp(), batches()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        total = 0.0
        for _ in range(4):
            x, y = next(data)
            loss = F.cross_entropy(model(x), y) / 4
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        yield total


@loop
def clipping() -> Steps:
    """Clips the gradients' norm."""
    model, data = mlp(), batches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        yield loss.detach()


@loop
def dropout() -> Steps:
    """Uses random numbers."""
    model, data = mlp(dropout=0.2), batches()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    while True:
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        yield loss.detach()


@loop
def changing_batch() -> Steps:
    """Trains on batches of three sizes in turn."""
    model = mlp()
    data = [batches(size) for size in (4, 8, 16)]
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    while True:
        for one in data:
            x, y = next(one)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        yield loss.item()


@loop
def evaluation() -> Steps:
    """Trains for five batches and evaluates on two."""
    model, data, held = mlp(dropout=0.1), batches(), batches(32)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        model.train()
        for _ in range(5):
            x, y = next(data)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = torch.zeros((), device="tpu")
            for _ in range(2):
                x, y = next(held)
                logits = model(x)
                right += (logits.argmax(-1) == y).sum()
                loss = F.cross_entropy(logits, y)
        yield loss.item() + 0 * right.item()


@loop
def two_models() -> Steps:
    """Trains a generator against a discriminator."""
    maker = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32)).to("tpu")
    judge = nn.Sequential(nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).to("tpu")
    makes = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    data = batches()
    score = F.binary_cross_entropy_with_logits
    while True:
        x, _ = next(data)
        noise = torch.randn(16, 8, device="tpu")
        made = maker(noise)
        judges.zero_grad()
        good, bad = judge(x), judge(made.detach())
        loss = score(good, torch.ones_like(good)) + score(bad, torch.zeros_like(bad))
        loss.backward()
        judges.step()
        makes.zero_grad()
        again = judge(made)
        fooled = score(again, torch.ones_like(again))
        fooled.backward()
        makes.step()
        yield fooled.detach()


@loop
def small_tensors() -> Steps:
    """Replaces 500 small tensors by new ones."""
    generator = torch.Generator().manual_seed(5)
    tensors = [torch.randn(4, generator=generator).to("tpu") for _ in range(500)]
    while True:
        tensors = [t * 0.99 + 0.01 for t in tensors]
        yield torch.stack(tensors).square().mean().item()


@loop
def in_place() -> Steps:
    """Writes through views of two tensors."""
    state = torch.linspace(-1, 1, 256, device="tpu").reshape(16, 16)
    speed = torch.zeros_like(state)
    while True:
        for _ in range(4):
            speed[1:-1, 1:-1].add_(state[:-2, 1:-1] + state[2:, 1:-1], alpha=0.1)
            speed[1:-1, 1:-1].sub_(state[1:-1, 1:-1], alpha=0.2)
            speed.mul_(0.97).clamp_(-1, 1)
            state += speed
            state[0].zero_()
            state[:, -1].copy_(state[:, 0])
            state.masked_fill_(state > 2, 2)
        yield state.abs().sum()


@loop
def python_branches() -> Steps:
    """Branches on the loss."""
    model, data = mlp(), batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    best = float("inf")
    while True:
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if loss < best:
            best = loss.item()
        else:
            loss = loss * 0.5
        loss.backward()
        optimizer.step()
        yield loss.detach()


class Attention(nn.Module):
    """One layer of a decoder that keeps its keys and values in place."""

    def __init__(self, width: int = 32, heads: int = 2, length: int = 64) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.cache = torch.zeros(2, 1, heads, length, width // heads, device="tpu")

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        """Takes one token, float32 [1, 1, width], at position `at`, int64 [1]."""
        q, k, v = (
            part.view(1, 1, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        self.cache[0].index_copy_(2, at, k)
        self.cache[1].index_copy_(2, at, v)
        mask = (torch.arange(self.cache.shape[3], device="tpu") <= at)[None]
        y = F.scaled_dot_product_attention(q, self.cache[0], self.cache[1], attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(1, 1, -1))
        return x + self.mlp(self.last(x))


@loop
def kv_cache() -> Steps:
    """Generates tokens one after the other."""
    embed = nn.Embedding(50, 32).to("tpu")
    layers = nn.ModuleList(Attention() for _ in range(2)).to("tpu")
    head = nn.Linear(32, 50).to("tpu")
    token, at = torch.tensor([[1]], device="tpu"), torch.zeros(1, dtype=torch.int64, device="tpu")
    while True:
        with torch.inference_mode():
            x = embed(token)
            for layer in layers:
                x = layer(x, at)
            logits = head(x)
            token = logits[:, -1].argmax(-1, keepdim=True)
            at = at + 1
            yield float(token.item()) + logits.mean().item()


OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD momentum": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 1e-3},
    "AdamW": {"lr": 1e-3},
    "RMSprop": {"lr": 1e-3},
    "Adagrad": {"lr": 1e-2},
}


def optimizer_loop(name: str, form: str) -> Loop:
    """Returns a loop with one optimizer, a schedule, clipping, accumulation and an early read."""

    def steps() -> Steps:
        model, data = mlp(), batches()
        kind = getattr(torch.optim, name.split(maxsplit=1)[0])
        optimizer = kind(
            model.parameters(), **OPTIMIZERS[name], **{form: True} if form else {"foreach": False}
        )
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
        for i in count():
            optimizer.zero_grad()
            for _ in range(2):
                x, y = next(data)
                loss = F.cross_entropy(model(x), y) / 2
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            yield loss.item() if i % 3 == 0 else loss.detach()

    return steps


def optimizer_loops() -> dict[str, Loop]:
    """Returns a loop for each optimizer and each form that PyTorch has of it."""
    loops = {}
    for name in OPTIMIZERS:
        for form in ("", "foreach", "fused"):
            if form == "fused" and name == "RMSprop":
                continue
            loops[f"{name} {form or 'for-loop'}"] = optimizer_loop(name, form)
    return loops


@dataclass
class Result:
    """What was counted and measured of one loop."""

    loop: str
    programs_warmup: int
    programs_after: int
    compilations_per_iteration: float
    operators_per_chunk: float
    operators_per_iteration: float
    fused_ms: float
    strict_ms: float
    difference: float

    @property
    def settled(self) -> bool:
        """True if the loop stopped asking for programs and computes what Strict mode computes."""
        return self.programs_after == 0 and self.difference < 1e-5


def asked_for() -> int:
    """Returns the programs that were asked for so far, new ones and known ones."""
    metrics = torch.tpu.metrics()
    return metrics["programs"] + metrics["program_hits"]


def value(loss: Tensor | float) -> float:
    """Reads a loss."""
    return loss if isinstance(loss, float) else loss.item()


def timed(steps: Steps, iterations: int) -> float:
    """Returns seconds for an iteration, of the best of five runs between synchronisations."""
    best = float("inf")
    for _ in range(5):
        torch.tpu.synchronize()
        start = time.perf_counter()
        for _ in range(iterations):
            next(steps)
        torch.tpu.synchronize()
        best = min(best, (time.perf_counter() - start) / iterations)
    return best


def run(one: Loop, mode: str, iterations: int) -> tuple[list[float], dict[str, float], float]:
    """Returns the losses that were read, counters, and seconds for an iteration."""
    torch.manual_seed(1)
    with torch.tpu.set_eager_mode(mode):
        steps = one()
        start, losses = asked_for(), []
        last: Tensor | float = 0.0
        for i in range(iterations):
            if i == WARMUP:
                warm, before = asked_for(), torch.tpu.metrics()
            last = next(steps)
            if isinstance(last, float):
                losses.append(last)
        after = torch.tpu.metrics()
        counts = {"warmup": warm - start, "after": asked_for() - warm}
        for name in ("chunks", "chunk_ops", "ops_row"):
            counts[name] = after[name] - before[name]
        losses.append(value(last))
        del last
        return losses, counts, timed(steps, max(iterations // 3, 1))


def measure(name: str, one: Loop, iterations: int) -> Result:
    """Runs a loop in both modes."""
    losses, counts, fused = run(one, "fused", iterations)
    expected, _, strict = run(one, "strict", iterations)
    apart = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(losses, expected, strict=True))
    counted = iterations - WARMUP
    return Result(
        loop=name,
        programs_warmup=int(counts["warmup"]),
        programs_after=int(counts["after"]),
        compilations_per_iteration=counts["after"] / counted,
        operators_per_chunk=counts["chunk_ops"] / max(counts["chunks"], 1),
        operators_per_iteration=counts["ops_row"] / counted,
        fused_ms=fused * 1e3,
        strict_ms=strict * 1e3,
        difference=apart,
    )


def measure_apart(name: str, args: argparse.Namespace) -> Result:
    """Measures a loop in a process of its own, which nothing else has warmed up."""
    command = [sys.executable, __file__, "--json", "--loop", name]
    command += ["--iterations", str(args.iterations)] + ["--optimizers"] * args.optimizers
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{name}: the process ended with status {done.returncode}")
    return Result(**json.loads(done.stdout)[0])


def show(results: list[Result], console: Console) -> None:
    """Prints a table."""
    table = Table(title=f"Programs asked for before and after iteration {WARMUP}, and speed")
    for title in ("loop", "before", "after", "ops/iteration", "ops/chunk", "fused ms", "strict ms"):
        table.add_column(title, justify="left" if title == "loop" else "right")
    table.add_column("strict/fused", justify="right")
    table.add_column("losses apart", justify="right")
    for r in results:
        table.add_row(
            r.loop,
            str(r.programs_warmup),
            f"[{'green' if r.programs_after == 0 else 'red'}]{r.programs_after}[/]",
            f"{r.operators_per_iteration:.0f}",
            f"{r.operators_per_chunk:.1f}",
            f"{r.fused_ms:.2f}",
            f"{r.strict_ms:.2f}",
            f"{r.strict_ms / r.fused_ms:.1f}",
            f"{r.difference:.0e}" if r.difference else "0",
        )
    console.print(table)


def main() -> None:
    """Reads the command line and runs the loops."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--optimizers", action="store_true", help="the optimizers instead")
    parser.add_argument("--loop", action="append", help="only this loop; may be repeated")
    parser.add_argument("--iterations", type=int, default=31)
    args = parser.parse_args()

    console = Console(stderr=args.json)
    loops = optimizer_loops() if args.optimizers else LOOPS
    names = [name for name in loops if not args.loop or name in args.loop]
    if len(names) == 1:
        results = [measure(names[0], loops[names[0]], args.iterations)]
    else:
        results = []
        for name in names:
            with console.status(name):
                results.append(measure_apart(name, args))
    if args.json:
        print(json.dumps([asdict(r) for r in results], indent=2))
    else:
        show(results, console)
    raise SystemExit(0 if all(r.settled for r in results) else 1)


if __name__ == "__main__":
    main()
