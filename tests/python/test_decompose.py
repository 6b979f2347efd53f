"""Operators without a row: PyTorch's decomposition runs once for each kind of arguments."""

import gc
import signal

import pytest
import torch
from support import DEVICE, only_tpu, same

from torch_tpu import _decompose

pytestmark = only_tpu


COUNTS: dict[str, int] = {}


@pytest.fixture(scope="module", autouse=True)
def counted():
    """What is looked up is kept for ever; so it is counted from its first use on."""
    lookup = _decompose.lookup

    def counting(name):
        found = lookup(name)

        def run(*args, **kwargs):
            COUNTS[name] = COUNTS.get(name, 0) + 1
            return found(*args, **kwargs)

        return found and run

    _decompose.lookup = counting
    yield
    _decompose.lookup = lookup


@pytest.fixture
def runs():
    """The decompositions that Python was asked to run in this test, by operator."""
    COUNTS.clear()
    return COUNTS


def values(*shape):
    return torch.linspace(-3, 3, torch.Size(shape).numel()).reshape(shape)


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_a_decomposition_runs_once_for_each_key(runs, mode):
    with torch.tpu.set_eager_mode(mode):
        for size in (4, 4, 5, 4, 5):
            for scale in (1.0, 2.0, 2.0):
                x = values(size, size) * scale
                got = torch.narrow_copy(x.to("tpu"), 1, 1, 2)
                torch.testing.assert_close(got.cpu(), torch.narrow_copy(x, 1, 1, 2))
    assert sum(runs.values()) <= 2


def test_a_write_in_place_is_repeated(runs):
    x = torch.arange(6, device="tpu")
    for _ in range(4):
        alias = x.view(2, 3)
        alias <<= 1
        assert alias.data_ptr() == x.data_ptr()
    assert x.tolist() == [16 * i for i in range(6)]
    assert sum(runs.values()) <= 1


def test_numbers_belong_to_the_key(runs):
    bias, a, b = values(3), values(2, 4), values(4, 3)
    for alpha in (1.0, 2.5, 2.5, -1.0):
        got = torch._addmm_activation(bias.to("tpu"), a.to("tpu"), b.to("tpu"), alpha=alpha)
        want = torch._addmm_activation(bias, a, b, alpha=alpha)
        torch.testing.assert_close(got.cpu(), want)
    assert sum(runs.values()) <= 3


def test_several_results_and_written_arguments(runs):
    x, mean, var = values(4, 3), torch.zeros(3), torch.ones(3)
    weight, bias = values(3), values(3) + 1
    args = [t.to("tpu") for t in (x, weight, bias, mean, var)]
    for _ in range(3):
        got = torch.ops.aten._batch_norm_with_update(*args, 0.1, 1e-5)
        want = torch.ops.aten._batch_norm_with_update(x, weight, bias, mean, var, 0.1, 1e-5)
        torch.testing.assert_close(got[0].cpu(), want[0])
        torch.testing.assert_close(args[3].cpu(), mean)
        torch.testing.assert_close(args[4].cpu(), var)
    assert sum(runs.values()) <= 1


def test_a_target_is_resized_every_time():
    x = values(5).add(5).to("tpu")
    for _ in range(3):
        out = torch.zeros(5, 2, device="tpu")
        with pytest.warns(UserWarning, match="was resized"):
            torch.mvlgamma(x, 2, out=out)
        torch.testing.assert_close(out, torch.mvlgamma(x, 2))


def test_an_error_leaves_no_notes_behind(runs):
    with pytest.raises(RuntimeError):
        torch._addmm_activation(*(values(2, 2).to("tpu"),) * 2, values(3, 3).to("tpu"))
    x = values(3, 9)
    for _ in range(3):
        got = torch.narrow_copy(x.to("tpu"), 0, 0, 2)
        torch.testing.assert_close(got.cpu(), torch.narrow_copy(x, 0, 0, 2))
    assert runs.get("aten::narrow_copy", 0) <= 1


def test_results_do_not_share_storages_between_runs():
    x = values(6).to("tpu")
    first, second = torch.narrow_copy(x, 0, 0, 6), torch.narrow_copy(x, 0, 0, 6)
    first.add_(100)
    assert second.tolist() == x.tolist()


class Counts:
    """Adds one to a tensor when it is collected, as code may that Python runs at any time."""

    def __init__(self, counter):
        self.counter, self.self = counter, self

    def __del__(self):
        self.counter.add_(1)


@pytest.mark.slow
def test_a_finalizer_is_no_part_of_a_decomposition():
    counter = torch.zeros((), device="tpu")
    thresholds = gc.get_threshold()
    gc.collect()
    gc.set_threshold(50, 1, 1)
    try:
        for n in range(31, 41):
            Counts(counter)
            torch.cov(torch.randn(3, n, device="tpu"))
            torch.special.multigammaln(torch.rand(n, device="tpu") + 5, 3)
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert counter.item() == 10
    for n in range(31, 41):
        torch.cov(torch.randn(3, n, device="tpu"))
        torch.special.multigammaln(torch.rand(n, device="tpu") + 5, 3)
    assert counter.item() == 10


@pytest.mark.slow
def test_a_signal_is_no_part_of_a_decomposition():
    counter, pressed = torch.zeros((), device="tpu"), []

    def press(*_):
        pressed.append(1)
        counter.add_(1)

    before = signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    try:
        for n in range(41, 61):
            torch.cov(torch.randn(3, n, device="tpu"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert pressed and counter.item() == len(pressed)
    for n in range(41, 61):
        torch.cov(torch.randn(3, n, device="tpu"))
    assert counter.item() == len(pressed)


CAST = {
    "any": (lambda x, out: torch.any(x, 1, out=out), torch.uint8, torch.bool),
    "all": (lambda x, out: torch.all(x, out=out), torch.uint8, torch.bool),
    "nansum": (lambda x, out: torch.nansum(x, 0, out=out), torch.int64, torch.bool),
    "logsumexp": (lambda x, out: torch.logsumexp(x, 0, out=out), torch.complex64, torch.float32),
}


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize(("work", "dtype", "target"), CAST.values(), ids=CAST)
def test_targets_hold_what_the_cpu_lets_them_hold(work, dtype, target):
    x = torch.arange(6).reshape(2, 3).to(dtype)
    expected = work(x, torch.empty(0, dtype=target))
    same(work(x.to(DEVICE), torch.empty(0, dtype=target, device=DEVICE)), expected)


COPIED = {
    "copy": lambda x, y: torch.ops.aten.copy(x, y),
    "select": lambda x, y: torch.select_scatter(x, y, 0, 1),
    "slice": lambda x, y: torch.slice_scatter(x, y.expand(1, 3), 0, 1, 2),
    "diagonal": lambda x, y: torch.diagonal_scatter(x, y[:2]),
    "functionalized": lambda x, y: torch.func.functionalize(_write_first)(x, y),
}


def _write_first(x, y):
    x = x.clone()
    x[0] = y
    return x


@pytest.mark.parametrize("work", COPIED.values(), ids=COPIED)
def test_what_is_copied_may_come_from_the_host(work):
    x, y = torch.zeros(2, 3), torch.arange(3.0)
    same(work(x.to(DEVICE), y), work(x, y))


def test_what_is_scattered_may_not():
    x, places = torch.zeros(2, 3, device=DEVICE), torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(RuntimeError, match=r"in aten::scatter\.src"):
        torch.scatter(x, 0, places.to(DEVICE), torch.ones(1, 3))
