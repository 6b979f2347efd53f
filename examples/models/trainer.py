"""What the models here share: one training loop, one command line, and the comparison.

A model's file describes a `Task`; `main(TASK)` trains it on a device and on the CPU from the same
weights and batches, and says whether the losses are the same.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

DEVICE = "tpu"
SEED = 7
# Losses may differ by this share of themselves. Both devices add the same f32 numbers in other
# orders, which came to at most 2e-6 in twenty steps. The models and rates here are chosen to be so
# calm: changing each weight by a part in ten million moves the CPU's own losses by 5e-7 at most,
# while a ResNet whose blocks don't begin as their shortcuts multiplies it by a million. No random
# numbers are drawn while a model trains.
TOLERANCE = 1e-5

Batch = tuple[torch.Tensor, ...]

console = Console()


@dataclass(frozen=True)
class Task:
    """A model, the batches it learns from, and what it should make small.

    batch: makes one batch on the CPU out of a generator's random numbers.
    loss: maps the model and the batch, on the model's device, to a scalar.
    """

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[..., torch.Tensor]
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    rate: float = 1e-3


def train(task: Task, device: str, steps: int = 20) -> list[float]:
    """Trains a new model and returns its loss at each step.

    The weights and the batches are made on the CPU, so they are the same for every device.
    """
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model = task.model().to(device).train()
    optimizer = task.optimizer(model.parameters(), lr=task.rate)
    losses = []
    for _ in range(steps):
        batch = [part.to(device) for part in task.batch(generator)]
        optimizer.zero_grad()
        loss = task.loss(model, *batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


def difference(losses: list[float], reference: list[float]) -> float:
    """Returns the largest difference, as a share of the reference's loss at that step."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))


def text() -> torch.Tensor:
    """Returns a text that is always here, this file: int64 [characters], all below 128."""
    source = Path(__file__).read_bytes()
    return torch.tensor(list(source)).clamp(max=127)


def pieces(generator: torch.Generator, batch: int, length: int) -> torch.Tensor:
    """Returns random pieces of the text, int64 [batch, length]."""
    whole = text()
    starts = torch.randint(0, len(whole) - length, (batch, 1), generator=generator)
    return whole[starts + torch.arange(length)]


def stripes(generator: torch.Generator, batch: int, size: int, kinds: int) -> Batch:
    """Returns noisy stripes, f32 [batch, 3, size, size], and which slope each has, int64."""
    kind = torch.randint(0, kinds, (batch,), generator=generator)
    angle = kind[:, None, None] * (torch.pi / kinds)
    places = torch.arange(size, dtype=torch.float32)
    wave = torch.sin(places * torch.cos(angle) + places[:, None] * torch.sin(angle))
    noise = torch.randn(batch, 3, size, size, generator=generator)
    return wave[:, None] + 0.3 * noise, kind


def main(task: Task) -> None:
    """Reads the command line, trains, and compares with the CPU."""
    parser = argparse.ArgumentParser(description=f"Trains {task.name} for a few steps.")
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--no-compare", action="store_true", help="skip the run on the CPU")
    args = parser.parse_args()
    table = Table("device", "first loss", "last loss", "seconds", title=task.name)
    runs = []
    for device in [args.device] if args.no_compare else [args.device, "cpu"]:
        start = time.perf_counter()
        losses = train(task, device, args.steps)
        seconds = time.perf_counter() - start
        table.add_row(device, f"{losses[0]:.4f}", f"{losses[-1]:.4f}", f"{seconds:.1f}")
        runs.append(losses)
    console.print(table)
    gap = difference(runs[0], runs[-1])
    if not args.no_compare:
        console.print(f"losses differ by at most {gap:.1e} of themselves")
    raise SystemExit(0 if gap <= TOLERANCE else 1)
