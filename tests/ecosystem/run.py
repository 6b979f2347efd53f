"""Runs real libraries, each in an environment of its own, and writes docs/ecosystem.md.

usage: run.py [LIBRARY...] [--folder FOLDER]
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS, PAGE = HERE / "results.json", ROOT / "docs/ecosystem.md"
COLUMNS = "library | version | what was run | device | equal to the CPU | warm, of CPU | first step"
PREFACE = """# The ecosystem

`make ecosystem` runs these libraries, each in an environment of its own, as their users do: no
library's files were changed, and no line names a device where the library chooses one; where it
chooses none, it is `torch.accelerator.current_accelerator()` or the CPU. Each case runs once so,
and once without this package (`TORCH_DEVICE_BACKEND_AUTOLOAD=0`), which is the CPU; the table says
whether the numbers are equal (within the case's tolerance), how long the second run took as a
multiple of the CPU's (PyTorch has one thread), and the seconds of the first run, compiling
included. torchvision is PyPI's where PyTorch's own index, which has the one that fits, was not to
be had; it wants libraries of CUDA's to be there, and empty ones were. `python -m torch_tpu
integrations` says what is changed in a library, and why.

"""


def environment(library: str, folder: Path) -> Path:
    """Makes the library's environment if there is none; returns its Python."""
    where = folder / library
    python = where / "bin/python"
    own = Path(f"{HERE / 'cases' / library}.txt")
    stamp, text = where / "ready", (HERE / "base.txt").read_text() + own.read_text()
    if stamp.exists() and stamp.read_text() == text:
        return python
    where.mkdir(parents=True, exist_ok=True)
    wanted = where / "requirements.txt"
    wanted.write_text(text)
    setup = [str(ROOT / "scripts/setup_env.sh"), str(where), str(wanted)]
    subprocess.run(setup, check=True, stdout=sys.stderr)
    install = [str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    install += ["-e", str(ROOT), "-C", "wheel.cmake=false", "-C", "editable.mode=inplace"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    stamp.write_text(text)
    return python


def run(python: Path, library: str, on_tpu: bool) -> list[dict[str, Any]]:
    """Runs the library's cases, with this package or without; returns what each printed."""
    command = [str(python), "-P", str(HERE / "cases" / f"{library}.py")]
    variables = {"PYTHONPATH": str(HERE), "HF_HUB_OFFLINE": "1"}
    variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = str(int(on_tpu))
    # Two threads of the CPU's would mostly wait for one another where the cores are shared.
    variables["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as cache:  # so that what is called compiled is compiled
        variables["TORCH_TPU_CACHE_DIR"] = cache
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=1800
        )
    lines = [line[5:] for line in done.stdout.splitlines() if line.startswith("CASE ")]
    if done.returncode or not lines:
        raise RuntimeError(
            f"{library} (tpu: {on_tpu}): status {done.returncode}\n{done.stderr[-3000:]}"
        )
    return [json.loads(line) for line in lines]


def compare(ours: dict[str, Any], cpu: dict[str, Any]) -> dict[str, Any]:
    """One row of the table."""
    row = {"what": ours["what"], "device": ours.get("device", "-"), "equal": "yes"}
    if problem := ours.get("error") or cpu.get("error"):
        return {**row, "equal": f"fails: {problem.splitlines()[0][:120]}"}
    row |= {"warm": round(ours["again"] / cpu["again"], 2), "first": round(ours["first"], 1)}
    pairs = list(zip(ours["values"], cpu["values"], strict=True))
    wrong = [
        abs(a - b) / max(1.0, abs(b))
        for a, b in pairs
        if not math.isclose(a, b, rel_tol=ours["tolerance"], abs_tol=ours["tolerance"])
        and not (math.isnan(a) and math.isnan(b))
    ]
    if wrong or not pairs:
        row["equal"] = f"no, by {max(wrong, default=0):.1g}"
    elif not ours["device"].startswith("tpu"):
        row["equal"] = "yes, but not on tpu"
    return row


def write(results: dict[str, Any]) -> None:
    """Writes the results and the page."""
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    lines = [COLUMNS, "|".join(["---"] * len(COLUMNS.split("|")))]
    for library, found in sorted(results.items()):
        for row in found["rows"]:
            cells = [library, found["version"], row["what"], row["device"], row["equal"]]
            cells += [str(row.get("warm", "-")), f"{row['first']} s" if "first" in row else "-"]
            lines.append(" | ".join(cells))
    days = sorted({found["date"] for found in results.values()})
    closing = f"\n\nMeasured on two shared cores with the CPU plugin, {days[0]} to {days[-1]}.\n"
    PAGE.write_text(PREFACE + "\n".join(f"| {line} |" for line in lines) + closing)


def main(
    libraries: Annotated[list[str] | None, typer.Argument(help="Their names; all if none.")] = None,
    folder: Annotated[Path, typer.Option(help="Where the environments are.")] = ROOT / ".venv-eco",
) -> None:
    """Runs the libraries' cases on tpu and on the CPU. Fails if any is not equal."""
    known = sorted(path.stem for path in (HERE / "cases").glob("*.py"))
    if unknown := set(libraries or ()) - set(known):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    bad = False
    for library in track(libraries or known, "ecosystem"):
        python = environment(library, folder)
        version = subprocess.run(
            [python, "-c", f"from importlib.metadata import version; print(version({library!r}))"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        pairs = zip(run(python, library, True), run(python, library, False), strict=True)
        rows = [compare(ours, cpu) for ours, cpu in pairs]
        results[library] = {"version": version, "date": date.today().isoformat(), "rows": rows}
        write(results)
        for row in rows:
            print(library, version, *row.values(), sep=" | ", flush=True)
            bad |= row["equal"] != "yes"
    raise typer.Exit(int(bad))


if __name__ == "__main__":
    typer.run(main)
