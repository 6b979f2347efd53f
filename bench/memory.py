"""Does training grow memory? Steps of a small GPT with AdamW; host and device bytes on the way.

usage: python bench/memory.py [--mode MODE] [--steps N] [--width W] [--batch B] [--tokens T]
The host's bytes are resident ones: a malloc that has seen a few hundred steps keeps what it has.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from gpt import GPT, Config

REPORTS = 10


def resident_mb() -> float:
    """Returns the process's resident memory, 1e6 bytes; Linux's /proc/self/statm counts pages."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    """Trains, and prints a line at each tenth of the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="fused")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.tpu.eager_mode = args.mode
    config = Config(width=args.width, heads=args.width // 32 + 1 if args.width < 64 else 4)
    model = GPT(config).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shape = (args.batch, args.tokens)
    tokens, targets = (torch.randint(0, config.vocabulary, shape).to("tpu") for _ in range(2))
    start = time.perf_counter()
    with Progress(transient=True) as progress:
        for step in progress.track(range(args.steps + 1)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            if step % max(1, args.steps // REPORTS) == 0:
                progress.console.print(
                    f"step {step}: loss {loss.item():.4f}, host {resident_mb():.1f} MB, "
                    f"device {torch.tpu.memory_reserved() / 1e6:.3f} MB, "
                    f"peak {torch.tpu.max_memory_reserved() / 1e6:.3f} MB, "
                    f"{time.perf_counter() - start:.0f} s"
                )


if __name__ == "__main__":
    main()
