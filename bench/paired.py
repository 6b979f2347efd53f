"""Race two checkouts in turn, burst by burst, so that a restless machine disturbs both alike.

usage: python bench/paired.py BEFORE AFTER [--bursts N] [--modes fused,strict] [--cases add,chain]
BEFORE, AFTER: checkouts that `make build` has built. One process of each waits for the other's
burst of some 60 ms to end. Prints a line of JSON for each mode and case: microseconds an operation
before and after (least), their ratio, and the median ratio of neighbouring bursts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BURST_S = 0.06


def add(x: object) -> None:
    """500 operators, each of which drops its result."""
    for _ in range(500):
        x + x  # type: ignore[operator]


def chain(x: object) -> None:
    """500 operators, each on the result of the one before."""
    for _ in range(500):
        x = x + x  # type: ignore[operator]


CASES: dict[str, Callable[[object], None]] = {"add": add, "chain": chain}


def burst(case: Callable[[object], None], x: object, synchronize: Callable[[], None]) -> float:
    """Returns the microseconds of an operator: the least of those rounds that fit in a burst."""
    end = time.perf_counter() + BURST_S
    least = float("inf")
    while (begin := time.perf_counter()) < end:
        case(x)
        synchronize()
        least = min(least, time.perf_counter() - begin)
    return least / 500 * 1e6


def follow() -> None:
    """Runs one burst for each line of standard input, which names mode and case."""
    import torch

    for line in sys.stdin:
        mode, name = line.split()
        torch.tpu.eager_mode = mode
        x = torch.zeros(1024, device="tpu")
        print(burst(CASES[name], x, torch.tpu.synchronize), flush=True)


def main() -> None:
    """Starts both, and lets them run in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs=2, metavar="CHECKOUT")
    parser.add_argument("--bursts", type=int, default=60)
    parser.add_argument("--modes", default="fused,strict")
    parser.add_argument("--cases", default=",".join(CASES))
    args = parser.parse_args()

    sides = [
        subprocess.Popen(
            [Path(checkout).resolve() / ".venv/bin/python", __file__, "--follow"],
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for checkout in args.checkouts
    ]

    def run(side: subprocess.Popen[str], line: str) -> float:
        assert side.stdin and side.stdout
        print(line, file=side.stdin, flush=True)
        return float(side.stdout.readline())

    for mode in args.modes.split(","):
        for case in args.cases.split(","):
            times = [
                [run(side, f"{mode} {case}") for side in sides] for _ in range(args.bursts + 3)
            ]
            before, after = (min(column) for column in zip(*times[3:], strict=True))
            pairs = statistics.median(b / a for a, b in times[3:])
            figures = {"before": before, "after": after, "ratio": after / before, "pairs": pairs}
            rounded = {name: round(value, 3) for name, value in figures.items()}
            print(json.dumps({"mode": mode, "case": case, **rounded}), flush=True)
    for side in sides:
        side.communicate()


if __name__ == "__main__":
    follow() if "--follow" in sys.argv else main()
