"""Distances, histograms, segments, hashes: decompositions of our own, against the CPU."""

import math

import pytest
import torch
from support import DEVICE, check, check_gradients, living, modes, only_tpu, raises_alike, same
from torch import nn

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]


@pytest.fixture(params=[mode for mode in modes() if mode != "debug"])
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


@pytest.mark.diagonal
@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, torch.inf])
def test_distances_of_all_pairs(mode, p):
    for shape in ((5, 3), (1, 3), (0, 3), (4, 0)):
        check(torch.pdist, torch.randn(shape), p)
    check_gradients(lambda x: torch.pdist(x, p), torch.randn(5, 3).requires_grad_())


def test_differences_that_are_counted():
    """What is no number differs by no number."""
    x = torch.tensor([[0.0, math.nan, 2.0], [0.0, 0.25, math.inf], [-0.0, 0.25, 3.0]])
    check(torch.pdist, x, 0.0)
    check(lambda x: torch.cdist(x, x[:2], p=0.0), x)


@pytest.mark.diagonal
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_of_several_dims(mode, weighted, density):
    x, weight = torch.randn(40, 2), torch.rand(40) if weighted else None
    more = {"weight": weight, "density": density}
    check(torch.histogramdd, x, [3, 4], **more)
    check(torch.histogramdd, x, [3, 4], range=[-1.0, 1.0, -0.5, 0.5], **more)
    edges = [torch.tensor([-1.0, 0.0, 0.3, 2.0]), torch.tensor([-1.0, 1.0])]
    check(torch.histogramdd, x, edges, **more)


def test_histograms_of_points_on_the_edges():
    x = torch.tensor([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [1.0, 1.0]])
    check(torch.histogramdd, x, [4, 2])
    check(torch.histogramdd, torch.ones(3, 2), [2, 3])
    check(torch.histogramdd, x[:0], [2, 3])


LENGTHS = [(torch.tensor([2, 0, 4, 1]), 0), (torch.tensor([[2, 0, 3], [1, 3, 1]]), 1)]


@pytest.mark.diagonal
@pytest.mark.parametrize("how", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize(("lengths", "axis"), LENGTHS)
def test_segments(mode, how, initial, lengths, axis):
    data = torch.randn(7, 2) if axis == 0 else torch.randn(2, 5, 2)
    offsets = torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))

    def reduce(x, **where):
        return torch.segment_reduce(x, how, axis=axis, initial=initial, **where)

    check(lambda x, n: reduce(x, lengths=n), data, lengths)
    check(lambda x, n: reduce(x, offsets=n), data, offsets)

    def finite(x, n):
        y = reduce(x, lengths=n)
        return torch.where(y.isfinite(), y, 0)

    check_gradients(finite, data.requires_grad_(), lengths)


@pytest.mark.parametrize("how", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize(
    "row",
    [
        [1.0, math.nan, 3.0, 0.0, 0.0, 2.0],
        [0.0, math.nan, 3.0, 4.0, 0.0, 2.0],
        [0.0, 2.0, 3.0, math.nan, math.nan, 2.0],
    ],
)
def test_segments_with_nan_of_a_dim_from_the_end(how, row):
    found = []
    for device in ("cpu", DEVICE):
        data = torch.tensor([row, row[::-1]], device=device, requires_grad=True)
        lengths = torch.tensor([[2, 4], [3, 3]], device=device)
        y = torch.segment_reduce(data, how, lengths=lengths, axis=-1)
        y.backward(torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device))
        found.append((y.detach().cpu(), data.grad.cpu()))
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


def test_segments_by_the_other_names_and_of_other_dtypes():
    data, lengths = torch.randn(7, 2).requires_grad_(), torch.tensor([2, 0, 4, 1])
    for how in ("amax", "amin"):
        check_gradients(
            lambda x, n, how=how: torch.segment_reduce(x, how, lengths=n, initial=0.0),
            data,
            lengths,
        )
    for dtype in (torch.int64, torch.complex64):
        raises_alike(
            lambda x, n: torch.segment_reduce(x, "sum", lengths=n),
            data.detach().to(dtype),
            lengths,
        )


