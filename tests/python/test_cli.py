"""`python -m torch_tpu`."""

import json
import socket

import pytest
import torch
from support import ROOT, only_tpu, python

from torch_tpu import _launch

pytestmark = only_tpu


RUN = """
import runpy, sys
sys.argv += {}
runpy.run_module("torch_tpu", run_name="__main__")
"""


def run(*args):
    status, out, errors = python(RUN.format(args))
    assert status == 0, out + errors
    return out


def test_env():
    rows = {row["name"]: row for row in json.loads(run("env", "--json"))}
    assert rows["TORCH_TPU_EAGER_MODE"]["default"] == "fused"
    assert all(row["meaning"] for row in rows.values())
    assert "TORCH_TPU_PLUGIN" in run("env")


def test_info():
    facts = json.loads(run("info", "--json"))
    assert facts["plugin"] and "tpu:0" in facts


def test_ops():
    rows = json.loads(run("ops", "--json"))
    names = [row["name"] for row in rows]
    assert "add.Tensor" in names and len(names) == len(set(names))
    assert all(row["doc"].endswith(".") for row in rows)
    taken = torch._C._dispatch_has_kernel_for_dispatch_key
    own = [name for name in names if "::" not in name]  # others are found when they are called
    dead = {name for name in own if not taken(f"aten::{name}", "PrivateUse1")}
    assert not dead, "PyTorch composes these for every device: their rows are never used"
    table, _, rest = run("ops", "--markdown").partition("\n## decomposed by this package")
    assert table.count("\n| `") == len(rows)
    assert "| `nonzero` |" in rest and "| `_spdiags` |" in rest


def test_launch():
    """A process a chip; what each is told is what the others know of it."""
    found = json.loads(run("launch", "--topology", "v5e:4x4", "--json"))
    assert all(one["well"] for one in found["checks"]) and len(found["processes"]) == 16
    for rank, one in enumerate(found["processes"]):
        assert one["TPU_PROCESS_BOUNDS"] == "4,4,1"
        assert one["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,1,1"
        address = f"host-{one['TPU_WORKER_ID']}:{one['TPU_PROCESS_PORT']}"
        assert one["TPU_PROCESS_ADDRESSES"].split(",")[rank] == address
        assert one["CLOUD_TPU_TASK_ID"] == one["RANK"] == str(rank)
        assert one["TPU_VISIBLE_CHIPS"] == one["LOCAL_RANK"] == str(rank % 4)
    lines = run("launch", "--topology", "v5e:2x4", "--hosts", "127.0.0.1", "--rank", "5")
    assert "export TPU_PROCESS_BOUNDS=2,4,1\n" in lines and "export TPU_VISIBLE_CHIPS=5\n" in lines


def failing(*hosts, topology="v5e:2x4", rank=None, **options):
    """The checks that fail."""
    of = _launch.read_slice(topology, hosts, **options)
    return {one.check: one.found for one in _launch.checks(of, rank) if not one.well}


def test_what_launch_checks(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = failing("127.0.0.1", port=port)
        assert found["ports are free"] == f"taken: 127.0.0.1:{port}"
    assert failing("127.0.0.1", port=65530).keys() == {"ports that exist"}
    assert failing("no-such-host.invalid")["hosts have addresses"].endswith("no-such-host.invalid")
    short = failing("127.0.0.1", "127.0.0.1", topology="v4:2x2x4")
    assert short["a host for each 2x2x1 chips"] == "2 hosts, 4 expected"
    assert short["an address for each process"] == "8 addresses, 2,2,4 processes"
    assert "127.0.0.1:8476" in short["no address twice"]
    monkeypatch.setenv("TPU_PROCESS_BOUNDS", "1,1,1")
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "7")
    assert "TPU_PROCESS_BOUNDS=1,1,1" in failing()["the environment here says the same"]
    assert "TPU_VISIBLE_CHIPS=7" in failing(rank=0)["the environment here says the same"]


@pytest.mark.parametrize(
    "topology, words",
    [
        ("v9:4x4", "it is one of v2"),
        ("v5e:4x4x4", "2 axes, as in v5e:4x4"),
        ("v4:4x4", "3 axes"),
        ("v5e:4x", "2 axes"),
        ("v5e:2x3", "2x2 chips, of which no slice of 2x3"),
    ],
)
def test_topologies_that_are_none(topology, words):
    with pytest.raises(ValueError, match=words):
        _launch.read_slice(topology)


def test_agreement():
    rows = json.loads(run("agreement", "--json"))
    assert any("geqrf" in row["operators"].split() for row in rows)
    assert all(row["because the operator"] for row in rows)


def test_the_page_of_operators_is_current():
    made = run("ops", "--markdown", "--counts", str(ROOT / "bench" / "op_db.json"))
    assert (ROOT / "docs" / "ops.md").read_text() == made, "run `make docs`"
