"""The caches of compiled programs: what the next process finds, and the commands."""

import json
import os
import subprocess
import sys

import pytest
from support import ROOT, only_tpu, python, slow_but

pytestmark = only_tpu

TRAINING = """
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
model = model.to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
x = torch.randn(32, 8).to("tpu")
for _ in range(3):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
value = loss.item()
"""
SUM = 'value = (torch.arange(5.0).to("tpu") * 3).exp().sum().item()'
REPORT = """
print(repr(value), *(torch.tpu.metrics()[name] for name in ("compiles", "disk_hits", "disk_bad")))
"""
# Several commands in one process, as starting one takes seconds.
COMMANDS = """
import json
from typer.testing import CliRunner
from torch_tpu._cache import app
done = [CliRunner().invoke(app, line) for line in {}]
print(json.dumps([[result.exit_code, result.stdout, result.stderr] for result in done]))
"""


def script(body, mode="STRICT"):
    start = f"import torch; torch.manual_seed(0); torch.tpu.eager_mode = torch.tpu.EagerMode.{mode}"
    return f"{start}\n{body}\n{REPORT}"


def run(body=SUM, mode="STRICT", **environment):
    """Returns the value, and how many programs were compiled, found, and broken.

    Nothing is compiled in the background: how much of that is done when the process ends is chance.
    """
    environment.setdefault("TORCH_TPU_FUSED_TIER", "chunks")
    code, out, err = python(script(body, mode), **environment)
    assert code == 0, err
    value, *counts = out.split()
    return float(value), *map(int, counts)


def commands(*lines, **environment):
    """Returns (exit code, stdout, stderr) of each command."""
    code, out, err = python(COMMANDS.format(lines), **environment)
    assert code == 0, out + err
    return json.loads(out)


def programs(folder):
    return sorted(path for path in folder.iterdir() if path.suffix == ".program1")


@pytest.mark.parametrize("mode", slow_but(["STRICT", "FUSED"], "FUSED"))
def test_second_process_compiles_nothing(tmp_path, mode):
    folder = str(tmp_path / "cache")
    first = run(TRAINING, mode, TORCH_TPU_CACHE_DIR=folder)
    assert first[1] > 0 and first[2] == 0
    second = run(TRAINING, mode, TORCH_TPU_CACHE_DIR=folder)
    assert second == (first[0], 0, first[1], 0)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_large_programs_are_loaded_behind_small_ones(tmp_path):
    """A chunk is launched as its operators until its own program, which a folder has, is there.

    Where the host's kernels need no compiler it is not looked for at once.
    """
    here = {"TORCH_TPU_CACHE_DIR": str(tmp_path)}
    tiers = 'tiers = torch.tpu.metrics()["tiers"]; value = sum(tiers.values()) - tiers["chunks"]'
    for tier in ("operators", "pieces", "kernels", "chunks"):
        small = run(f"{TRAINING}\n{tiers}", "FUSED", TORCH_TPU_FUSED_TIER=tier, **here)[0]
        assert (small == 0) == (tier == "chunks")
    small, compiled, found, broken = run(
        f"{TRAINING}\n{tiers}",
        "FUSED",
        TORCH_TPU_FUSED_TIER="auto",
        TORCH_TPU_KERNELS="xla",
        **here,
    )
    assert small > 0 and found > 0 and (compiled, broken) == (0, 0)