def test_means_of_scattered_complex_numbers():
    index, source = torch.tensor([0, 2, 0]), torch.randn(3, dtype=torch.complex64)
    for own in (True, False):
        check(
            lambda x, i, s, own=own: x.scatter_reduce(0, i, s, "mean", include_self=own),
            torch.ones(4, dtype=torch.complex64),
            index,
            source,
        )


def test_segments_of_products_with_zeros_and_of_wrong_lengths():
    data = torch.tensor([0.0, 2.0, 3.0, 0.0, 0.0, 1.0]).requires_grad_()
    check_gradients(
        lambda x, n: torch.segment_reduce(x, "prod", lengths=n), data, torch.tensor([3, 2, 1])
    )
    raises_alike(
        lambda x, n: torch.segment_reduce(x, "sum", lengths=n), data.detach(), torch.tensor([3, 2])
    )


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int16, torch.uint8]
)
def test_hashes(mode, dtype):
    x = torch.randint(-5, 6, (3, 4)).to(dtype)
    check(torch.hash_tensor, x)
    check(torch.hash_tensor, x, 1, keepdim=True)
    raises_alike(torch.hash_tensor, x[:0], 0)
    raises_alike(torch.hash_tensor, x[:0])


def test_zeros_without_elements():
    zeros = torch.ops.aten._efficientzerotensor([3], dtype=torch.float32, device=DEVICE)
    assert zeros._is_zerotensor() and (zeros * 2)._is_zerotensor()
    assert (zeros + 1).tolist() == [1, 1, 1] and zeros.clone().tolist() == [0, 0, 0]


EXTREMES = {
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(0),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(),
    "aminmax": lambda x: x.aminmax(dim=0),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(),
    "norm": lambda x: torch.linalg.vector_norm(x, math.inf, 1),
    "renorm": lambda x: torch.renorm(x, math.inf, 0, 1.0),
    "pdist": lambda x: torch.pdist(x[:100], math.inf),
    "safe_softmax": lambda x: torch._safe_softmax(x, 1),
    "foreach": lambda x: torch._foreach_max([x]),
}


@pytest.fixture
def nan_is_kept():
    """Skips where programs for accelerators go to XLA's CPU compiler, which drops NaN in them."""
    if DEVICE == "tpu":
        import torch_tpu._C as glue

        torch.tpu.init()
        if glue.platform() == "accel":
            pytest.skip("its compiler is XLA's for CPUs, for which no program was written")


