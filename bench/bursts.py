"""Bursts of a training step, taken in turn with those of another process; needs no PyTorch."""

import json
import statistics
import sys
import time
from collections.abc import Callable

BURST_S = 0.3
WARMUP = 30


def follow(step: Callable[[], float]) -> None:
    """Runs a burst for each line of standard input.

    Of each it prints the median of a step's milliseconds, and those of CPU in all threads.
    """
    for _ in range(WARMUP):
        step()
    for _ in sys.stdin:
        times: list[float] = []
        cpu, begin = time.process_time(), time.perf_counter()
        while (now := time.perf_counter()) < begin + BURST_S:
            step()
            times.append(time.perf_counter() - now)
        cpu = (time.process_time() - cpu) / len(times)
        print(json.dumps([statistics.median(times) * 1e3, cpu * 1e3]), flush=True)
