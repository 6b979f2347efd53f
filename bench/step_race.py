"""Races ways to run the training step of bench/step_model.py against JAX's, burst by burst in turn.

usage: python bench/step_race.py FOLDER [--modes whole,compile,graph] [--cases step-s,step-m]
       [--rounds N] [--jax PYTHON]
FOLDER holds what `python bench/step_model.py FOLDER` wrote; modes are those of bench/step_graph.py;
PYTHON has JAX (make bench-env), which runs on the PJRT plugin that torch_tpu uses. Of each round a
mode's burst is compared with JAX's before it, so that a restless machine disturbs both alike.
A line of JSON for each mode and case tells the milliseconds of a step, JAX's, and the medians of
the ratios of wall clock time and of CPU time.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
Side = subprocess.Popen[str]


def start(*command: object) -> Side:
    """Starts a process that runs a burst for each line it is sent."""
    words = [str(word) for word in command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def burst(side: Side) -> list[float]:
    """Returns milliseconds of a step, by the clock and of CPU."""
    assert side.stdin and side.stdout
    print(file=side.stdin, flush=True)
    line = side.stdout.readline()
    if not line:
        raise RuntimeError(f"{side.args!r} ended: run it by itself to see why")
    times: list[float] = json.loads(line)
    return times


def stop(sides: list[Side]) -> None:
    """Ends processes by the end of their input."""
    for side in sides:
        assert side.stdin
        side.stdin.close()
        side.wait()


def race(jax: Side, ours: Side, rounds: int) -> dict[str, object]:
    """Returns medians and least ones of both, and of the rounds' ratios."""
    pairs = [(burst(jax), burst(ours)) for _ in range(rounds)]
    wall, cpu = ([ours[k] / jax[k] for jax, ours in pairs] for k in (0, 1))
    found: dict[str, object] = {
        "ratio": statistics.median(wall),
        "cpu_ratio": statistics.median(cpu),
    }
    for name, times in ("ms", [b[0] for _, b in pairs]), ("jax_ms", [a[0] for a, _ in pairs]):
        found |= {name: statistics.median(times), f"{name}_min": min(times)}
    return {key: round(float(str(value)), 3) for key, value in found.items()}


def main() -> None:
    """Reads the command line and races each mode on each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--modes", default="whole,compile,graph")
    parser.add_argument("--cases", default="step-s,step-m")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--jax", default=".venv-bench/bin/python", metavar="PYTHON")
    args = parser.parse_args()

    for case in args.cases.split(","):
        jax = start(args.jax, HERE / "step_jax.py", args.folder, "--cases", case, "--follow")
        for mode in args.modes.split(","):
            script = HERE / "step_graph.py"
            ours = start(sys.executable, script, "--modes", mode, "--cases", case, "--follow")
            result = race(jax, ours, args.rounds)
            print(json.dumps({"mode": mode, "case": case, **result}), flush=True)
            stop([ours])
        stop([jax])


if __name__ == "__main__":
    main()
