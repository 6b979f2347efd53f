"""Random programs do on the device, in every eager mode, what they do on the CPU.

TT_FUZZ_PROGRAMS is how many, TT_FUZZ_SEED the first one's seed; tests/python/fuzz can be run alone.
"""

import os
from collections import Counter

import pytest
import torch
from fuzz import campaign, programs, runner, shrink
from support import only_tpu, python, slow_but

COUNT = int(os.environ.get("TT_FUZZ_PROGRAMS", "60"))
FIRST = int(os.environ.get("TT_FUZZ_SEED", "0"))
PARTS = 4
pytestmark = only_tpu


def run(seeds):
    torch.tpu.host_fallback = "silent"
    print(f"programs {seeds.start} to {seeds.stop - 1}")
    for report in campaign.run(seeds):
        pytest.fail(report, pytrace=False)


@pytest.mark.parametrize("part", slow_but(range(PARTS), 0))
def test_random_programs(part):
    size = -(-COUNT // PARTS)
    run(range(FIRST + part * size, FIRST + (part + 1) * size))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_many_random_programs(part):
    run(range(100_000 + 200 * part, 100_000 + 200 * (part + 1)))


@pytest.mark.parametrize("part", slow_but(range(50), 0))
def test_compiled_programs(part):
    """By torch.compile: ten programs, or of the slow ones forty each."""
    count = 40 if part else 10
    for report in campaign.run(range(40 * part, 40 * part + count), ("compiled",), salts=1):
        pytest.fail(report, pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_compiled_programs_of_sizes_that_vary(part):
    first = 50_000 + 20 * part
    for report in campaign.run(range(first, first + 20), ("dynamic",), salts=1):
        pytest.fail(report, pytrace=False)


def test_a_seed_makes_one_program():
    for seed in (3, 11):
        first, again = programs.program(seed), programs.program(seed)
        assert first == again and first.lines
    assert programs.program(3).lines != programs.program(2).lines


def test_a_failure_is_found_and_made_small(monkeypatch):
    wrong = "v3 = v1 + (1 if device == 'cpu' else 2)"
    lines = ["v1 = data(1, (3,), torch.float32)", "v2 = v1 * 2", wrong, "v4 = v3.neg()", "del v2"]
    monkeypatch.setattr(programs, "program", lambda *_: programs.Program(7, lines, {}))
    [report] = campaign.run([7], modes=("strict",), salts=1)
    assert report.startswith("program 7, numbers 0, mode strict")
    kept = shrink.shrink(lines, {}, "strict", 0)
    assert kept == [lines[0], wrong]
    status, output, errors = python(shrink.script(kept, "strict", 0))
    assert status == 0 and "v3" in output, errors


def test_numbers_that_change_a_program_are_counted(monkeypatch):
    lines = ["v1 = data(1, (20,), torch.float32)", "v2 = v1[v1 > 0].clone()"]
    sizes = {int((runner.make_data(1, (20,), torch.float32, salt) > 0).sum()) for salt in (0, 1)}
    assert len(sizes) == 2
    monkeypatch.setattr(programs, "program", lambda *_: programs.Program(7, lines, {}))
    tally = Counter()
    assert not [*campaign.run([7], modes=("strict",), tally=tally)]
    assert tally == {"compared": 1, "left out": 1}


def test_errors_are_compared(monkeypatch):
    assert runner.check(["v1 = torch.ones(2, device=device).view(3)"], {}) is None
    lines = ["v1 = 1 / (0 if device == 'tpu' else 1)"]
    mode, [sentence] = runner.check(lines, {})
    assert mode == "strict" and "ZeroDivisionError" in sentence
