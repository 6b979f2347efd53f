"""Fixtures of all tests: a known seed, the mode as it was, and no silent work on the host."""

import os
import tempfile
import zlib
from collections import defaultdict

# Before torch is imported, as the backend then reads the environment: no test may write into the
# user's own cache of programs.
_cache = tempfile.TemporaryDirectory(prefix="torchtpu-tests-", ignore_cleanup_errors=True)
os.environ["TORCH_TPU_CACHE_DIR"] = _cache.name
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(_cache.name, "graphs")

import pytest  # noqa: E402
import torch  # noqa: E402
from support import DEVICE, MODES, TIERS, living  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--tier", choices=TIERS, help="what chunks are launched as in Fused mode")
    parser.addoption("--living", action="store_true", help="texts of 2 to 10 words live meanwhile")


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


def in_one_mode(items):
    """Of the quick items that differ in their mode alone, one each: a hash of the name chooses."""
    alike = defaultdict(list)
    for item in items:
        params = item.callspec.params
        others = [id(value) for name, value in params.items() if name != "mode"]
        if params.get("mode") in MODES and not item.get_closest_marker("slow"):
            alike[item.originalname, *others].append(item)
        else:
            yield item
    for group in alike.values():
        group.sort(key=lambda item: item.callspec.params["mode"])
        named = group[0].name.replace(group[0].callspec.params["mode"], "")
        yield group[zlib.crc32(named.encode()) % len(group)]


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(items):
    """Makes crossed tests slow: in all modes but one, and off the diagonal where it is asked."""
    crossed = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            crossed[item.path, item.originalname].append(item)
    for combinations in crossed.values():
        asked = combinations[0].get_closest_marker("diagonal")
        quick = {*(diagonal if asked else in_one_mode)(combinations)}
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


@pytest.fixture(autouse=True)
def living_texts(request, known_state):
    """With --living most sizes of a test vary: its operands have room, and so padding."""
    if not request.config.getoption("--living"):
        yield
        return
    with torch.tpu.set_eager_mode("strict"):
        texts = living(9, *range(2, 9), 10, 12)
    yield
    del texts


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
