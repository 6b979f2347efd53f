"""Do copies overlap computations? One stream copies batches to the device, another one computes.

usage: python bench/overlap.py [--rounds N] [--steps N] [--width W]
A batch is copied from pinned memory once the one before it has arrived, as loaders do. Prints a
line of JSON: milliseconds of both in turn and of both at once, each the best of the rounds, and
how the second relates to the first. On the plugin of tests/accel_plugin both are delays:
  TORCH_TPU_PLUGIN=build/release/libtt_accel_plugin.so TT_ACCEL_DELAY_US=4000
"""

import argparse
import json
import time
from collections.abc import Callable

import torch


def milliseconds(work: Callable[[], None]) -> float:
    """Returns how long the work takes, and the device with what it was given."""
    begin = time.perf_counter()
    work()
    torch.tpu.synchronize()
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    """Measures, and prints the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8, help="batches, and products, of a round")
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()

    torch.tpu.eager_mode = "strict"  # a product is an execution
    loader, worker = torch.tpu.Stream(), torch.tpu.Stream()
    batches = [torch.rand(args.width, args.width).pin_memory() for _ in range(args.steps)]
    weights = torch.rand(args.width, args.width, device="tpu") / args.width

    def compute() -> None:
        with torch.tpu.stream(worker):
            x = weights
            for _ in range(args.steps):
                x = x @ weights

    def copy() -> None:
        with torch.tpu.stream(loader):
            for batch in batches:
                batch.to("tpu", non_blocking=True)
                loader.synchronize()

    def in_turn() -> None:
        copy()
        compute()

    def at_once() -> None:
        compute()
        copy()

    milliseconds(in_turn)  # compiles
    times = [(milliseconds(in_turn), milliseconds(at_once)) for _ in range(args.rounds)]
    turn, once = map(min, zip(*times, strict=True))
    figures = {"in_turn_ms": round(turn, 2), "at_once_ms": round(once, 2)}
    print(json.dumps(figures | {"ratio": round(once / turn, 3)}))


if __name__ == "__main__":
    main()
