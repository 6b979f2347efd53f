"""Operators of rows that a mask picks: the CPU's numbers, and no program for each count."""

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, alone, counted, only_tpu, python, same
from torch.utils._pytree import tree_flatten

pytestmark = only_tpu

WIDTH = 8
WEIGHT = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
IMAGE = torch.randn(1, 3, 9, 9, generator=torch.Generator().manual_seed(2))


def weight(x):
    return WEIGHT.to(x.device)


def whole(x, count=5):
    """Whole numbers below `count`."""
    return (x * 100).long() % count


def images(x):
    return x.reshape(-1, 1, 2, 4)


def normalised(x, training=True):
    mean, variance = torch.zeros(WIDTH, device=x.device), torch.ones(WIDTH, device=x.device)
    scale = weight(x)[0]
    return F.batch_norm(x, mean, variance, scale, scale, training), mean, variance


def reduced(x, how):
    start = torch.zeros(5, WIDTH, device=x.device)
    by_row = start.index_reduce(0, whole(x[:, 0]), x, "amax" if how == "sum" else how)
    return by_row, start.scatter_reduce(0, whole(x), x, how, include_self=False)


def line(x, first, last, count):
    return torch.linspace(first, last, count, device=x.device)


CASES = {
    "sorted": lambda x: (x.sort(0), x.sort(1, descending=True), x[:, 0].double().sort()),
    "argsort": lambda x: whole(x[:, 0]).argsort(stable=True, descending=True),
    "with NaN": lambda x: x.masked_fill(x > 1, float("nan")).sort(stable=True, dim=0),
    "topk": lambda x: (x.topk(5, 0), x.topk(3, 1, largest=False), x.topk(7, 0, sorted=True)),
    "order statistics": lambda x: (x.kthvalue(4, 0), x.median(), x.median(0), x.nanmedian(0)),
    "median of NaN": lambda x: x.masked_fill(x > 1.5, float("nan")).median(0).values,
    "median of whole": lambda x: (whole(x).median(), whole(x).median(1), whole(x).mode(0)[0]),
    "quantile": lambda x: x.quantile(0.3, dim=0),
    "among": lambda x: (
        torch.isin(whole(x), torch.arange(3, device=x.device)),
        torch.isin(torch.arange(9, device=x.device), whole(x[:, 0])),
    ),
    "searched": lambda x: (
        torch.searchsorted(x[:, 0].sort()[0], line(x, -1, 1, 50)),
        torch.searchsorted(line(x, -1, 1, 50), x, right=True),
        torch.bucketize(x, line(x, -1, 1, 9)),
    ),
    "unique": lambda x: whole(x[:, 0]).unique(return_inverse=True),
    "rolled": lambda x: (x.roll(1, 0), x.roll((2, -1), (0, 1)), x.roll((-101, 3), (0, 0))),
    "repeated": lambda x: (x.repeat(1, 3), x.repeat(2, 1).exp(), x.repeat(3, 1, 1) * 2),
    "joined": lambda x: torch.cat([x, x * 2, x.new_ones(3, WIDTH), x + 1]),
    "identity": lambda x: (x @ x.T) * ~torch.eye(len(x), dtype=torch.bool, device=x.device),
    "joined columns": lambda x: torch.cat([x @ x.T, (x * 2) @ x.T], 1).logsumexp(1),
    "batch norm": lambda x: (normalised(x), normalised(x, training=False)),
    "batch norm of images": lambda x: F.batch_norm(images(x), None, None, training=True),
    "running extremes": lambda x: (x.cummax(0), x.cummin(1)),
    "all of them": lambda x: ((x > 1).any(dim=(0, 1)), (x > -9).all(dim=(0,))),
    "maxima by place": lambda x: reduced(x, "amax"),
    "means by place": lambda x: reduced(x, "mean"),
    "sums by place": lambda x: reduced(x, "sum"),
    "copied": lambda x: (
        x.new_zeros(300, WIDTH).index_copy(0, torch.arange(len(x), device=x.device), x),
        x.index_fill(1, torch.tensor([1, 3], device=x.device), 2.0),
    ),
    "taken": lambda x: torch.arange(30.0, device=x.device).take(whole(x, 30)),
    "vectors": lambda x: (x @ weight(x)[0], x[:, 0].dot(x[:, 1]), x[:, 0].vdot(x[:, 2])),
    "added vectors": lambda x: (
        torch.addmv(x[:, 0], x, weight(x)[0]),
        torch.addr(x.new_zeros(WIDTH), x[:, 0], weight(x)[0]),
        torch.addbmm(weight(x), x.unsqueeze(-1), x.unsqueeze(1)),
    ),
    "distances": lambda x: (torch.cdist(x, weight(x)), torch.cdist(x, x, p=1)),
    "cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 3:6]),
    "small matrices": lambda x: (
        x[:, :4].view(-1, 2, 2).det(),
        torch.linalg.solve(weight(x)[:4, :4] + x[:, :1, None].exp(), x[:, :4, None]),
        torch.linalg.cholesky(torch.eye(2, device=x.device) + x.square()[:, :1, None].sqrt()),
    ),
    "convolved": lambda x: F.conv2d(images(x), weight(x)[:2, :2].reshape(2, 1, 1, 2)),
    "convolved lines": lambda x: F.conv1d(x.unsqueeze(1), weight(x)[:2, None, :3]),
    "pooled": lambda x: (F.max_pool2d(images(x), 2), F.avg_pool2d(images(x), 2)),
    "pooled to a size": lambda x: (
        F.adaptive_avg_pool2d(images(x), 1),
        F.adaptive_max_pool2d(images(x), (1, 3)),
    ),
    "resampled": lambda x: (
        F.interpolate(images(x), scale_factor=2),
        F.interpolate(images(x), scale_factor=2, mode="bilinear"),
    ),
    "padded": lambda x: (F.pad(x[None], (1, 1), mode="reflect"), F.pad(x[:, None], (0, 2))),
    "patches": lambda x: (F.unfold(images(x), 2), F.pixel_shuffle(x.view(-1, 4, 1, 2), 2)),
    "sampled": lambda x: F.grid_sample(
        IMAGE.to(x.device), x[:, :2].tanh().view(1, 1, -1, 2), align_corners=False
    ),
    "frequencies": lambda x: torch.view_as_real(torch.fft.rfft(x, dim=1)),
    "instances": lambda x: F.instance_norm(x.T[None]),
}
QUICK = ("sorted", "order statistics", "searched", "rolled", "joined", "batch norm", "convolved")
# Whose gradients are compared as well.
LEARNT = (
    *("sorted", "repeated", "rolled", "batch norm", "batch norm of images", "vectors", "distances"),
    *("cross", "convolved", "pooled", "padded", "instances", "maxima by place"),
)


