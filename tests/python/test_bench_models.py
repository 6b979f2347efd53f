"""bench/models.py: medians, the report, and what becomes of runners that fail."""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from support import ROOT, only_tpu

sys.path.append(str(ROOT / "bench"))
import model_process
import model_report
import models
from model_cases import CASES
from model_process import Sample, settle
from model_report import Cell

CRASH = (
    "F0000 00:00:1.2 7 partitioner.cc:269] Check failed: maps.size() == 1 (0 vs. 1) \n    @ 0x7f"
)


def sample(*first, steady=(), programs=None):
    return Sample(
        first_s=list(first),
        first_cpu_s=2 * sum(first),
        losses=[1.0] * len(first),
        programs=programs,
        steady_ms=list(steady),
        programs_steady=0 if programs is not None else None,
        programs_all=programs,
        imports_mib=100,
        peak_mib=150,
    )


@pytest.fixture
def cell():
    cold = [sample(s, 0.5, 0.25, steady=[s, 4, 5], programs=7) for s in (1, 3, 20)]
    return Cell("gpt2", "fused", cold, [sample(0.5, 0.25, 0.25, programs=0)] * 3)


@pytest.fixture
def failed():
    return Cell("mixtral", "peer", failure="SIGABRT: Check failed: maps.size() == 1 (0 vs. 1)")


def printed(rows):
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    model_report.show(rows, "a title", console)
    console.file.close()
    return console.export_text()


# -- Medians and the report --


def test_medians_are_over_rounds(cell):
    figures = cell.medians()
    assert figures["cold_steps_s"] == [3, 0.5, 0.25] and figures["cold_s"] == 3.75
    assert figures["cold_cpu_s"] == 7.5 and figures["warm_s"] == 1
    assert figures["steady_ms"] == 4  # of the rounds' medians 4, 4 and 5
    assert (figures["programs"], figures["warm_programs"], figures["programs_steady"]) == (7, 0, 0)
    assert (figures["peak_mib"], figures["added_mib"]) == (150, 50)


def test_what_a_runner_does_not_count_is_left_out():
    figures = Cell("gpt2", "cpu", [sample(1, 1, 1)], [sample(1, 1, 1)]).medians()
    assert not figures.keys() & {"programs", "compile_s", "steady_ms", "programs_steady"}


def test_table_has_a_row_for_every_cell(cell, failed):
    text = printed([cell, failed])
    row, other = (
        next(line for line in text.splitlines() if case in line) for case in ("gpt2", "mixtral")
    )
    assert "3.00 0.500 0.250" in row and "3.75" in row
    assert "SIGABRT" in other and other.count(" - ") == 11
    assert "mixtral, peer: SIGABRT: Check failed: maps.size() == 1" in text


def test_steps_that_still_compiled_are_marked(cell):
    assert "4.00*" not in printed([cell])
    cell.cold = [sample(1, 1, 1, steady=[4], programs=3)]
    cell.cold[0].programs_steady = 1
    assert "4.00*" in printed([cell])


@pytest.mark.parametrize(
    "value, text", [(None, "-"), (12345.6, "12346"), (99.94, "99.9"), (0.01234, "0.0123")]
)
def test_numbers_have_three_digits(value, text):
    assert model_report.number(value) == text


