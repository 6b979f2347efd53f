"""Trains a small GPT on Python's own sources, and compares the losses with a run on the CPU.

usage: python examples/train_gpt.py [--device tpu|cuda|cpu] [--steps N]
Everything that depends on the device is the one string DEVICE; nothing else changes between
cpu, cuda and tpu.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from gpt import GPT, Config, Text
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import nn

DEVICE = "tpu"
TOLERANCE = 1e-3
SEED = 7

console = Console()


@dataclass
class Run:
    """What one training left behind: losses a step, and speed after the first steps."""

    device: str
    losses: list[float] = field(default_factory=list)
    tokens_per_second: float = 0.0
    model: GPT | None = None


def batches(data: torch.Tensor, steps: int, batch: int, context: int) -> list[torch.Tensor]:
    """Returns the same random pieces of the text for every device, int64 [batch, context + 1]."""
    generator = torch.Generator().manual_seed(SEED)
    starts = torch.randint(0, len(data) - context - 1, (steps, batch, 1), generator=generator)
    return list(data[starts + torch.arange(context + 1)])


def rate(step: int, steps: int, warmup: int = 10) -> float:
    """A learning rate's factor: up in a line, then down along a cosine to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def train(
    device: str,
    pieces: list[torch.Tensor],
    config: Config,
    *,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
    read: Callable[[torch.Tensor], float] = lambda loss: loss.item(),
) -> Run:
    """Trains a new model and returns its losses; each device starts from the same weights.

    wrap: makes of the model what is trained. read: returns the number that a loss is.
    """
    torch.manual_seed(SEED)
    plain = GPT(config).to(device)
    model = wrap(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, len(pieces)))
    run = Run(device, model=plain)
    columns = (TextColumn("{task.description:>5}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(device, total=len(pieces), note="")
        warm = min(5, len(pieces) - 1)  # the steps that compile
        start = time.perf_counter()
        for step, piece in enumerate(pieces):
            if step == warm:
                start = time.perf_counter()
            piece = piece.to(device)
            logits = model(piece[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            run.losses.append(read(loss.detach()))
            seconds = time.perf_counter() - start
            run.tokens_per_second = max(step + 1 - warm, 1) * piece[:, 1:].numel() / seconds
            note = f"loss {run.losses[-1]:.3f}  {run.tokens_per_second:,.0f} tokens/s"
            bar.update(task, advance=1, note=note)
    return run


@torch.no_grad()
def sample(model: GPT, text: Text, prompt: torch.Tensor, length: int, device: str) -> str:
    """Continues the prompt, int64 [context], by `length` characters.

    The window keeps its size, so every step runs the same program.
    """
    torch.manual_seed(SEED)
    model.eval()
    window = prompt.to(device)[None]
    written = []
    for _ in range(length):
        scores = model(window)[0, -1] / 0.8
        following = torch.multinomial(scores.softmax(-1), 1)
        window = torch.cat([window[:, 1:], following[None]], dim=1)
        written.append(following)
    return text.decode(torch.cat(written).cpu())


def draw(runs: list[Run], path: Path) -> None:
    """Draws the loss curves into a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for run, style in zip(runs, ("-", "--"), strict=False):
        axes.plot(run.losses, style, label=f"{run.device}, {run.tokens_per_second:,.0f} tokens/s")
    axes.set(xlabel="step", ylabel="cross-entropy, nats a character", title="A small GPT")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def compare(run: Run, reference: Run) -> bool:
    """Prints the largest difference of the losses; true if it is within the tolerance."""
    gaps = [abs(a - b) for a, b in zip(run.losses, reference.losses, strict=True)]
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    agree = gaps[worst] <= TOLERANCE
    console.print(
        f"losses on {run.device} and {reference.device} differ by at most {gaps[worst]:.1e} "
        f"(step {worst}): " + ("they agree" if agree else f"more than {TOLERANCE:.0e}"),
        style="green" if agree else "red",
    )
    return agree


def main() -> None:
    """Reads the command line, trains, compares, samples and draws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--no-compare", action="store_true", help="skip the run on the CPU")
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()

    text, config = Text(), Config()
    data = text.corpus()
    pieces = batches(data, args.steps, args.batch, config.context)
    console.print(f"{len(data):,} characters, {args.steps} steps of {pieces[0][:, 1:].numel():,}")
    runs = [train(args.device, pieces, config)]
    model = runs[0].model
    assert model is not None
    agree = True
    if not args.no_compare:
        runs.append(train("cpu", pieces, config))
        agree = compare(*runs)
    prompt = text.encode("def train(self, steps):\n".rjust(config.context, "\n"))
    console.rule(f"text written on {args.device}")
    continued = sample(model, text, prompt, 200, args.device)
    console.print(text.decode(prompt).lstrip() + continued, markup=False, highlight=False)
    console.rule()
    draw(runs, args.out / "train_gpt.png")
    torch.save(model.state_dict(), args.out / "gpt.pt")
    console.print(f"wrote {args.out / 'train_gpt.png'} and {args.out / 'gpt.pt'}")
    raise SystemExit(0 if agree else 1)


if __name__ == "__main__":
    main()