def run(name, count, device):
    generator = torch.Generator().manual_seed(count)
    table = torch.randn(200, WIDTH, generator=generator)
    mask = torch.zeros(200, dtype=torch.bool)
    mask[torch.randperm(200, generator=generator)[:count]] = True
    table = table.to(device).requires_grad_(name in LEARNT)
    results = list(tree_flatten(CASES[name](table[mask.to(device)]))[0])
    if name in LEARNT:
        total = sum((one * one).sum() for one in results if one.requires_grad)
        results.extend(torch.autograd.grad(total, table))
    return [one.detach() for one in results]


def late(name):
    """How many new programs counts need whose bound was there, where numbers are the CPU's."""
    torch.tpu.eager_mode = "strict"
    for count in (70, 81, 75, 99, 120):
        run(name, count, DEVICE)
    later = (73, 88, 101, 127)
    [programs], got = counted(lambda: [run(name, one, DEVICE) for one in later], "programs")
    same(got, [run(name, one, "cpu") for one in later], rtol=1e-3, atol=1e-4)
    return programs


def late_of_each(names):
    return {name: late(name) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("names", ["quick", "others"])
def test_programs(names):
    some = [one for one in CASES if (one in QUICK) == (names == "quick")]
    assert alone(late_of_each, some, timeout=500) == dict.fromkeys(some, 0)


@pytest.mark.slow
def test_random_numbers_are_those_of_exact_sizes():
    drawn = []
    for growing in ("on", "off"):
        code = """
import torch
torch.manual_seed(3)
mask = torch.zeros(200, dtype=torch.bool)
for count in (70, 81, 75):
    mask[:count] = True
    x = torch.ones(200, 4, device="tpu")[mask.to("tpu")]
    y = [torch.rand_like(x), torch.randn_like(x), torch.bernoulli(x / 2), x.clone().uniform_(1, 2)]
    y += [torch.randint_like(x, 9), x.clone().exponential_(), torch.rand(3, device="tpu")]
    print([round(one.double().sum().item(), 6) for one in y])
"""
        status, out, errors = python(code, TORCH_TPU_GROWING=growing)
        assert status == 0, errors
        drawn.append(out)
    assert drawn[0] == drawn[1]


def test_sizes_that_are_a_count_by_chance():
    """What is picked fills a result from its begin on, whichever of its sizes vary."""
    for count in (5, 9, 7):
        mask, grad = torch.rand(count, count) > 0.5, torch.randn(count, count)
        ids = torch.arange(count, device=DEVICE)  # a length that lives
        got = torch.ops.aten.masked_scatter_backward(
            grad.to(DEVICE), mask.to(DEVICE), [count, count]
        )
        want = torch.ops.aten.masked_scatter_backward(grad, mask, [count, count])
        assert torch.equal(got.cpu(), want) and len(ids) == count