@pytest.mark.usefixtures("nan_is_kept")
@pytest.mark.parametrize("name", EXTREMES)
def test_nan_wins_in_reductions_of_every_size(name):
    """XLA's CPU compiler leaves those of some size to a library that drops it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 16, generator=generator)
    x.view(-1)[::37] = math.nan
    check(EXTREMES[name], x)


BOUNDED = {
    "clamp": lambda x: x.clamp(-1, 1).sum(1),
    "clamp_min": lambda x: x.clamp(min=0).sum(0),
    "clamp by tensors": lambda x: x.clamp(x.flip(0) - 1, x.flip(0) + 1).mean(0),
    "minimum": lambda x: torch.minimum(x, x.flip(0)).sum(1),
    "maximum": lambda x: torch.maximum(x.flip(1), x).sum(1),
    "hardtanh": lambda x: nn.functional.hardtanh(x).mean(1),
    "loss": lambda x: nn.functional.margin_ranking_loss(x, x.flip(0), x.flip(1).sign()),
    "distances": lambda x: torch.cdist(x, x.flip(1), 0.0),
}


@only_tpu
@pytest.mark.usefixtures("nan_is_kept")
@pytest.mark.tier("chunks")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", BOUNDED)
def test_nan_within_bounds_stays_in_a_sum(name, compiled):
    """The same library takes along into a sum what each of its elements is."""
    x = torch.randn(64, 64)
    x[5, 3], x[9] = math.nan, math.nan
    work = torch.compile(BOUNDED[name]) if compiled else BOUNDED[name]
    with torch.tpu.set_eager_mode("fused"):
        same(work(x.to(DEVICE)), BOUNDED[name](x))


@pytest.mark.parametrize("bag", [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1], [4, 1, 4]])
def test_nan_in_bags_of_maxima(bag):
    table = torch.tensor(
        [[1.0, 2.0], [math.nan, 1.0], [2.0, math.nan], [0.0, 0.0], [-math.inf] * 2]
    )
    both = [torch.tensor(bag), torch.tensor([0])]
    check(lambda t, i, o: torch.embedding_bag(t, i, o, False, 2)[0::3], table, *both)


def test_bags_without_elements():
    table, none = torch.ones(5, 3), torch.tensor([], dtype=torch.int64)
    for mode in range(3):
        out = torch.embedding_bag(
            *(x.to(DEVICE) for x in (table, torch.tensor([1]), none)), mode=mode
        )
        assert out[0].shape == (0, 3)
    args = torch.tensor([3, 1]), table, torch.tensor([0, 1])

    def weighted(index, table, offsets):
        weights = torch.ones(2, dtype=torch.float64, device=table.device)
        bag = torch.nn.functional.embedding_bag
        return bag(index, table, offsets, mode="sum", per_sample_weights=weights)

    assert "same type" in str(raises_alike(weighted, *args))


@pytest.mark.parametrize("name", ["sum", "prod", "nansum"])
def test_sums_and_products_of_booleans_are_booleans(name):
    reduce = getattr(torch, name)
    x = torch.tensor([[2, 0, 3], [1, 1, 4], [0, 0, 0]])
    fractions = x / torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])  # one NaN
    for y in (x, x.bool(), x[:0], x[:, :0], fractions):
        check(lambda y: reduce(y, dtype=torch.bool), y)
        check(lambda y: reduce(y, 1, dtype=torch.bool), y)
        check(lambda y: reduce(y, 0, keepdim=True, dtype=torch.bool), y)


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_list_of_no_dims(keepdim, varies):
    """Most reductions then reduce all dims; any and all reduce none."""
    x = torch.arange(12.0).reshape(3, 4)
    texts = living(5, 6, 4, 3) if varies else []
    for reduce in (torch.sum, torch.nansum, torch.mean, torch.nanmean, torch.amax, torch.var):
        check(lambda x, reduce=reduce: reduce(x, dim=(), keepdim=keepdim), x)
    for reduce in (torch.any, torch.all, torch.linalg.vector_norm):
        check(lambda x, reduce=reduce: reduce(x, dim=(), keepdim=keepdim), x)
    check(lambda x, out: torch.nansum(x, dim=(), keepdim=keepdim, out=out), x, torch.empty(0))
    assert len(texts) == 4 * varies


def test_logsumexp_over_a_list_of_no_dims():
    x = torch.arange(12.0).reshape(3, 4)
    check(lambda x: torch.logsumexp(x, (), keepdim=True), x)
    check(lambda x: torch.logsumexp(x, ()), x[0, 0])
    raises_alike(lambda x: torch.logsumexp(x, ()), x)


@pytest.mark.parametrize("reduce", [torch.any, torch.all])
def test_a_list_of_no_dims_of_a_part_that_grows(reduce):
    x = torch.arange(24.0).reshape(8, 3) - 12
    check(lambda x: [reduce(x[:i], dim=()) for i in range(2, 7)], x)


@pytest.mark.parametrize("order", [math.inf, -math.inf, -1, 2])
def test_norms_of_no_complex_numbers(order):
    x = torch.zeros(0, 3, dtype=torch.complex64)
    check(lambda x: torch.linalg.vector_norm(x, order, dim=-1), x)


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_no_dims_into_a_target_of_other_sizes():
    check(lambda x, out: torch.nansum(x, dim=(), out=out), torch.ones(2, 3), torch.empty(4))