@pytest.mark.slow
def test_broken_entries_are_rebuilt(tmp_path):
    here = {"TORCH_TPU_CACHE_DIR": str(tmp_path)}
    first = run(**here)
    for number, path in enumerate(programs(tmp_path)):
        data = bytearray(path.read_bytes())
        data[(number + 1) * 977 % len(data)] ^= 1 << number % 8
        path.write_bytes(data if number % 2 else data[: len(data) // 2])
    assert run(**here) == (first[0], first[1], 0, first[1])
    assert run(**here) == (first[0], 0, first[1], 0)


@pytest.mark.slow
def test_off_and_readonly_write_nothing(tmp_path):
    for mode in ("off", "readonly"):
        assert run(TORCH_TPU_CACHE=mode, TORCH_TPU_CACHE_DIR=str(tmp_path / "cache"))[1] > 0
        assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_folders_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("/proc/self", str(tmp_path / "file")):
        assert run(TORCH_TPU_CACHE_DIR=folder)[1] > 0


def test_info_verify_clear(tmp_path):
    here = {"TORCH_TPU_CACHE_DIR": str(tmp_path)}
    compiled = run(**here)[1]
    run(**here)
    victim, *others = programs(tmp_path)
    stored = sum(path.stat().st_size for path in tmp_path.iterdir() if path.suffix[:2] == ".p")
    info, page = commands(["info", "--json"], ["info"], **here)
    local = json.loads(info[1])["local"]
    assert local["programs"] == local["compiled"] == local["hits"] == compiled
    assert local["bytes"] == stored and f"{compiled} of {2 * compiled}" in page[1]
    victim.write_bytes(victim.read_bytes()[:-1])
    bad, good, clear = commands(["verify", "--json"], ["verify"], ["clear"], **here)
    assert bad[0] == 1 and list(json.loads(bad[1])["bad"]) == [victim.name]
    assert good[0] == 0 and "0 bad" in good[1]
    assert clear[0] == 0 and programs(tmp_path) == [] and others


@pytest.mark.slow
def test_warm_from_a_recorded_run(tmp_path):
    library, folder = str(tmp_path / "library"), str(tmp_path / "cache")
    compiled = run(TORCH_TPU_CACHE_DIR=library)[1]
    warm = ["warm", "--from", library, "--json"]
    missing = ["warm", "--from", library + "2"]
    here = {"TORCH_TPU_CACHE_DIR": folder}
    first, second, third = commands(warm, warm, missing, **here)
    assert json.loads(first[1])["copied"] == compiled
    assert json.loads(second[1])["ready"] == compiled
    assert third[0] == 1 and "no folder" in third[2]
    assert run(**here)[1:3] == (0, compiled)
    # elsewhere the machine code does not fit, so the programs are compiled, ahead of the run
    here["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    assert json.loads(commands(warm, **here)[0][1])["compiled"] == compiled
    assert run(**here)[1:3] == (0, compiled)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_somebody_else_s_folder_is_refused(tmp_path):
    """Programs are machine code."""
    library = tmp_path / "library"
    run(TORCH_TPU_CACHE_DIR=str(library))
    for path in [library, *library.iterdir()]:
        os.chown(path, 12345, 12345)
    warm = ["warm", "--from", str(library), "--json"]
    here = {"TORCH_TPU_CACHE_DIR": str(tmp_path / "cache")}
    status, _, errors = commands(warm, **here)[0]
    assert status != 0 and "belongs to user 12345" in errors
    status, out, errors = commands(warm, **here, TORCH_TPU_SHARED_CACHE_DIR=str(library))[0]
    assert status == 0 and json.loads(out)["ready"] > 0, errors


def indented(body):
    lines = (f"    {line}" for line in body.strip().splitlines())
    return "\n".join(["with torch.tpu.no_recompile():", *lines])


@pytest.mark.parametrize("mode", slow_but(["STRICT", "FUSED"], "STRICT"))
def test_a_warm_start_needs_no_compiler(tmp_path, mode):
    library, folder = str(tmp_path / "library"), str(tmp_path / "cache")
    # recorded for a machine whose machine code does not fit here
    flags = "--xla_cpu_multi_thread_eigen=false"
    recorded = run(TRAINING, mode, TORCH_TPU_CACHE_DIR=library, XLA_FLAGS=flags)
    here = {"TORCH_TPU_CACHE_DIR": folder}
    code, _, err = python(script(indented(TRAINING), mode), **here)
    assert code == 1 and "no_recompile() forbids" in err
    assert not programs(tmp_path / "cache")
    warm = commands(["warm", "--from", library, "--json"], **here)[0]
    assert warm[0] == 0 and json.loads(warm[1])["compiled"] == recorded[1]
    value, *counts = run(indented(TRAINING), mode, **here)
    assert counts == [0, recorded[1], 0]
    assert value == pytest.approx(recorded[0])


@pytest.mark.slow
def test_shared_folder(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    hosts = [
        {"TORCH_TPU_CACHE_DIR": str(tmp_path / name), "TORCH_TPU_SHARED_CACHE_DIR": str(shared)}
        for name in ("a", "b")
    ]
    compiled = run(**hosts[0])[1]
    assert compiled > 0
    assert run(**hosts[1])[1] == 0
    facts = json.loads(commands(["info", "--json"], **hosts[1])[0][1])
    assert facts["local"]["shared_hits"] == facts["shared"]["programs"] == compiled


@pytest.mark.slow
def test_many_processes_compile_once(tmp_path):
    environment = {**os.environ, "TORCH_TPU_CACHE_DIR": str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script(TRAINING)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    results = [worker.communicate(timeout=300)[0].split() for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)
    assert len({result[0] for result in results}) == 1
    assert sum(int(result[1]) for result in results) == len(programs(tmp_path))
