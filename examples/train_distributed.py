"""Trains the GPT of train_gpt.py by several processes, and compares the losses with one's.

usage: torchrun --nproc-per-node=2 examples/train_distributed.py [--device tpu|cpu] [--steps N]
Each process has its rows of every batch. Rank 0 trains again alone, with all rows, and draws both.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from gpt import Config, Text
from torch.nn.parallel import DistributedDataParallel
from train_gpt import DEVICE, batches, compare, console, draw, train


def everyone(loss: torch.Tensor) -> float:
    """Returns the mean over all processes."""
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def main() -> None:
    """Reads the command line, trains twice, compares and draws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16, help="rows, of all processes together")
    parser.add_argument("--out", type=Path, default=Path("out"))
    args = parser.parse_args()

    dist.init_process_group({"cpu": "gloo"}.get(args.device, args.device))
    rank, size = dist.get_rank(), dist.get_world_size()
    console.quiet = rank != 0
    config = Config()
    pieces = batches(Text().corpus(), args.steps, args.batch, config.context)
    rows = [piece.chunk(size)[rank] for piece in pieces]
    run = train(args.device, rows, config, wrap=DistributedDataParallel, read=everyone)
    dist.destroy_process_group()
    if rank != 0:
        return
    together = replace(
        run,
        device=f"{args.device}, {size} processes",
        tokens_per_second=run.tokens_per_second * size,
    )
    alone = replace(train(args.device, pieces, config), device=f"{args.device}, 1 process")
    agree = compare(together, alone)
    draw([together, alone], args.out / "train_distributed.png")
    console.print(f"wrote {args.out / 'train_distributed.png'}")
    raise SystemExit(0 if agree else 1)


if __name__ == "__main__":
    main()
