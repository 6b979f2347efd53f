"""`python -m torch_tpu`: what is installed, what can be set, what is supported."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from torch_tpu import _C, __version__, _cache, tpu
from torch_tpu._agreement import table

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
app.add_typer(_cache.app, name="cache")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the page docs/ops.md.")]
Counts = Annotated[
    Path | None, typer.Option(help="What tests/python/dtypes.py recorded, for the page.")
]

OPS_PAGE = """# Operators

Made by `make docs` from the op table and from what PyTorch's dispatcher knows. A row stands for an
operator's functional overload; its in-place and `out=` forms come with it. Static arguments shape
the program: a new value compiles anew, while every other number may change freely. What has no row
is decomposed, by this package or by PyTorch; the few operators that run on the host are at the end.
Where a row's sizes are "any", its operands may be held with room for more (modes.md).
An operator of another library has its name before it, and is there once the library defines it.

A row's f32 results are within 1e-7 of what the CPU computes in f64 from the same operands, as the
sum of squared errors divided by that of the squared values; `tests/python/test_tolerance.py` checks
that. Other tolerances are in a table before that of the host.
"""
TOLERANCE_PAGE = """
## other tolerances than 1e-7

| operator | tolerance | why |
|---|---|---|"""
LAPACK_NOTE = """
Programs of a platform that computes in host memory call LAPACK for these, as PyTorch ships it; on
other platforms they run on the host. There, too, the factorisations of the class before are
LAPACK's; elsewhere they are XLA's, or the op table's own."""
HOST_PAGE = """
## on the host

Each run is a synchronisation and two copies, is counted in `torch.tpu.metrics()`, and is refused
under `TORCH_TPU_HOST_FALLBACK=error`.

| operator | why |
|---|---|"""
OTHERS_PAGE = """
## not for this device

What the CPU computes beyond these is about tensors and libraries that the device does not have.

| operators | why |
|---|---|"""


DTYPES_PAGE = """
## by dtype

Entries of the database of operators that PyTorch's wheel brings along (`op_db`) and lists for the
CPU or CUDA, by dtype. An entry passes if all its samples have the CPU's results, or a wider dtype's
where only CUDA has this one; results of half precision may also be as near to the wider dtype's as
the CPU's are. `tests/python/dtypes.py` counts. Which of equal elements a sort takes first is open.

| dtype | passed | listed | |
|---|---|---|---|"""


def show(rows: Sequence[Mapping[str, Any]], title: str, as_json: bool) -> None:
    """Prints rows, which share their keys, as a table or as JSON."""
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    shown = Table(*(rows[0] if rows else []), title=title, title_justify="left")
    for row in rows:
        shown.add_row(*(str(value) for value in row.values()))
    Console().print(shown)


@app.command()
def env(as_json: Json = False) -> None:
    """Lists the environment variables, their defaults, and their values now."""
    names = ("name", "default", "value", "meaning")
    rows = [
        dict(zip(names, (name, default, current, doc), strict=True))
        for name, default, doc, current in _C.env_vars()
    ]
    show(rows, "Environment variables", as_json)


@app.command()
def integrations(as_json: Json = False) -> None:
    """Lists the libraries that take `tpu` by themselves where nobody names a device."""
    from torch_tpu.integrations import integrations

    rows = [
        {
            "library": one.library,
            "state": "on" if one.state == "waiting" else one.state,
            "tested": one.tested,
            "without it": one.reason,
        }
        for one in integrations()
    ]
    show(rows, "Integrations", as_json)


@app.command()
def info(as_json: Json = False) -> None:
    """Tells versions, the plugin, and its devices."""
    from torch_tpu._build_info import TORCH

    facts: dict[str, Any] = {
        "torchtpu": __version__,
        "torch": torch.__version__,
        "built for torch": TORCH,
    }
    try:
        tpu.init()
    except RuntimeError as error:
        facts["problem"] = str(error)
    else:
        facts |= {
            "plugin": _C.plugin_path(),
            "platform": _C.platform(),
            "platform version": _C.platform_version(),
            "PJRT C API": ".".join(str(part) for part in _C.api_version()),
        }
        for index in range(_C.device_count()):
            free, total = tpu.mem_get_info(index)
            facts[f"tpu:{index}"] = (
                f"{_C.device_kind(index)}, the plugin's device {_C.device_id(index)}, "
                f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
            )
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    else:
        show([{"what": key, "value": value} for key, value in facts.items()], "torchtpu", False)
    raise typer.Exit(1 if "problem" in facts else 0)


