"""Operators on sparse, nested and masked tensors against the CPU, layout by layout (layouts.py)."""

import pytest
import torch
from layouts import CASES, LISTED, agree
from support import DEVICE

pytestmark = [
    pytest.mark.usefixtures("no_host"),
    pytest.mark.filterwarnings("ignore"),  # PyTorch calls most of this a prototype
]

QUICK = {
    "coo/product hspmm",
    "coo/masked add",
    "csr/single solve",
    "csr/gradient to csc",
    "csc/pair sparse_mask",
    "bsc/single double",
    "strided/product mm",
    "jagged/isnan",
    "nested/matmul with itself",
}


def cases():
    for layout, rows in CASES.items():
        for name in rows:
            case = f"{layout}/{name}"
            marks = [] if case in QUICK else [pytest.mark.sweep]
            if case in LISTED and DEVICE == "tpu":
                marks.append(pytest.mark.xfail(reason=LISTED[case], strict=True))
            yield pytest.param(layout, name, id=case, marks=marks)


@pytest.mark.parametrize(("layout", "name"), cases())
def test_layout(layout, name):
    torch.sparse.check_sparse_tensor_invariants.disable()
    for number, (work, inputs) in enumerate(CASES[layout][name]()):
        try:
            agree(work, inputs)
        except Exception as error:
            raise AssertionError(f"sample {number}, {inputs}: {error}") from error


def test_lists_name_cases():
    known = {f"{layout}/{name}" for layout, rows in CASES.items() for name in rows}
    assert known >= QUICK
    assert known >= set(LISTED)
