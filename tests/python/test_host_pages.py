"""The pages under the CPU plugin's buffers: kept by malloc where small, huge where large."""

import os
import platform
import sys
from pathlib import Path

import pytest
from support import only_tpu, python

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = [
    only_tpu,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="glibc's malloc only"
    ),
    pytest.mark.skipif(
        not os.environ.get("TORCH_TPU_PLUGIN", "cpu").endswith("cpu"), reason="another plugin"
    ),
]

# Prints page faults per step of a function whose results are MEBIBYTES MiB large.
FAULTS = """
import resource, torch
x = torch.ones(MEBIBYTES << 18, device="tpu")
def step():
    y = x
    for _ in range(4):
        y = y + 1
        y[-1].item()
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10)
"""


def faults(mebibytes, **environment):
    code = FAULTS.replace("MEBIBYTES", str(mebibytes))
    status, out, err = python(code, fresh=True, TORCH_TPU_EAGER_MODE="strict", **environment)
    assert status == 0, err
    return int(out)


@pytest.mark.slow
def test_small_blocks_stay_with_malloc():
    # Four results of 16 MiB have 16,384 pages of 4 KiB.
    assert faults(16) < 2000
    assert faults(16, MALLOC_MMAP_THRESHOLD_="65536") > 5000, "the user's own settings hold"


@pytest.mark.slow
@pytest.mark.skipif(not THP.exists() or "[never]" in THP.read_text(), reason="no huge pages here")
def test_large_blocks_take_huge_pages():
    # Four results of 64 MiB have 65,536 pages of 4 KiB, 128 huge ones.
    assert faults(64) < 10000
    assert faults(64, TORCH_TPU_HOST_PAGES="off") > 30000