@pytest.mark.slow
def test_files(cell, failed, tmp_path):
    model_report.save_json([cell, failed], {"rounds": 3}, tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["options"] == {"rounds": 3}
    good, bad = found["cells"]
    assert len(good["cold"]) == 3 and good["medians"]["cold_s"] == 3.75
    assert bad["failure"].startswith("SIGABRT") and bad["medians"] == {}
    model_report.save_chart([cell, failed], "a title", tmp_path / "found.png")
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


# -- Failures --


@pytest.mark.parametrize(
    "status, out, err, reason",
    [
        (-signal.SIGABRT, "", CRASH, "SIGABRT: Check failed: maps.size() == 1 (0 vs. 1)"),
        (-signal.SIGSEGV, "noise\n", "", "SIGSEGV"),
        (1, '{"failure": "RuntimeError: no"}\n', "Traceback", "RuntimeError: no"),
        (2, "", "Traceback\nImportError: no torch\n", "exit status 2: ImportError: no torch"),
        (0, "no line of JSON", "", "exit status 0"),
    ],
)
def test_reasons(status, out, err, reason):
    with pytest.raises(models.FailureError) as failure:
        models.read(status, out, err)
    assert str(failure.value) == reason


def test_the_last_line_counts():
    line = json.dumps({"first_s": [1.0], "first_cpu_s": 2.0, "losses": [3.0]})
    assert models.read(0, f"a library's greeting\n{line}\n", "").losses == [3.0]


def test_a_failure_ends_a_cell_and_no_other(monkeypatch):
    asked = []

    def run(self, runner, case, steps, folder):
        asked.append((runner, steps))
        if runner == "peer":
            raise models.FailureError("not done after 1 s")
        return sample(1, 1, 1)

    monkeypatch.setattr(models.Launcher, "run", run)
    cells = [Cell("gpt2", "cpu"), Cell("gpt2", "peer")]
    models.measure_all(models.Launcher(), cells, 2, 5, Console(quiet=True))
    assert asked == [("cpu", 5), ("cpu", 0), ("peer", 5), ("cpu", 5), ("cpu", 0)]
    assert len(cells[0].warm) == 2 and not cells[0].failure
    assert cells[1].failure == "not done after 1 s" and not cells[1].cold


@pytest.mark.parametrize(
    "code, timeout, reason",
    [
        ("import time; time.sleep(60)", 1, "not done after 1 s"),
        ("1 / 0", 60, "exit status 1: ZeroDivisionError"),
        ("import os; os.abort()", 60, "SIGABRT"),
    ],
)
def test_processes_without_an_answer(code, timeout, reason, monkeypatch, tmp_path):
    script = tmp_path / "process.py"
    script.write_text(code)
    monkeypatch.setattr(models, "PROCESS", script)
    with pytest.raises(models.FailureError, match=reason):
        models.Launcher(timeout=timeout).run("cpu", "gpt2", 1, tmp_path)


# -- What a process measures --


def test_settling_waits_for_the_last_program():
    programs = iter([*range(20), *[20] * 100])
    now = partial(next, programs)
    assert settle(lambda: 0.0, now, 1, 0) == 20 + model_process.QUIET
    assert settle(lambda: 0.0, lambda: None, 1, 0) == model_process.WARMUP
    assert settle(lambda: 0.0, partial(next, iter(range(1000))), 1, 0) == model_process.PATIENCE
    assert settle(lambda: 0.0, lambda: 0, 10, 0) == 1


def test_cpu_seconds_and_memory():
    before = model_process.cpu_seconds()
    sum(range(3_000_000))
    assert model_process.cpu_seconds() > before
    assert 0 < model_process.memory_mib("VmRSS") <= model_process.memory_mib("VmHWM")


def test_peers_run_in_their_own_environment():
    launcher = models.Launcher(peer=Path("peer"), peer_path=Path("path"))
    assert launcher.environment("peer", Path("f"))["PYTHONPATH"] == "path"
    ours = launcher.environment("fused", Path("f"))
    assert ours["TORCH_TPU_CACHE_DIR"] == "f/torch_tpu" and "PEER_SHIM" not in ours


@only_tpu
@pytest.mark.slow
@pytest.mark.parametrize("runner", ["strict", "cpu"])
def test_cheapest_case(runner, tmp_path):
    pytest.importorskip("transformers", reason="needs scripts/requirements-models.txt")
    cell = Cell("resnet", runner)
    models.measure(models.Launcher(), cell, 2)
    assert not cell.failure
    (cold,), (warm,) = cell.cold, cell.warm
    assert len(cold.first_s) == CASES["resnet"].first and len(cold.steady_ms) == 2
    assert 0 < cold.imports_mib < cold.peak_mib and cold.first_cpu_s > 0
    assert cold.losses == pytest.approx(warm.losses, rel=1e-5)
    if runner == "strict":
        assert cold.programs > 0 and cold.programs_steady == 0 and warm.programs == 0
