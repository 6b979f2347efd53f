"""`python -m torch_tpu`."""

import json

import torch
from support import ROOT, only_tpu, python

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
    assert rows["TORCH_TPU_EAGER_MODE"]["default"] == "strict"
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


def test_agreement():
    rows = json.loads(run("agreement", "--json"))
    assert any("geqrf" in row["operators"].split() for row in rows)
    assert all(row["because the operator"] for row in rows)


def test_the_page_of_operators_is_current():
    made = run("ops", "--markdown", "--counts", str(ROOT / "bench" / "op_db.json"))
    assert (ROOT / "docs" / "ops.md").read_text() == made, "run `make docs`"
