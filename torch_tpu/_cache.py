"""`python -m torch_tpu cache`: the folders of compiled programs."""

import json
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from torch_tpu import _C

app = typer.Typer(help="Looks after the compiled programs on disk.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Dir = Annotated[
    Path | None, typer.Option("--dir", help="The folder; by default the user's cache folder.")
]
From = Annotated[
    Path | None, typer.Option("--from", help="The folder whose programs to make ready.")
]
PROGRAM = ".program1"
console = Console(stderr=True)


MODES = ("off", "readonly", "on")
WARMTH = ("ready", "copied", "compiled")


class Settings(NamedTuple):
    """What the environment says of the cache."""

    mode: str
    dir: str
    shared_dir: str
    limit: int


def read_settings() -> Settings:
    """Returns what the environment says now."""
    mode, own, shared, limit = _C.cache_settings()
    return Settings(MODES[mode], own, shared, limit)


def entries_of(folder: "_C.CacheFolder") -> list[tuple[str, int]]:
    """Returns name and bytes of each entry, the one used longest ago first."""
    return [(name, size) for _, name, size in sorted(folder.entries())]


def open_folder(path: Path | None, readonly: bool = False) -> "_C.CacheFolder | None":
    """Opens a folder, or the user's cache folder; None if there is no such folder.

    Raises RuntimeError if others could have put programs there: it must be this user's, the
    administrator's, or the one that TORCH_TPU_SHARED_CACHE_DIR names.
    """
    settings = read_settings()
    chosen = Path(path or settings.dir)
    if not str(path or settings.dir) or not chosen.is_dir():
        return None
    named = settings.shared_dir and chosen.resolve() == Path(settings.shared_dir).resolve()
    by_root = chosen.stat().st_uid == 0 != os.geteuid()
    return _C.CacheFolder(str(chosen), bool(named) or by_root, readonly)


def open_or_exit(path: Path | None, readonly: bool = False) -> "_C.CacheFolder | None":
    """As open_folder, for commands."""
    try:
        return open_folder(path, readonly)
    except RuntimeError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


def measure(path: str) -> dict[str, Any]:
    """Returns what is in a folder, or why it cannot be used."""
    facts: dict[str, Any] = {"dir": path, "programs": 0, "bytes": 0}
    if not path:
        return {}
    try:
        folder = open_folder(Path(path), readonly=True)
    except RuntimeError as error:
        return facts | {"problem": str(error)}
    if folder is None:
        return facts
    entries = entries_of(folder)
    facts["programs"] = sum(name.endswith(PROGRAM) for name, _ in entries)
    facts["bytes"] = sum(size for _, size in entries)
    return facts | dict(folder.totals())


@app.command()
def info(as_json: Json = False) -> None:
    """Tells where the programs are, how many, and how often they were found."""
    mode, own, shared, limit = read_settings()
    folders = {"local": measure(own), "shared": measure(shared)}
    if as_json:
        typer.echo(json.dumps({"mode": mode, "limit": limit} | folders, indent=1))
        return
    local = folders["local"]
    lookups = sum(local.get(key, 0) for key in ("hits", "shared_hits", "compiled"))
    rows = {"mode": mode, "limit": f"{limit / 2**20:.0f} MB a folder"}
    for kind, facts in folders.items():
        rows |= {f"{kind} {key.replace('_', ' ')}": value for key, value in facts.items()}
    rows["found without compiling"] = f"{lookups - local.get('compiled', 0)} of {lookups}"
    table = Table("what", "value", title="Compiled programs", title_justify="left")
    for key, value in rows.items():
        table.add_row(key, str(value))
    Console().print(table)


@app.command()
def clear(folder: Dir = None) -> None:
    """Removes all entries."""
    opened = open_or_exit(folder)
    count = len(entries_of(opened)) if opened else 0
    if opened:
        opened.clear()
    typer.echo(f"{count} entries removed")


@app.command()
def verify(folder: Dir = None, as_json: Json = False) -> None:
    """Checks every entry and removes the bad ones; exits 1 if there were any."""
    opened = open_or_exit(folder)
    entries = entries_of(opened) if opened else []
    bad = {}
    for name, _ in track(entries, "verifying", console=console, disable=as_json):
        problem = opened.verify(name) if opened else ""
        if opened and problem:
            bad[name] = problem
            opened.remove(name)
    if as_json:
        typer.echo(json.dumps({"entries": len(entries), "bad": bad}, indent=1))
    else:
        for name, problem in bad.items():
            typer.echo(f"removed {name}: {problem}")
        typer.echo(f"{len(entries)} entries, {len(bad)} bad")
    raise typer.Exit(1 if bad else 0)


def outcome(warm: Callable[[str], int], name: str) -> tuple[str, str]:
    """Makes one program ready; returns what was done, and the error if it failed."""
    try:
        return WARMTH[warm(name)], ""
    except RuntimeError as error:
        return "failed", str(error)


@app.command()
def warm(source: From = None, as_json: Json = False) -> None:
    """Makes the programs of a folder ready for this plugin and this machine.

    The folder is one that a run has filled, here or elsewhere. What was made for this plugin and
    machine is copied, everything else compiled.
    """
    opened = open_or_exit(source, readonly=True)
    if opened is None:
        typer.echo(f"there is no folder {source or read_settings().dir}", err=True)
        raise typer.Exit(1)
    names = [name for name, _ in entries_of(opened) if name.endswith(PROGRAM)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda name: outcome(opened.warm, name), names)
        done = list(track(results, "warming", len(names), console=console, disable=as_json))
    counts = Counter(what for what, _ in done)
    summary = {what: counts[what] for what in ("ready", "copied", "compiled", "failed")}
    problems = sorted({problem for _, problem in done if problem})
    if as_json:
        typer.echo(json.dumps(summary | {"problems": problems}, indent=1))
    else:
        typer.echo(", ".join(f"{count} {what}" for what, count in summary.items()))
        for problem in problems:
            typer.echo(problem, err=True)
    raise typer.Exit(1 if problems else 0)
