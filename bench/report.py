"""Figures of this project: bench/results.json holds them, bench/results.md shows them as tables.

usage: report.py [--json] [--check]
       report.py record GROUP NAME VALUE... [--unit U] [--goal G] [--command C] [--commit H]
                 [--date D] [--note N]
       report.py remove GROUP NAME
Without a subcommand it writes the page; --json prints the records instead, each with its verdict,
and --check writes nothing and exits with 1 if the page is not what the records say.
`record` adds a figure, or replaces the one of that group and name (what is not named anew stays),
and writes the page. Several values are several rounds. A goal is "<= 1.5", ">= 680" or "== 0".
"""

import argparse
import json
import operator
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
DATA, PAGE = FOLDER / "results.json", FOLDER / "results.md"
HEAD = """# Results

`make report` writes this page from `bench/results.json`; `bench/report.py record` adds a figure.
Several values are several rounds. The commit is the one that was measured; for figures from before
this page had records, the one that brought them. The machine has two shared cores and its speed
changes by a half within minutes: races are run in turn, and ratios are what to read.
What was tried and not kept is in [docs/decisions.md](../docs/decisions.md).
"""
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass
class Record:
    """One figure: its values in `unit`, a round each, and how they came about."""

    group: str
    name: str
    value: list[float]
    unit: str = ""
    goal: str = ""
    command: str = ""
    commit: str = ""
    date: str = ""
    note: str = ""

    def verdict(self) -> str:
        """Whether the goal is "met", met "in part" of the rounds, or "missed"; "" without one."""
        if not self.goal:
            return ""
        sign, _, bound = self.goal.partition(" ")
        met = [COMPARE[sign](value, float(bound)) for value in self.value]
        return "met" if all(met) else "in part" if any(met) else "missed"


def load() -> list[Record]:
    """Returns all records, in their order."""
    return [Record(**entry) for entry in json.loads(DATA.read_text(encoding="utf-8"))]


def save(records: list[Record]) -> None:
    """Writes a line a record, so that a change of one figure is a change of one line."""
    lines = [
        json.dumps({key: value for key, value in asdict(record).items() if value != ""})
        for record in records
    ]
    DATA.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def cell(text: str) -> str:
    """Returns text that cannot end a table's cell."""
    return text.replace("|", "\\|")


def number(value: float) -> str:
    """Returns 12345 as 12,345, 0.5 as 0.5, and very small numbers with an exponent."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.2g}" if abs(value) < 1e-3 else f"{value:,.10g}"


def row(record: Record) -> str:
    """Returns a record as a table's row."""
    value = ", ".join(map(number, record.value))
    goal = f"{record.goal}: {record.verdict()}" if record.goal else ""
    cells = [
        record.name,
        f"{value} {record.unit}".strip(),
        goal,
        f"`{record.command}`" if record.command else "",
        " ".join(filter(None, (record.commit, record.date))),
        record.note,
    ]
    return f"| {' | '.join(map(cell, cells))} |"


def page(records: list[Record]) -> str:
    """Returns the page: a table for each group, in the order of first records."""
    parts = [HEAD]
    for group in dict.fromkeys(record.group for record in records):
        rows = [row(record) for record in records if record.group == group]
        title = "| metric | value | goal | command | commit | note |\n|---|---|---|---|---|---|"
        parts.append("\n".join([f"## {group}\n", title, *rows, ""]))
    return "\n".join(parts)


def git(*arguments: str) -> str:
    """Returns what a git command prints."""
    run = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, cwd=FOLDER.parent
    )
    return run.stdout.strip()


def head_commit() -> str:
    """Returns the checkout's commit, with a "+" if files other than the results differ from it."""
    changed = git("status", "--porcelain", "--", ".", ":!bench/results.*")
    return git("rev-parse", "--short=7", "HEAD") + "+" * bool(changed)


def record_result(args: argparse.Namespace) -> None:
    """Adds or replaces the record that the command line describes."""
    records = load()
    old = next((r for r in records if (r.group, r.name) == (args.group, args.name)), None)
    new = old or Record(args.group, args.name, [])
    for field in fields(Record):
        given = getattr(args, field.name)
        if given is not None:
            setattr(new, field.name, given)
    new.commit = args.commit or head_commit()
    new.date = args.date or date.today().isoformat()
    if new.goal:
        try:
            new.verdict()
        except (KeyError, ValueError):
            sys.exit(f'report.py: goal "{new.goal}": expected <=, >= or ==, a space, and a number')
    if old is None:
        places = [i for i, record in enumerate(records) if record.group == new.group]
        records.insert(places[-1] + 1 if places else len(records), new)
    save(records)


def remove_result(args: argparse.Namespace) -> None:
    """Removes a record; there must be one."""
    records = load()
    left = [r for r in records if (r.group, r.name) != (args.group, args.name)]
    if len(left) == len(records):
        sys.exit(f'report.py: there is no "{args.name}" in "{args.group}"')
    save(left)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the records")
    parser.add_argument("--check", action="store_true", help="is the page up to date?")
    commands = parser.add_subparsers(dest="action")
    record = commands.add_parser("record", help="add or replace a figure")
    remove = commands.add_parser("remove", help="remove a figure")
    for command in (record, remove):
        command.add_argument("group")
        command.add_argument("name")
    record.add_argument("value", nargs="+", type=float)
    for option in ("unit", "goal", "command", "commit", "date", "note"):
        record.add_argument(f"--{option}")
    return parser.parse_args()


def main() -> None:
    """Does what the command line asks for."""
    args = parse()
    if args.action:
        {"record": record_result, "remove": remove_result}[args.action](args)
    records = load()
    if args.json:
        print(json.dumps([asdict(r) | {"verdict": r.verdict()} for r in records], indent=1))
    elif args.check:
        if page(records) != PAGE.read_text(encoding="utf-8"):
            sys.exit("bench/results.md is not what bench/results.json says: run `make report`")
    else:
        PAGE.write_text(page(records), encoding="utf-8")


if __name__ == "__main__":
    main()
