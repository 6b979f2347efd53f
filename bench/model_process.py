"""Runs one model under one runner in this process, and prints a line of JSON: a Sample.

usage: python bench/model_process.py RUNNER CASE [--steps N] [--attention sdpa|eager]
bench/models.py starts it, each time anew. If the case fails, the line is {"failure": "why"} and the
exit status is 1. Where this file says a step, llama-decode means a call that decodes 64 tokens.
"""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from model_cases import CASES, Case

WARMUP, QUIET, PATIENCE = 10, 5, 100  # steps: see settle()
REST = 1.2  # seconds between them: a ResNet's chunk takes the background 3
REASON = 100  # characters of a reason why something failed
OURS = ("debug", "strict", "fused")
PEER_MODULE = "google_tpu"  # importing it gives device tpu, and set_mode(name)


@dataclass
class Sample:
    """What one process measured; "first" is about the case's first steps, without building it."""

    first_s: list[float]  # wall seconds of each of the first steps
    first_cpu_s: float  # CPU seconds of all of them, with those of the processes they started
    losses: list[float]  # what they returned
    programs: int | None = None  # compiled so far, if the runner counts them
    compile_s: float | None = None  # seconds spent compiling these, summed over threads
    warmup: int = 0  # steps before the steady ones, without the first ones
    steady_ms: list[float] = field(default_factory=list)  # wall milliseconds of each steady step
    programs_steady: int | None = None  # compiled during these: 0 if the case had settled
    programs_all: int | None = None  # compiled by the whole process
    compile_all_s: float | None = None
    imports_mib: float = 0  # resident memory after imports
    peak_mib: float = 0  # largest resident memory of the process


@dataclass(frozen=True)
class Runner:
    """A way to run a case: its device, and how programs are counted where they are."""

    device: str
    compiled: bool = False
    counts: Callable[[], tuple[int, float]] | None = None

    def programs(self) -> int | None:
        """Returns the programs compiled so far."""
        return self.counts()[0] if self.counts else None

    def compile_s(self) -> float | None:
        """Returns the seconds spent compiling so far, summed over threads."""
        return self.counts()[1] if self.counts else None


def runner(name: str) -> Runner:
    """Imports PyTorch with what the runner needs, and chooses its mode."""
    peer: Any = importlib.import_module(PEER_MODULE) if name.startswith("peer") else None
    if name in ("cpu", "inductor"):
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch
    import torch._dynamo  # optimizers do so as well, and a first step should not wait for it

    if peer:
        if name != "peer":
            peer.set_mode(name.removeprefix("peer-"))
        return Runner("tpu")
    if name not in OURS:
        return Runner("cpu", compiled=name == "inductor")
    torch.tpu.eager_mode = name

    def counts() -> tuple[int, float]:
        metrics = torch.tpu.metrics()
        return metrics["compiles"], metrics["compile_seconds"]

    return Runner("tpu", counts=counts)


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of all that it started (Linux's /proc)."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(file.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    family = [os.getpid()]
    for member in family:
        family += [pid for pid, parent in parents.items() if parent == member]
    return sum(ticks[pid] for pid in family) / os.sysconf("SC_CLK_TCK")


def memory_mib(key: str) -> float:
    """Returns this process's resident memory in MiB: VmRSS, that of now, or VmHWM, the peak.

    VmHWM is ru_maxrss without what the process that started this one had.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def timed(step: Callable[[], float]) -> tuple[float, float]:
    """Returns wall seconds of a step, and what it returned."""
    start = time.perf_counter()
    loss = step()
    return time.perf_counter() - start, loss


def settle(
    step: Callable[[], float], programs: Callable[[], int | None], share: int, rest: float = REST
) -> int:
    """Warms up, and returns the steps it took.

    WARMUP steps, and more until QUIET of them in a row compiled nothing, PATIENCE at most; of a
    case whose step is a long one, a share. After each the script rests for `rest` seconds, so that
    what is compiled in the background gets done, as it is in a long run.
    """
    done, quiet, before = 0, 0, programs()
    while done < max(WARMUP // share, 1) or quiet < QUIET // share:
        if done == max(PATIENCE // share, 1):
            break
        step()
        done += 1
        if before is not None:
            time.sleep(rest)
        now = programs()
        quiet, before = (quiet + 1 if now == before else 0), now
    return done


def measure(case: Case, by: Runner, steps: int, attention: str = "") -> Sample:
    """Builds a case, and times its first steps and, if there are any, `steps` steady ones."""
    case.load()
    imports_mib = memory_mib("VmRSS")
    step = case.build(by.device, by.compiled, attention)
    cpu = cpu_seconds()
    first = [timed(step) for _ in range(case.first)]
    sample = Sample([s for s, _ in first], cpu_seconds() - cpu, [loss for _, loss in first])
    sample.programs, sample.compile_s = by.programs(), by.compile_s()
    sample.imports_mib = imports_mib
    if steps:
        sample.warmup = settle(step, by.programs, case.share)
        before = by.programs()
        wanted = max(steps // case.share, 1)
        sample.steady_ms = [timed(step)[0] * 1e3 for _ in range(wanted)]
        after = by.programs()
        if after is not None and before is not None:
            sample.programs_steady = after - before
    sample.programs_all, sample.compile_all_s = by.programs(), by.compile_s()
    sample.peak_mib = memory_mib("VmHWM")
    return sample


def reason(error: BaseException) -> str:
    """Returns an exception's kind and first line, in REASON characters."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:REASON]


def main() -> None:
    """Measures what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runner")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--attention", default="")
    args = parser.parse_args()
    try:
        by = runner(args.runner)
        line = asdict(measure(CASES[args.case], by, args.steps, args.attention))
    except Exception as error:
        print(json.dumps({"failure": reason(error)}), flush=True)
        raise
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
