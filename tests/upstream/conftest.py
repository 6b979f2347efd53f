"""Expected failures, which may only become fewer, and one line at the end about what ran."""

import os
import re
import tempfile
from collections import Counter
from pathlib import Path

# Before torch is imported: no test may write into the user's own cache of programs.
if "TORCH_TPU_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="torchtpu-tests-", ignore_cleanup_errors=True)
    os.environ["TORCH_TPU_CACHE_DIR"] = _cache.name

import pytest
import torch

HERE = Path(__file__).parent
EXPECTED = HERE / "expected_failures.txt"
QUICK = HERE / "quick.txt"
SWEEP = {
    "op_db_compiled",
    "op_db_padding",
    "op_db_tracing",
    "op_db_forms",
    "op_db_out",
    "op_db_derivatives",
    "binary_db",
    "distributed_nccl_db",
    "inductor_db",
}
"""The databases whose tests, but those of the quick tier, are run by `make test-sweep` alone."""


def expected_failures():
    """Reads lines of the form "file test: reason"."""
    known = {}
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition(": ")
            assert reason, f"{EXPECTED.name}: a line without a reason: {line}"
            assert name not in known, f"{EXPECTED.name}: two lines for {name}"
            known[name] = reason
    return known


def quick_tests():
    """Reads lines of the form "file test"."""
    return {line for line in QUICK.read_text().splitlines() if line and not line.startswith("#")}


def name_of(item):
    return f"{item.path.stem.removeprefix('test_')} {item.name}"


def whole_files(config):
    """Whether files were collected as they are, so that a name which is missing is stale."""
    return not any("::" in argument for argument in config.args)


def refuse_stale(config, ours, file, names):
    """Refuses names of tests that are not there, as far as their files were collected."""
    files = {name_of(item).split()[0] for item in ours if whole_files(config)}
    stale = {name for name in names if name.split()[0] in files} - {name_of(x) for x in ours}
    if stale:
        raise pytest.UsageError(f"{file.name} names no test: {', '.join(sorted(stale))}")


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(config, items):
    ours = [item for item in items if item.path.parent == HERE]
    known, quick = expected_failures(), quick_tests()
    refuse_stale(config, ours, EXPECTED, known)
    refuse_stale(config, ours, QUICK, quick)
    for item in ours:
        name = name_of(item)
        if name not in quick:
            item.add_marker("sweep" if name.split()[0] in SWEEP else "slow")
        if name in known:
            item.add_marker(pytest.mark.xfail(reason=known[name], strict=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if item.path.parent == HERE and report.failed and "[XPASS(strict)]" in str(report.longrepr):
        report.longrepr = f"passes now: delete the line '{name_of(item)}' from {EXPECTED.name}"
    return report


def pytest_sessionfinish(session):
    """Tells the process that asked for this one's tests what was not compared in it."""
    if hasattr(session.config, "workeroutput"):
        from harness import UNCOMPARED

        session.config.workeroutput["uncompared"] = dict(UNCOMPARED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    from harness import UNCOMPARED

    UNCOMPARED.update(getattr(node, "workeroutput", {}).get("uncompared", {}))


def pytest_terminal_summary(terminalreporter):
    """Prints how many passed, failed as expected or not, and were skipped for which reason."""
    counts, skips = Counter(), Counter()
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            if HERE.name not in Path(getattr(report, "fspath", "")).parts:
                continue
            counts[outcome] += 1
            if outcome == "skipped":
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "?"
                skips[re.sub("^Skipped: ", "", reason)] += 1
    if not counts:
        return
    from harness import UNCOMPARED

    listed = "; ".join(f"{n} {reason}" for reason, n in skips.most_common())
    failed = counts["failed"] + counts["error"]
    mode = torch.tpu.eager_mode.name.lower()
    terminalreporter.write_line(
        f"upstream ({mode}): {counts['passed']} passed, {failed} failed, "
        f"{counts['xfailed']} failed as expected, {counts['skipped']} skipped"
        + (f" ({listed})" if listed else "")
        + "".join(f"; {n} not compared ({reason})" for reason, n in UNCOMPARED.most_common())
    )
