"""`torch.tpu.compiler.inspect`: what became of the graphs of `torch.compile`."""

import html
import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from torch_tpu.compiler import flops as flops_of
from torch_tpu.compiler import functions, hlo, layers, logs, origin
from torch_tpu.tpu.memory import bytes_text


@dataclass(frozen=True)
class ProgramReport:
    """One program of a graph with arguments of one signature; where layers repeat, one of several.

    operators: ATen's, with how often the graph has each. calls: how many entries of the op table
    were recorded for the graph. launches: how many of a call's run this program. optimized: HLO
    after the compiler's passes, or why there is none. flops: those of matrix products and
    convolutions, with what is in a loop counted once: plugins' own estimates differ, and a GPU's
    leaves out what its libraries compute. bytes: the plugin's
    estimate, else those of arguments and outputs. memory: bytes of arguments, outputs, those in
    place of arguments, temporaries, code; empty where the plugin does not tell. source: "compiled",
    "disk", "shared disk", or "memory" where the process had the program already; compile_ms is what
    it took to compile or to load it.
    """

    function: str
    place: str
    operators: dict[str, int]
    calls: int
    launches: int
    stablehlo: str
    optimized: str
    flops: int
    bytes: float | None
    memory: dict[str, int]
    compile_ms: float
    source: str


@dataclass(frozen=True)
class Report:
    """What `inspect` found. `str()` gives a table, `json()` and `html()` all of it."""

    programs: tuple[ProgramReport, ...]
    eager: tuple[dict[str, str], ...]  # graphs that run operator by operator, and why

    def __str__(self) -> str:
        lines = [f"{len(self.programs)} programs"]
        for number, one in enumerate(self.programs):
            lines += [f"\n[{number}] {one.function} ({one.place})"]
            lines += [f"    {name:<12}{value}" for name, value in _rows(one)]
        for graph in self.eager:
            lines.append(f"\n{graph['function']} runs operator by operator: {graph['why']}")
        return "\n".join(lines)

    def json(self) -> str:
        """All of it as a JSON object."""
        programs = [asdict(one) for one in self.programs]
        return json.dumps({"programs": programs, "eager": list(self.eager)}, indent=1)

    def html(self, path: str | Path) -> None:
        """Writes all of it as one page, which needs no other file."""
        parts = []
        for number, one in enumerate(self.programs):
            rows = "".join(
                f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
                for name, value in _rows(one)
            )
            parts.append(
                f"<h2>{number}: {html.escape(one.function)}</h2><p>{html.escape(one.place)}</p>"
                f"<table>{rows}</table>"
                + _folded("StableHLO", one.stablehlo)
                + _folded("optimised HLO", one.optimized)
            )
        parts += [
            f"<p>{html.escape(graph['function'])} runs operator by operator: "
            f"{html.escape(graph['why'])}</p>"
            for graph in self.eager
        ]
        page = PAGE.substitute(count=len(self.programs), body="\n".join(parts))
        Path(path).write_text(page, encoding="utf-8")


def inspect(function: Any = None) -> Report:
    """Tells what torch.compile made of a function or module, or, without one, of all.

    Waits for programs that are being compiled. Functions are told apart by their code: modules of
    one class, which share programs, are reported together. Raises TypeError for what has no code.
    """
    wanted = origin.of(function) if function is not None else None
    if function is not None and wanted is None:
        raise TypeError(f"inspect takes a function or module that was compiled, not {function!r}")
    programs, eager = [], []
    for graph in functions.compiled():
        if wanted is not None and graph.origin != wanted:
            continue
        if graph.why:
            eager.append({"function": _name(graph), "why": graph.why})
        for one in graph.captured:
            programs += [_report(graph, one, facts) for facts in one.tell()]
    return Report(tuple(programs), tuple(eager))


def _name(graph: "functions.Compiled") -> str:
    name = graph.origin.name if graph.origin else "a graph"
    placeholders = (node.name for node in graph.graph.graph.nodes if node.op == "placeholder")
    backward = any(one.startswith("tangents_") for one in placeholders)
    return f"{name}, backward" if backward else name


def _report(graph: "functions.Compiled", function: Any, facts: dict[str, Any]) -> ProgramReport:
    counted = Counter(
        str(node.target) for node in layers.nodes(graph.graph) if node.op == "call_function"
    )
    memory = facts["memory"] or {}
    moved = facts["bytes"]
    if moved is None and memory:
        moved = memory["arguments"] + memory["outputs"]
    place = graph.origin
    return ProgramReport(
        function=_name(graph),
        place=f"{place.file}:{place.line}" if place else "",
        operators=dict(counted.most_common()),
        calls=function.sizes()[0],
        launches=facts["launches"],
        stablehlo=facts["text"],
        optimized=_optimized(facts["optimized"]),
        flops=flops_of.count(facts["text"]),
        bytes=moved,
        memory=memory,
        compile_ms=facts["compile_ns"] / 1e6,
        source=logs.source_of(facts),
    )


def _optimized(module: bytes) -> str:
    if not module:
        return "the plugin does not tell"
    try:
        return hlo.text(module)
    except ValueError as error:
        return str(error)


def _rows(one: ProgramReport) -> list[tuple[str, str]]:
    """What is short of a program, as names and values."""
    operators = ", ".join(f"{count} {name}" for name, count in one.operators.items())
    memory = ", ".join(f"{name} {bytes_text(size)}" for name, size in one.memory.items())
    rows = [
        ("from", f"{one.source}, {one.compile_ms:.1f} ms"),
        ("operators", f"{sum(one.operators.values())}: {operators}"),
        ("calls", str(one.calls)),
        ("launches", str(one.launches)),
        ("memory", memory or "the plugin does not tell"),
        ("flops", f"{one.flops:.4g} (of products and convolutions)"),
    ]
    if one.bytes is not None:
        rows.append(("bytes", bytes_text(one.bytes)))
    return rows


def _folded(title: str, text: str) -> str:
    summary = f"<summary>{title}, {text.count(chr(10))} lines</summary>"
    return f"<details>{summary}<pre>{html.escape(text)}</pre></details>"


PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>torch.compile on tpu</title>
<style>
body { font: 15px/1.5 sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }
th { text-align: left; padding-right: 1em; vertical-align: top; }
pre { overflow-x: auto; background: #f4f4f4; padding: 1em; font-size: 12px; }
</style></head><body>
<h1>torch.compile: $count programs</h1>
$body
</body></html>
""")
