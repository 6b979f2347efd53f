"""Fixtures of all tests: a known seed, the mode as it was, and no silent work on the host."""

import os
import tempfile

# Before torch is imported, as the backend then reads the environment: no test may write into the
# user's own cache of programs.
_cache = tempfile.TemporaryDirectory(prefix="torchtpu-tests-", ignore_cleanup_errors=True)
os.environ["TORCH_TPU_CACHE_DIR"] = _cache.name

import pytest  # noqa: E402
import torch  # noqa: E402
from support import DEVICE  # noqa: E402


def pytest_report_header():
    if DEVICE != "tpu":
        return f"device under test: {DEVICE}"
    import torch_tpu._C as glue

    torch.tpu.init()
    return f"device under test: tpu on {glue.platform()} ({glue.plugin_path()})"


def pytest_runtest_setup(item):
    about_cpu = item.get_closest_marker("cpu_plugin")
    if about_cpu and DEVICE == "tpu":
        import torch_tpu._C as glue

        torch.tpu.init()
        if glue.platform() != "cpu":
            pytest.skip(f"about the CPU plugin: {about_cpu.args[0]}")


@pytest.fixture(autouse=True)
def known_state():
    torch.manual_seed(1234)
    if DEVICE != "tpu":
        yield
        return
    mode, fallback = torch.tpu.eager_mode, torch.tpu.host_fallback
    yield
    torch.tpu.eager_mode, torch.tpu.host_fallback = mode, fallback


@pytest.fixture
def no_host():
    """Refuses to run any operator on the host."""
    if DEVICE == "tpu":
        torch.tpu.host_fallback = "error"
