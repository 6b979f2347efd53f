"""The caches of compiled programs: what the next process finds, and the commands."""

import json
import os
import subprocess
import sys

import pytest
from support import ROOT, only_tpu, python

pytestmark = only_tpu

STEP = """
import torch
torch.manual_seed(0)
with torch.tpu.set_eager_mode(torch.tpu.EagerMode.%s):
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
import torch_tpu._C as glue
print(repr(value), *(glue.metrics()[name] for name in ("compiles", "disk_hits", "disk_bad")))
"""


def step(mode="STRICT", **environment):
    """Trains for three steps; returns the loss, and what was compiled, found, and broken."""
    code, out, err = python(STEP % mode, **environment)
    assert code == 0, err
    loss, *counts = out.split()
    return float(loss), *map(int, counts)


def command(*args, code=0, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "torch_tpu", "cache", *args],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def programs(folder):
    return sorted(path for path in folder.iterdir() if path.suffix == ".program1")


@pytest.mark.parametrize("mode", ["STRICT", "FUSED"])
def test_second_process_compiles_nothing(tmp_path, mode):
    folder = str(tmp_path / "cache")
    first = step(mode, TORCH_TPU_CACHE_DIR=folder)
    assert first[1] > 0 and first[2] == 0
    second = step(mode, TORCH_TPU_CACHE_DIR=folder)
    assert second[1] == 0 and second[2] == first[1]
    assert second[0] == first[0]
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_broken_entries_are_rebuilt(tmp_path):
    first = step(TORCH_TPU_CACHE_DIR=str(tmp_path))
    for number, path in enumerate(programs(tmp_path)):
        data = bytearray(path.read_bytes())
        data[number * 977 % len(data)] ^= 1 << number % 8
        path.write_bytes(data if number % 2 else data[: len(data) // 2])
    again = step(TORCH_TPU_CACHE_DIR=str(tmp_path))
    assert again[0] == first[0] and again[1] == first[1] == again[3]
    assert json.loads(command("verify", "--json", TORCH_TPU_CACHE_DIR=str(tmp_path)))["bad"] == {}


def test_other_flags_are_other_programs(tmp_path):
    first = step(TORCH_TPU_CACHE_DIR=str(tmp_path))
    flags = "--xla_cpu_multi_thread_eigen=false"
    other = step(TORCH_TPU_CACHE_DIR=str(tmp_path), XLA_FLAGS=flags)
    assert other[1] == first[1] and other[2] == 0


def test_off_and_readonly_write_nothing(tmp_path):
    for mode in ("off", "readonly"):
        assert step(TORCH_TPU_CACHE=mode, TORCH_TPU_CACHE_DIR=str(tmp_path / "cache"))[1] > 0
        assert not (tmp_path / "cache").exists()


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("/proc/self", str(tmp_path / "file"), "/nowhere\n%s"):
        assert step(TORCH_TPU_CACHE_DIR=folder)[1] > 0


def test_info_verify_clear(tmp_path):
    folder = {"TORCH_TPU_CACHE_DIR": str(tmp_path)}
    assert json.loads(command("info", "--json", **folder))["local"]["programs"] == 0
    compiled = step(**folder)[1]
    step(**folder)
    local = json.loads(command("info", "--json", **folder))["local"]
    assert local["programs"] == local["compiled"] == local["hits"] == compiled
    assert local["bytes"] == sum(
        path.stat().st_size for path in tmp_path.iterdir() if path.suffix.startswith(".p")
    )
    assert f"{compiled} of {2 * compiled}" in command("info", **folder)
    victim = programs(tmp_path)[0]
    victim.write_bytes(victim.read_bytes()[:-1])
    report = json.loads(command("verify", "--json", code=1, **folder))
    assert list(report["bad"]) == [victim.name] and not victim.exists()
    assert "0 bad" in command("verify", **folder)
    command("clear", **folder)
    assert programs(tmp_path) == []


def test_warm_from_a_recorded_run(tmp_path):
    library, folder = tmp_path / "library", tmp_path / "cache"
    here = {"TORCH_TPU_CACHE_DIR": str(folder)}
    compiled = step(TORCH_TPU_CACHE_DIR=str(library))[1]
    args = ("warm", "--from", str(library), "--json")
    assert json.loads(command(*args, **here))["copied"] == compiled
    assert json.loads(command(*args, **here))["ready"] == compiled
    assert step(**here)[1:3] == (0, compiled)
    # elsewhere the machine code does not fit, so the programs are compiled, ahead of the run
    other = here | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    assert json.loads(command(*args, **other))["compiled"] == compiled
    assert step(**other)[1:3] == (0, compiled)
    assert "no folder" in python_error("warm", "--from", str(tmp_path / "missing"))


def python_error(*args):
    done = subprocess.run(
        [sys.executable, "-m", "torch_tpu", "cache", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    return done.stderr


def test_shared_folder(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    hosts = [
        {"TORCH_TPU_CACHE_DIR": str(tmp_path / name), "TORCH_TPU_SHARED_CACHE_DIR": str(shared)}
        for name in ("a", "b")
    ]
    compiled = step(**hosts[0])[1]
    assert compiled > 0
    assert step(**hosts[1])[1] == 0
    facts = json.loads(command("info", "--json", **hosts[1]))
    assert facts["local"]["shared_hits"] == facts["shared"]["programs"] == compiled


def test_many_processes_compile_once(tmp_path):
    environment = {**os.environ, "TORCH_TPU_CACHE_DIR": str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", STEP % "STRICT"], env=environment, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    results = [worker.communicate(timeout=180)[0].split() for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)
    assert len({result[0] for result in results}) == 1
    compiled = sum(int(result[1]) for result in results)
    assert compiled == len(programs(tmp_path))
