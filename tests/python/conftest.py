"""Fixtures of all tests: a known seed, the mode as it was, and no silent work on the host."""

import pytest
import torch
from support import DEVICE


def pytest_report_header():
    if DEVICE != "tpu":
        return f"device under test: {DEVICE}"
    import torch_tpu._C as glue

    torch.tpu.init()
    return f"device under test: tpu on {glue.platform()} ({glue.plugin_path()})"


@pytest.fixture(autouse=True)
def known_state():
    torch.manual_seed(1234)
    if DEVICE != "tpu":
        yield
        return
    mode, fallback = torch.tpu.eager_mode, torch.tpu.host_fallback
    yield
    torch.tpu.eager_mode, torch.tpu.host_fallback = mode, fallback