@app.command()
def launch(
    topology: Annotated[str, typer.Option(help="The slice, such as v5e:4x4.")],
    hosts: Annotated[
        str, typer.Option(help="Names or addresses of the hosts, comma-separated, in their order.")
    ] = "",
    port: Annotated[int, typer.Option(help="Of a host's first process; others' follow.")] = 8476,
    master_port: Annotated[int, typer.Option(help="Of torch.distributed's store.")] = 29500,
    rank: Annotated[
        int | None, typer.Option(help="Print this process's variables alone, for `eval`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Prints the environment of a slice's processes, one a chip, and checks it.

    Its exit status is 1 if a check fails.
    """
    from torch_tpu import _launch

    try:
        found = _launch.read_slice(
            topology, [one for one in hosts.split(",") if one], port, master_port
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if rank is not None and not 0 <= rank < found.size:
        raise typer.BadParameter(
            f"--rank {rank}: the ranks of {topology} are 0 to {found.size - 1}"
        )
    checks = _launch.checks(found, rank)
    if rank is not None and not as_json:
        for name, value in found.environment(rank).items():
            if name.startswith(_launch.OF_TPUS) or not _launch.is_under_torchrun():
                typer.echo(f"export {name}={value}")
        for one in checks:
            if not one.well:
                typer.echo(f"{one.check}: no; {one.found}", err=True)
    else:
        _show_slice(found, checks, rank, as_json)
    raise typer.Exit(0 if all(one.well for one in checks) else 1)


def _show_slice(of: Any, checks: Sequence[Any], rank: int | None, as_json: bool) -> None:
    ranks = range(of.size) if rank is None else [rank]
    if as_json:
        facts = {
            "topology": of.topology,
            "processes": [of.environment(one) for one in ranks],
            "checks": [one._asdict() for one in checks],
        }
        typer.echo(json.dumps(facts, indent=1))
        return
    for name, value in of.shared().items():
        typer.echo(f"export {name}={value}")
    for one in ranks:
        own = " ".join(f"{name}={value}" for name, value in of.own(one).items())
        typer.echo(f"# {of.hosts[one // of.per_host]}: {own}")
    show([one._asdict() for one in checks], "Checks", False)


@app.command()
def ops(as_json: Json = False, markdown: Markdown = False, counts: Counts = None) -> None:
    """Lists the operators of the op table."""
    names = ("name", "class", "statics", "doc", "tolerance", "why", "sizes")
    rows = [dict(zip(names, row, strict=True)) for row in _C.op_rows()]
    if markdown:
        typer.echo(ops_page(rows) + (dtypes_section(counts) if counts else ""))
    else:
        show(rows, f"{len(rows)} operators", as_json)


@app.command()
def agreement(as_json: Json = False) -> None:
    """Lists what the package knows of single operators, and why it has to."""
    rows = [
        {"kind": one.kind, "operators": one.operators, "because the operator": one.reason}
        for one in table.ROWS
    ]
    show(rows, f"{len(rows)} agreements with PyTorch's kernels", as_json)


def ops_page(rows: list[dict[str, Any]]) -> str:
    """Returns the op table and what lies beside it as a Markdown page, one section a class."""
    from torch_tpu import _decompositions, _host

    parts = [OPS_PAGE, f"{len(rows)} rows."]
    for family in dict.fromkeys(row["class"] for row in rows):
        parts.append(
            f"\n## {family}\n\n| operator | static arguments | sizes | what it does |\n"
            "|---|---|---|---|"
        )
        parts += [_ops_line(row) for row in rows if row["class"] == family]
        if family == "lapack":
            parts.append(LAPACK_NOTE)
    own = _decompositions.table()
    parts.append("\n## decomposed by this package\n\n| operator | what it does |\n|---|---|")
    parts += [f"| `{_short(name)}` | {_summary(own[name])} |" for name in sorted(own)]
    theirs = [name for name, path in _host.paths() if path == "decomposed"]
    parts.append("\n## decomposed by PyTorch\n\nAnd what PyTorch composes for every device.\n")
    parts.append(", ".join(f"`{_short(name)}`" for name in theirs) + ".")
    parts.append(TOLERANCE_PAGE)
    parts += [
        f"| `{row['name']}` | {row['tolerance']:g} | {row['why']} |" for row in rows if row["why"]
    ]
    parts.append(HOST_PAGE)
    for name, reason in sorted(_host.named(_host.ON_HOST).items()):
        parts.append(f"| `{_short(name)}` | {reason} |")
    parts.append(OTHERS_PAGE)
    for reason, names in _host.OTHER_TENSORS.items():
        parts.append(f"| {', '.join(f'`{name}`' for name in names)} | {reason} |")
    return "\n".join(parts)


def dtypes_section(path: Path) -> str:
    """Returns how much of PyTorch's database passes, by dtype, as recorded in a file."""
    parts = ["", DTYPES_PAGE]
    for dtype, count in json.loads(path.read_text()).items():
        share = 100 * count["passed"] / count["listed"]
        parts.append(f"| {dtype} | {count['passed']} | {count['listed']} | {share:.1f} % |")
    return "\n".join(parts)


def _short(name: str) -> str:
    return name.removeprefix("aten::")


def _summary(function: Any) -> str:
    return str(function.__doc__).partition("\n")[0]


def _ops_line(row: dict[str, Any]) -> str:
    statics = ", ".join(f"`{name}`" for name in row["statics"].split(",") if name)
    doc = row["doc"].replace("|", r"\|")
    return f"| `{row['name']}` | {statics} | {'any' * row['sizes']} | {doc} |"


if __name__ == "__main__":
    app(prog_name="python -m torch_tpu")
