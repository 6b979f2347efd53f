"""Fixtures of all tests: a known seed, the mode as it was, and no silent work on the host."""

import os
import tempfile
from collections import defaultdict

# Before torch is imported, as the backend then reads the environment: no test may write into the
# user's own cache of programs.
_cache = tempfile.TemporaryDirectory(prefix="torchtpu-tests-", ignore_cleanup_errors=True)
os.environ["TORCH_TPU_CACHE_DIR"] = _cache.name
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(_cache.name, "graphs")

import pytest  # noqa: E402
import torch  # noqa: E402
from support import DEVICE, TIERS  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--tier", choices=TIERS, help="what chunks are launched as in Fused mode")


def pytest_configure(config):
    if config.getoption("--tier"):  # read once, by this process and by those that tests start
        os.environ["TORCH_TPU_FUSED_TIER"] = config.getoption("--tier")


def pytest_report_header():
    if DEVICE != "tpu":
        return f"device under test: {DEVICE}"
    import torch_tpu._C as glue

    torch.tpu.init()
    return f"device under test: tpu on {glue.platform()} ({glue.plugin_path()})"


def diagonal(items):
    """Of one test's items those that show each value of each parameter, but few of them twice."""
    places = defaultdict(dict)  # of values, by parameter; a test has them as they are: no copies
    for item in items:
        for name, value in item.callspec.params.items():
            places[name].setdefault(id(value), len(places[name]))
    longest = max(places, key=lambda name: len(places[name]))
    for item in items:
        at = {name: places[name][id(value)] for name, value in item.callspec.params.items()}
        if all(at[name] == at[longest] % len(places[name]) for name in at):
            yield item


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(items):
    """Makes the tests of crossed parameters slow that lie off the diagonal, where it is asked."""
    marked = defaultdict(list)
    for item in items:
        if item.get_closest_marker("diagonal"):
            marked[item.path, item.originalname].append(item)
    for combinations in marked.values():
        quick = {*diagonal(combinations)}
        for item in combinations:
            if item not in quick:
                item.add_marker("slow")


def pytest_runtest_setup(item):
    about_cpu = item.get_closest_marker("cpu_plugin")
    if about_cpu and DEVICE == "tpu":
        import torch_tpu._C as glue

        torch.tpu.init()
        if glue.platform() != "cpu":
            pytest.skip(f"about the CPU plugin: {about_cpu.args[0]}")


@pytest.fixture(autouse=True, scope="module")
def known_sizes():
    """No file's programs depend on which sizes changed in those that ran before."""
    if DEVICE == "tpu" and torch.tpu.is_initialized():
        import torch_tpu._C as glue

        glue._forget_sizes()


@pytest.fixture(autouse=True)
def known_state(request):
    torch.manual_seed(1234)
    if DEVICE != "tpu":
        yield
        return
    import torch_tpu._C as glue

    mode, fallback = torch.tpu.eager_mode, torch.tpu.host_fallback
    tier = request.node.get_closest_marker("tier")
    if tier:
        glue._force_tier(TIERS.index(tier.args[0]))
    yield
    torch.tpu.eager_mode, torch.tpu.host_fallback = mode, fallback
    if tier:
        glue._force_tier(TIERS.index(os.environ.get("TORCH_TPU_FUSED_TIER", "auto")))


@pytest.fixture
def no_host():
    """Refuses to run any operator on the host."""
    if DEVICE == "tpu":
        torch.tpu.host_fallback = "error"


@pytest.fixture
def fresh_dynamo():
    """Nothing is compiled by torch.compile before or afterwards, and no cache has a graph."""
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    with fresh_cache():
        yield
    torch._dynamo.reset()
