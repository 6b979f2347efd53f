"""Models of transformers and diffusers, from the first step to the steady ones, by each runner.

usage: python bench/models.py [--cases gpt2,bert] [--runners strict,fused,cpu] [--rounds N]
       [--steps N] [--attention eager] [--peer DIR --peer-path PATH] [--json FILE] [--chart FILE]
A runner is strict, fused or debug (eager modes of device tpu), cpu (PyTorch's CPU device, eager),
inductor (the CPU device, torch.compile), or peer, peer-strict, peer-fused: another backend, by the
Python of the virtual environment DIR, where importing google_tpu from PATH gives device tpu.
Every measurement is two fresh processes with a folder of their own for caches: one finds it empty,
the other finds what the first left. Rounds are run in turn, and the table has medians. A runner
that fails on a case is not asked again, and the reason is below the table.
bench/model_cases.py has the models, bench/model_process.py what is measured of a process.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_cases import CASES
from model_process import OURS, REASON, Sample
from model_report import Cell, save_chart, save_json, show
from report import head_commit
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

PROCESS = Path(__file__).with_name("model_process.py")
PEERS = ("peer", "peer-strict", "peer-fused")
RUNNERS = (*OURS, "cpu", "inductor", *PEERS)
DEFAULT_RUNNERS = ("strict", "fused", "cpu", "inductor")
# What a crashed process said of it: a failed check of XLA or abseil, or an exception's last line.
CAUSE = re.compile(r"Check failed: .*|^\w*Error: .*|^terminate called.*|^Fatal .*", re.MULTILINE)


class FailureError(Exception):
    """A process measured nothing; the message is the short reason."""


@dataclass(frozen=True)
class Launcher:
    """How processes are started; the time limit is in seconds."""

    attention: str = ""
    timeout: float = 600
    peer: Path | None = None
    peer_path: Path | None = None

    def environment(self, runner: str, folder: Path) -> dict[str, str]:
        """Returns the environment of a process whose caches are all in a folder."""
        places = {
            "TORCH_TPU_CACHE_DIR": folder / "torch_tpu",
            "TORCHINDUCTOR_CACHE_DIR": folder / "inductor",
            "XDG_CACHE_HOME": folder / "cache",
            "HF_HOME": folder / "hub",
        }
        if runner in PEERS and self.peer and self.peer_path:
            places |= {"PEER_SHIM": self.peer / "shim.so", "PYTHONPATH": self.peer_path}
        added = {name: str(path) for name, path in places.items()}
        return {**os.environ, **added, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

    def run(self, runner: str, case: str, steps: int, folder: Path) -> Sample:
        """Measures in a fresh process, or raises FailureError."""
        python = self.peer / "bin" / "python" if runner in PEERS and self.peer else sys.executable
        command = [str(python), str(PROCESS), runner, case, "--steps", str(steps)]
        with subprocess.Popen(
            command + ["--attention", self.attention] * bool(self.attention),
            cwd=folder,
            env=self.environment(runner, folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that what it started ends with it
        ) as process:
            try:
                out, err = process.communicate(timeout=self.timeout)
            except subprocess.TimeoutExpired:
                raise FailureError(f"not done after {self.timeout:g} s") from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return read(process.returncode, out, err)


def read(status: int, out: str, err: str) -> Sample:
    """Returns what a process printed, or raises FailureError with what is known of its end."""
    lines = out.strip().splitlines()
    try:
        line = json.loads(lines[-1]) if lines else {}
    except ValueError:
        line = {}
    if status == 0 and "first_s" in line:
        return Sample(**line)
    if "failure" in line:
        raise FailureError(line["failure"])
    end = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    causes = CAUSE.findall(err)
    raise FailureError(f"{end}: {causes[0].strip()}"[:REASON] if causes else end)


def measure(launcher: Launcher, cell: Cell, steps: int) -> None:
    """Adds a round to a cell, or the reason why there is none."""
    with tempfile.TemporaryDirectory(prefix="bench-models-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            cold = launcher.run(cell.runner, cell.case, steps, folder)
            warm = launcher.run(cell.runner, cell.case, 0, folder)
        except FailureError as failure:
            cell.failure = str(failure)
            return
    cell.cold.append(cold)
    cell.warm.append(warm)


def measure_all(
    launcher: Launcher, cells: list[Cell], rounds: int, steps: int, console: Console
) -> None:
    """Measures the cells in turn, round after round."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=rounds * len(cells))
        for number in range(1, rounds + 1):
            for cell in cells:
                progress.update(task, description=f"round {number}: {cell.case}, {cell.runner}")
                if not cell.failure:
                    measure(launcher, cell, steps)
                progress.advance(task)


def names(known: tuple[str, ...]) -> Any:
    """Returns what turns a list with commas into a list of known names, for argparse."""

    def split(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",")]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f'"{name}" is none of {", ".join(known)}')
        return chosen

    return split


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=names(tuple(CASES)), default=list(CASES))
    parser.add_argument(
        "--runners", type=names(RUNNERS), help="default: ours, and peer with --peer"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="steady steps; a tenth of decodings")
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="", help="of every model")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of a process")
    parser.add_argument("--peer", type=lambda text: Path(text).absolute(), metavar="DIR")
    parser.add_argument("--peer-path", type=lambda text: Path(text).absolute(), metavar="PATH")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="its suffix says the format")
    args = parser.parse_args()
    args.runners = args.runners or [*DEFAULT_RUNNERS, *["peer"] * bool(args.peer)]
    if not (args.peer and args.peer_path) and any(name in PEERS for name in args.runners):
        parser.error("runner peer needs --peer DIR and --peer-path PATH")
    return args


def main() -> None:
    """Measures, and shows what was asked for."""
    args = parse()
    console = Console()
    launcher = Launcher(args.attention, args.timeout, args.peer, args.peer_path)
    cells = [Cell(case, runner) for case in args.cases for runner in args.runners]
    attention = f", {args.attention} attention" if args.attention else ""
    title = f"{head_commit()}: median of {args.rounds} rounds{attention}"
    try:
        measure_all(launcher, cells, args.rounds, args.steps, console)
    except KeyboardInterrupt:
        console.print("interrupted: what is here was measured before")
    show(cells, title, console)
    if args.json:
        options = {"commit": head_commit(), "attention": args.attention or "the library's"}
        options |= {"rounds": args.rounds, "steps": args.steps, "cores": os.cpu_count()}
        save_json(cells, options, args.json)
    if args.chart:
        save_chart(cells, title, args.chart)


if __name__ == "__main__":
    main()
