"""Times the training step of bench/step_model.py; prints a line of JSON for each figure.

usage: python bench/step_graph.py [--modes graph,fused,strict,cpu] [--cases step-s,step-m]
       [--steps N] [--follow]
graph   the whole step captured once with torch.tpu.graph, then replayed: one launch a step
compile the whole step is a function of torch.compile: forward, backward and optimizer are three
whole   the same, and Dynamo is told to trace the backward: two launches a step
fused   eager operators on the device; also strict, debug
cpu     eager operators on PyTorch's CPU device
Each step's loss is read before the next begins. With --follow the first mode and case are run in
bursts, for bench/step_race.py. The program exits with 1 if a mode's losses differ
from the CPU's by more than 1e-4. bench/step_jax.py does the same step by JAX.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from bursts import follow
from step_model import CASES, LOSSES, Case, Step

WARMUP = 2  # steps before the capture, in which the optimizer makes its state
TOLERANCE = 1e-4


def eager(case: Case, device: str) -> Callable[[], float]:
    """Returns a function that trains a step and returns its loss."""
    step = Step(case, device)
    return lambda: step().item()


def captured(case: Case) -> Callable[[], float]:
    """The same, captured at the call after the warm-up and replayed from then on."""
    if not hasattr(torch.tpu, "Graph"):
        raise RuntimeError("mode graph needs torch.tpu.Graph, which this build lacks")
    torch.tpu.eager_mode = "strict"  # of the warm-up; a capture has no mode
    step = Step(case, "tpu", capturable=True)
    graph = torch.tpu.Graph()
    calls, loss = 0, torch.zeros((), device="tpu")

    def run() -> float:
        nonlocal calls, loss
        calls += 1
        if calls <= WARMUP:
            return step().item()
        if calls == WARMUP + 1:
            with torch.tpu.graph(graph):
                loss = step()
        graph.replay()
        return loss.item()

    return run


def compiled(case: Case, backward: bool) -> Callable[[], float]:
    """The step as one function of torch.compile, which traces the backward as well, or does not."""
    torch._dynamo.config.trace_autograd_ops = backward
    step = torch.compile(Step(case, "tpu", capturable=True))
    return lambda: step().item()


def make(mode: str, case: Case) -> Callable[[], float]:
    """Returns a mode's step."""
    if mode == "graph":
        return captured(case)
    if mode in ("compile", "whole"):
        return compiled(case, mode == "whole")
    if mode == "cpu":
        return eager(case, "cpu")
    torch.tpu.eager_mode = mode
    return eager(case, "tpu")


def measure(mode: str, case: Case, steps: int) -> tuple[dict[str, object], list[float]]:
    """Returns times in ms, the first losses and the last; and the first losses unrounded."""
    start = time.perf_counter()
    step = make(mode, case)
    losses, times = [], []
    for _ in range(LOSSES + steps):
        begin = time.perf_counter()
        losses.append(step())
        times.append((time.perf_counter() - begin) * 1e3)
        if len(times) == (WARMUP + 1 if mode == "graph" else 1):
            first = time.perf_counter() - start
    result = {
        "median": round(statistics.median(times[LOSSES:]), 3),
        "min": round(min(times[LOSSES:]), 3),
        "unit": "ms/step",
        "first_s": round(first, 3),
        "losses": [round(loss, 4) for loss in [*losses[: LOSSES - 1], losses[-1]]],
    }
    return result, losses[:LOSSES]


def main() -> None:
    """Reads the command line and measures each mode on each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--modes", default="graph,fused,strict,cpu")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--follow", action="store_true")
    args = parser.parse_args()

    if args.follow:
        follow(make(args.modes.partition(",")[0], CASES[args.cases.partition(",")[0]]))
        return
    good = True
    for name in args.cases.split(","):
        reference = Step(CASES[name], "cpu")
        expected = [reference().item() for _ in range(LOSSES)]
        for mode in args.modes.split(","):
            line: dict[str, object] = {"backend": "torch_tpu", "mode": mode, "case": name}
            if mode == "cpu":
                line |= {"backend": "cpu", "mode": "eager"}
            try:
                result, losses = measure(mode, CASES[name], args.steps)
                gap = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
                line |= result | {"gap": gap, "agrees": gap <= TOLERANCE}
            except (RuntimeError, AttributeError) as error:
                line |= {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            good = good and line.get("agrees", False) is True
            print(json.dumps(line), flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
