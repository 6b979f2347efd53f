"""Lines and branches of core/ that ran, by room, from builds with --coverage (gcovr reads them).

usage: coverage.py FOLDER... [--json] [--worst N] [--min PERCENT]
FOLDER is a build folder whose programs have run; what ran in any of them counts. --worst adds the
N files with the most lines that did not run. With --min the exit status is 1 if fewer lines of all
of core/ ran.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Coverage:
    """What of a file, a room or all of core/ ran."""

    name: str
    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def add(self, other: "Coverage") -> None:
        """Counts another's lines and branches as this one's, too."""
        self.lines += other.lines
        self.lines_run += other.lines_run
        self.branches += other.branches
        self.branches_run += other.branches_run

    @property
    def line_percent(self) -> float:
        """Lines that ran, in percent."""
        return 100 * self.lines_run / max(1, self.lines)

    @property
    def branch_percent(self) -> float:
        """Branches that were taken, in percent."""
        return 100 * self.branches_run / max(1, self.branches)


def read(folders: list[str]) -> list[Coverage]:
    """Returns core/'s files, named from the checkout's root, in order."""
    command = [sys.executable, "-m", "gcovr", "--root", str(ROOT), "--filter", f"{ROOT}/core/"]
    command += ["--json-summary", "-", *folders]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if run.returncode:
        sys.exit(f"coverage.py: gcovr failed\n{run.stderr.strip()}")
    files = [
        Coverage(
            f"core/{Path(file['filename']).as_posix().rpartition('core/')[2]}",
            file["line_total"],
            file["line_covered"],
            file["branch_total"],
            file["branch_covered"],
        )
        for file in json.loads(run.stdout)["files"]
    ]
    if not files:
        sys.exit(f"coverage.py: {', '.join(folders)}: no counters of core/; run `make coverage`")
    return sorted(files, key=lambda file: file.name)


def by_room(files: Iterable[Coverage]) -> list[Coverage]:
    """Returns a row for each folder directly under core/."""
    rooms: dict[str, Coverage] = {}
    for file in files:
        room = "/".join(file.name.split("/")[:2])
        rooms.setdefault(room, Coverage(room)).add(file)
    return list(rooms.values())


def show(title: str, rows: list[Coverage]) -> None:
    """Prints a table."""
    table = Table(title=title)
    for column in ("", "lines", "run", "%", "branches", "taken", "%"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for row in rows:
        line = (row.lines, row.lines_run, f"{row.line_percent:.1f}")
        branch = (row.branches, row.branches_run, f"{row.branch_percent:.1f}")
        table.add_row(row.name, *map(str, line + branch))
    Console().print(table)


def main() -> None:
    """Prints the tables, or all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--min", type=float, default=0.0)
    args = parser.parse_args()

    files = read(args.folders)
    total = Coverage("core")
    for file in files:
        total.add(file)
    rooms = by_room(files)
    worst = sorted(files, key=lambda file: file.lines_run - file.lines)[: args.worst]
    if args.json:
        print(json.dumps({"total": asdict(total), "rooms": [asdict(room) for room in rooms]}))
    else:
        show("core/, by room", [*rooms, total])
        if worst:
            show("most lines that did not run", worst)
    if total.line_percent < args.min:
        sys.exit(f"coverage.py: {total.line_percent:.1f} % of lines ran; {args.min:g} % were asked")


if __name__ == "__main__":
    main()
