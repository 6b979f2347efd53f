"""What bench/models.py found: a table of medians, a chart, and JSON with every measurement."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from model_process import Sample
from rich.console import Console
from rich.table import Table

CHART_COLUMNS = {
    "cold_s": "cold first steps, s",
    "warm_s": "warm first steps, s",
    "steady_ms": "a later step, ms",
    "peak_mib": "peak memory, MiB",
}


@dataclass
class Cell:
    """One runner on one case: what each round measured, or why it could not be."""

    case: str
    runner: str
    cold: list[Sample] = field(default_factory=list)  # processes that began with an empty cache
    warm: list[Sample] = field(default_factory=list)  # those that found what the cold ones left
    failure: str = ""  # after it, no round is measured any more

    def medians(self) -> dict[str, Any]:
        """Returns the figures, each a median over rounds; what nobody measured is left out.

        Names end in their units: _s, _ms, _mib; programs are numbers of programs. `steps_s` has a
        median for each of the first steps; `cold_s` and `warm_s` are about all of them together.
        """
        figures: dict[str, Any] = {}

        def add(name: str, samples: list[Sample], value: Callable[[Sample], Any]) -> None:
            values = [found for found in map(value, samples) if found is not None]
            if values:
                figures[name] = median(values)

        for name, samples in (("cold", self.cold), ("warm", self.warm)):
            if samples:
                steps = zip(*(sample.first_s for sample in samples), strict=True)
                figures[f"{name}_steps_s"] = [median(step) for step in steps]
            add(f"{name}_s", samples, lambda sample: sum(sample.first_s))
            add(f"{name}_cpu_s", samples, lambda sample: sample.first_cpu_s)
            add(f"{name}_programs", samples, lambda sample: sample.programs)
            add(f"{name}_compile_s", samples, lambda sample: sample.compile_s)
        add("programs", self.cold, lambda sample: sample.programs_all)
        add("compile_s", self.cold, lambda sample: sample.compile_all_s)
        add("programs_steady", self.cold, lambda sample: sample.programs_steady)
        add("steady_ms", self.cold, lambda s: median(s.steady_ms) if s.steady_ms else None)
        add("peak_mib", self.cold, lambda sample: sample.peak_mib)
        add("added_mib", self.cold, lambda sample: sample.peak_mib - sample.imports_mib)
        return figures


def number(value: float | None) -> str:
    """Returns a figure with three digits that count, or a dash if there is none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def count(value: float | None) -> str:
    """Returns a number of programs, which may be a median between two."""
    return "-" if value is None else f"{value:g}"


def cells(cell: Cell) -> list[str]:
    """Returns the table's columns after case and runner; of a failure its kind and dashes."""
    figures = cell.medians()
    late = "*" if figures.get("programs_steady") else ""
    steps = " ".join(map(number, figures.get("cold_steps_s", [])))
    return [
        steps or cell.failure.partition(":")[0] or "-",
        number(figures.get("cold_s")),
        number(figures.get("cold_cpu_s")),
        count(figures.get("cold_programs")),
        number(figures.get("cold_compile_s")),
        count(figures.get("programs")),
        number(figures.get("warm_s")),
        number(figures.get("warm_cpu_s")),
        count(figures.get("warm_programs")),
        number(figures.get("steady_ms")) + late,
        number(figures.get("peak_mib")),
        number(figures.get("added_mib")),
    ]


def table(rows: Iterable[Cell], title: str) -> Table:
    """Returns the medians as a table, a section for each case."""
    shown = Table(
        title=title,
        caption="cold: the first steps with an empty cache; warm: with that of an earlier process; "
        "compile: summed over threads; all programs: of the cold process to its end; later: a step "
        "after warm-up (* while programs were still compiled); added: peak beyond the imports",
        title_justify="left",
        caption_justify="left",
    )
    for name in ("case", "runner"):
        shown.add_column(name, no_wrap=True)
    for name in (
        "cold steps, s", "cold, s", "CPU, s", "programs", "compile, s", "all programs",
        "warm, s", "CPU, s", "programs", "later, ms", "peak, MiB", "added, MiB",
    ):  # fmt: skip
        shown.add_column(name, justify="right", no_wrap=name == "cold steps, s")
    before = ""
    for cell in rows:
        if before and cell.case != before:
            shown.add_section()
        shown.add_row(cell.case if cell.case != before else "", cell.runner, *cells(cell))
        before = cell.case
    return shown


def show(rows: list[Cell], title: str, console: Console) -> None:
    """Prints the table, and below it what failed and why."""
    console.width = max(console.width, 160)
    console.print(table(rows, title))
    for cell in rows:
        if cell.failure:
            rounds = f" (after {len(cell.warm)} good rounds)" if cell.warm else ""
            message = f"{cell.case}, {cell.runner}{rounds}: {cell.failure}"
            console.print(message, style="red", markup=False, highlight=False)


def save_json(rows: list[Cell], options: dict[str, Any], file: Path) -> None:
    """Writes options, and for each cell its medians and every sample; units as in the names."""
    found = [{**asdict(cell), "medians": cell.medians()} for cell in rows]
    file.write_text(json.dumps({"options": options, "cells": found}, indent=1), encoding="utf-8")


def save_chart(rows: list[Cell], title: str, file: Path) -> None:
    """Draws a dot for each case and runner, one panel a figure; a cross where there is none."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(cell.case for cell in rows))
    runners = list(dict.fromkeys(cell.runner for cell in rows))
    figure = Figure(figsize=(max(8, 1.2 * len(cases) + 3), 12), layout="constrained")
    panels = figure.subplots(len(CHART_COLUMNS), 1, sharex=True)
    for panel, (name, label) in zip(panels, CHART_COLUMNS.items(), strict=True):
        for i, runner in enumerate(runners):
            found = {cell.case: cell.medians().get(name) for cell in rows if cell.runner == runner}
            shift = 0.6 * (i - (len(runners) - 1) / 2) / len(runners)
            places = [cases.index(case) + shift for case, value in found.items() if value]
            missing = [cases.index(case) + shift for case, value in found.items() if not value]
            values = [value for value in found.values() if value]
            panel.plot(places, values, "o", label=runner, color=f"C{i}")
            for place in missing:
                bottom = panel.get_xaxis_transform()
                panel.text(place, 0.02, "x", color=f"C{i}", ha="center", transform=bottom)
        panel.set_ylabel(label)
        panel.grid(axis="y", alpha=0.3)
        if name.endswith("_mib"):
            panel.set_ylim(bottom=0)
        else:
            panel.set_yscale("log")
    panels[-1].set_xticks(range(len(cases)), cases)
    panels[0].legend(ncols=len(runners), fontsize="small")
    figure.suptitle(title)
    figure.savefig(file)
