"""Sizes that vary: programs for all up to a bound, whose padding nothing depends on."""

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import slow_but

import torch_tpu  # noqa: F401 # the device
from torch_tpu.compiler import bucketed, buckets, functions

Make = Callable[[int], tuple[torch.Tensor, ...]]


def poison(dtype: torch.dtype) -> float:
    if dtype.is_floating_point:
        return math.nan
    return 1 if dtype == torch.bool else 77


def each(results: Any) -> list[torch.Tensor]:
    return list(results) if isinstance(results, tuple | list) else [results]


def compare(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape and ours.stride() == theirs.stride()
    torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=2e-5, atol=2e-5)


def check(f: Callable[..., Any], make: Make, sizes: tuple[int, ...] = (12, 5, 20)) -> None:
    """Compares what a compiled function returns at several sizes with the CPU."""
    torch.manual_seed(0)
    compiled = torch.compile(f, fullgraph=True)
    known = set(functions.compiled())
    for n in sizes:
        args = make(n)
        sent = [one.detach().to("tpu").requires_grad_(one.requires_grad) for one in args]
        if n == sizes[0]:
            for one in sent:
                for i, size in enumerate(one.shape):
                    if size == n:
                        torch._dynamo.mark_dynamic(one, i)
        ours, theirs = each(compiled(*sent)), each(f(*args))
        for one, other in zip(ours, theirs, strict=True):
            compare(one, other)
        if any(one.requires_grad for one in args):
            sum((one * one).sum() for one in ours).backward()
            sum((one * one).sum() for one in theirs).backward()
            for one, other in zip(sent, args, strict=True):
                if other.grad is not None:
                    assert one.grad is not None
                    compare(one.grad, other.grad)
    for graph in set(functions.compiled()) - known:
        assert graph.exact == "" and graph.why == ""
        assert graph.programs == len({buckets.bound_of(n) for n in sizes})


def randn(*shape: Any) -> Make:
    """Random numbers, of sizes of which None is the one that varies."""
    return lambda n: (torch.randn([n if one is None else one for one in shape]),)


def two(first: Make, second: Make) -> Make:
    return lambda n: (*first(n), *second(n))


def ids(high: int, *shape: Any) -> Make:
    return lambda n: (torch.randint(0, high, [n if one is None else one for one in shape]),)


def learning(make: Make) -> Make:
    """The same, whose fractions want gradients."""
    return lambda n: tuple(one.requires_grad_(one.is_floating_point()) for one in make(n))


x = randn(3, None, 4)
w = randn(4, 6)
CASES: dict[str, tuple[Callable[..., Any], Make]] = {
    "add": (lambda a: a + 1, x),
    "scaled by its size": (lambda a: a * a.shape[1], x),
    "sum": (lambda a: a.sum(1), x),
    "sum of all": (lambda a: a.exp().sum(), x),
    "mean": (lambda a: a.mean(1), x),
    "mean of all": (lambda a: a.mean(), x),
    "var": (lambda a: a.var(1), x),
    "std": (lambda a: a.std((0, 1), keepdim=True), x),
    "amax": (lambda a: a.amax(1), x),
    "min": (lambda a: a.min(1), x),
    "argmax": (lambda a: a.argmax(1), x),
    "any": (lambda a: (a > 2).any(1), x),
    "all": (lambda a: (a > -2).all(1), x),
    "prod": (lambda a: a.prod(1), x),
    "logsumexp": (lambda a: a.logsumexp(1), x),
    "softmax": (lambda a: a.softmax(1), x),
    "log_softmax": (lambda a: a.log_softmax(1), x),
    "softmax over others": (lambda a: a.softmax(-1), x),
    "cumsum": (lambda a: a.cumsum(1), x),
    "matmul": (lambda a, b: a @ b, two(x, w)),
    "product over it": (lambda a: a.transpose(1, 2) @ a, x),
    "square of it": (lambda a: a @ a.transpose(1, 2), x),
    "of rows": (lambda a, b: a.reshape(-1, 4) @ b, two(x, w)),
    "rows over rows": (lambda a: a.reshape(-1, 4).t() @ a.reshape(-1, 4), x),
    "sum of rows": (lambda a: a.reshape(-1, 4).sum(0), x),
    "mean of rows": (lambda a: a.reshape(-1, 4).mean(0), x),
    "time first": (lambda a: a.transpose(0, 1).reshape(-1, 4).sum(0), x),
    "heads": (lambda a: a.view(3, a.shape[1], 2, 2).transpose(1, 2).sum(2), x),
    "last": (lambda a: a[:, -1], x),
    "first": (lambda a: a[:, 0], x),
    "but the last": (lambda a: a[:, :-1].sum(1), x),
    "but the first": (lambda a: a[:, 1:].amax(1), x),
    "the last three": (lambda a: a[:, -3:], x),
    "every second": (lambda a: a[:, ::2].sum(1), x),
    "every second from the second": (lambda a: a[:, 1::2].sum(1), x),
    "shifted": (lambda a: a[:, 1:] - a[:, :-1], x),
    "flip": (lambda a: a.flip(1), x),
    "cat behind": (lambda a: torch.cat([a, torch.ones_like(a[:, :2])], 1).sum(1), x),
    "cat before": (lambda a: torch.cat([torch.ones_like(a[:, :2]), a], 1), x),
    "cat with itself": (lambda a: torch.cat([a, a * 2, a], 1), x),
    "stack": (lambda a: torch.stack([a, a + 1], 1).sum(2), x),
    "repeat": (lambda a: a.repeat(1, 2, 1).sum(1), x),
    "pad": (lambda a: F.pad(a, (0, 0, 2, 3), value=1.5).prod(1), x),
    "pad to a fixed size": (lambda a: F.pad(a, (0, 0, 0, 40 - a.shape[1])), x),
    "tril": (lambda a: (a @ a.transpose(1, 2)).tril().sum(2), x),
    "positions": (lambda a: a + torch.arange(a.shape[1], device=a.device)[:, None], x),
    "positions from the end": (
        lambda a: a * torch.arange(a.shape[1], 2 * a.shape[1], device=a.device)[:, None],
        x,
    ),
    "causal": (
        lambda a: (
            (a @ a.transpose(1, 2))
            .masked_fill(
                torch.ones(a.shape[1], a.shape[1], dtype=torch.bool, device=a.device).triu(1),
                -math.inf,
            )
            .softmax(-1)
        ),
        x,
    ),
    "attention": (lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]), x),
    "causal attention": (
        lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None], is_causal=True),
        x,
    ),
    "attention with a mask": (
        lambda a: F.scaled_dot_product_attention(
            a[None], a[None], a[None], attn_mask=(a @ a.transpose(1, 2) > 0)[None] | True
        ),
        x,
    ),
    "layer_norm": (lambda a: F.layer_norm(a, (4,)).sum(1), x),
    "rms_norm": (lambda a: F.rms_norm(a, (4,)).sum(1), x),
    "conv1d": (lambda a, b: F.conv1d(a.transpose(1, 2), b, padding=1), two(x, randn(5, 4, 3))),
    "strided conv1d": (
        lambda a, b: F.conv1d(a.transpose(1, 2), b, padding=1, stride=2),
        two(x, randn(5, 4, 3)),
    ),
    "embedding": (lambda i, b: F.embedding(i, b).sum(1), two(ids(9, 3, None), randn(9, 4))),
    "embedding of it": (lambda a, i: F.embedding(i, a[0]), two(x, ids(5, 3, 7))),
    "gather": (lambda a, i: a.gather(1, i), two(x, ids(5, 3, 2, 4))),
    "gather of classes": (
        lambda a, i: (a + i[..., None]).gather(2, i[..., None]),
        two(x, ids(4, 3, None)),
    ),
    "index": (lambda a, i: a[:, i], two(x, ids(5, 6))),
    "index by it": (lambda a, i: a[i].sum(0), two(randn(9, 4), ids(9, None))),
    "cross_entropy": (
        lambda a, i: F.cross_entropy(a.reshape(-1, 4), i.reshape(-1)),
        two(x, ids(4, 3, None)),
    ),
    "mse_loss": (lambda a, b: F.mse_loss(a, b), two(x, x)),
    "one_hot sum": (
        lambda i: (i[..., None] == torch.arange(4, device=i.device)).sum(1),
        ids(4, 3, None),
    ),
    "where it is": (lambda a: torch.where(a > 0, a, -1.0).sum(1), x),
    "topk of others": (lambda a: a.topk(2, -1)[0].sum(1), x),
    "split": (lambda a: torch.cat(a.split(2, -1)[::-1], -1).sum(1), x),
    "transposed result": (lambda a: a.transpose(1, 2) * 2, x),
    "two results": (lambda a: (a * 2, a.sum(1), a.shape[1] * torch.ones(2, device=a.device)), x),
    "argument": (lambda a: (a, a + 1), x),
    "views of an argument": (
        lambda a: (a[:, -3:-1], a.transpose(0, 1), *a.split(2, -1), a[:, 0], a + 1),
        x,
    ),
}
LOSSY = {
    "views of an argument",
    "argmax",
    "any",
    "all",
    "min",
    "one_hot sum",
    "index by it",
    "two results",
    "argument",
    "prod",
}


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucketed, "filler", poison)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", slow_but(CASES, "mean", "causal", "views of an argument"))
def test_values(name: str) -> None:
    """A program for several sizes computes what the CPU does for each."""
    check(*CASES[name])


@pytest.mark.parametrize(
    "name", slow_but([one for one in CASES if one not in LOSSY], "heads", "causal attention")
)
def test_gradients(name: str) -> None:
    """So do its gradients."""
    f, make = CASES[name]
    check(f, learning(make))


def lengths(*sizes: int) -> list[torch.Tensor]:
    return [torch.randn(2, n, 4).to("tpu") for n in sizes]


def one_graph(work: Callable[[], Any]) -> functions.Compiled:
    """The last graph that some work makes."""
    known = set(functions.compiled())
    work()
    return max(set(functions.compiled()) - known, key=lambda one: one.number)


def test_default_bounds() -> None:
    """Powers of two from 8 on, and above 512 what lies half-way between them."""
    assert [buckets.bound_of(n) for n in (2, 8, 9, 200, 512)] == [8, 8, 16, 256, 512]
    assert [buckets.bound_of(n) for n in (513, 768, 769, 1500)] == [768, 768, 1024, 1536]
    assert buckets.bound_of(300, most=400) == 400


def test_chosen_bounds() -> None:
    """`buckets` chooses them, for a block or for good."""
    choose = torch.tpu.compiler.buckets
    with choose(100, 10):
        assert [buckets.bound_of(n) for n in (5, 11, 100, 101)] == [10, 100, 100, None]
        with choose(None):
            assert buckets.bound_of(5) is None
        assert buckets.bound_of(5) == 10
    assert buckets.bound_of(5) == 8
    with pytest.raises(ValueError, match="whole numbers from 2 on"):
        choose(0)


def test_a_size_above_all_bounds_is_a_program() -> None:
    """So is each size where there are no bounds."""
    f = torch.compile(lambda a: a.softmax(1), dynamic=True)
    small, large, larger = lengths(20, 30, 31)
    with torch.tpu.compiler.buckets(24):
        graph = one_graph(lambda: f(small))
        f(large)
        f(larger)
    assert graph.programs == 3
    with torch.tpu.compiler.buckets(None):
        f(small)
    assert graph.programs == 4


def test_what_never_changes_has_no_padding() -> None:
    """With dynamic=True all sizes may vary; the first one that is seen is a bound."""
    f = torch.compile(lambda a: a.exp(), dynamic=True)
    graph = one_graph(lambda: [f(one) for one in lengths(20, 21, 22)])
    first, second = (str(one.function.tell()) for one in graph._programs.values())
    assert "tensor<2x20x4xf32>" in first and "tensor<2x32x4xf32>" in second


def test_a_largest_size() -> None:
    """mark_dynamic(max=...) bounds the bounds."""
    f = torch.compile(lambda a: a * 2)
    (a,) = lengths(20)
    torch._dynamo.mark_dynamic(a, 1, min=2, max=25)
    graph = one_graph(lambda: f(a))
    (program,) = graph._programs.values()
    assert "tensor<2x25x4xf32>" in str(program.function.tell())


def test_a_cache_that_grows() -> None:
    """What becomes longer by one has room for more, and goes from call to call without copies."""
    f = torch.compile(lambda cache, a: torch.cat([cache, a], 1))
    caches, theirs = torch.randn(2, 5, 4).to("tpu"), None
    theirs = caches.cpu()
    known = set(functions.compiled())
    for _ in range(40):
        a = torch.randn(2, 1, 4)
        caches, theirs = f(caches, a.to("tpu")), torch.cat([theirs, a], 1)
    compare(caches, theirs)
    assert sum(one.programs for one in set(functions.compiled()) - known) <= 8


def test_debug_has_no_padding() -> None:
    """Its checks are of what counts."""
    f = torch.compile(lambda a: a.sum(1), dynamic=True)
    with torch.tpu.set_eager_mode("debug"):
        graph = one_graph(lambda: [f(one) for one in lengths(20, 21, 22)])
    assert graph.programs == 3


def test_backward_after_the_block() -> None:
    """A backward takes what its forward left, whatever the bounds are by then."""
    f = torch.compile(lambda a: (a.softmax(1) @ a.transpose(1, 2)).exp().sum(), dynamic=True)
    a = torch.randn(2, 20, 4)
    ours, theirs = a.to("tpu").requires_grad_(), a.requires_grad_()
    with torch.tpu.compiler.buckets(24):
        loss = f(ours)
    with torch.tpu.compiler.buckets(100):
        loss.backward()
    (theirs.softmax(1) @ theirs.transpose(1, 2)).exp().sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    compare(ours.grad, theirs.grad)


def test_why_not() -> None:
    """explain() says which operator has each size be a program."""
    f = torch.compile(lambda a: torch.rand_like(a) < a, dynamic=True)
    graph = one_graph(lambda: [f(one) for one in lengths(20, 21)])
    assert "aten.rand" in graph.exact and not graph.pads and graph.programs == 2
    assert "each size is a program: of graph" in torch.tpu.explain()


def test_a_decomposition_that_knows_a_size() -> None:
    """Each size is a program where one asks how many rows there are."""
    f = torch.compile(lambda a: torch.nn.functional.pdist(a), dynamic=True)
    for n in (20, 21, 30):
        a = torch.randn(n, 3)
        compare(f(a.to("tpu")), torch.nn.functional.pdist(a))


def test_a_step_that_varies() -> None:
    """A slice's step says no bound; nor does that of its gradient."""
    f = torch.compile(lambda a, k: (a[:, ::k] * 2, a[:, a.shape[1] // 2 :: k].sum()), dynamic=True)
    for a, k in zip(lengths(20, 17, 18), (2, 3, 5), strict=True):
        got, want = f(a, k), (a.cpu()[:, ::k] * 2, a.cpu()[:, a.shape[1] // 2 :: k].sum())
        compare(got[0], want[0])
        compare(got[1], want[1])


def test_a_bound_that_the_graph_refuses() -> None:
    """Where the graph itself has no room for a bound, each size is a program, as right as ever."""
    table = torch.arange(20.0).to("tpu")
    f = torch.compile(lambda a, t: a[0, :, 0] + t[: a.shape[1]], dynamic=True)
    for a in lengths(20, 17, 18):
        compare(f(a, table), a.cpu()[0, :, 0] + torch.arange(20.0)[: a.shape[1]])


def test_numbers_have_no_bound() -> None:
    """A number that varies is what it is, beside sizes that vary and alone."""
    f = torch.compile(lambda a, k: a.triu(k).sum(1) + a.select(1, abs(k)), dynamic=True)
    for a, k in zip(lengths(20, 17, 18, 18), (-1, 2, 3, -3), strict=True):
        compare(f(a, k), a.cpu().triu(k).sum(1) + a.cpu().select(1, abs(k)))
    g = torch.compile(lambda a: a.triu(a.shape[1] - 3).sum(1), dynamic=True)
    for a in lengths(20, 17, 18):
        compare(g(a), a.cpu().triu(a.shape[1] - 3).sum(1))


def test_views_of_results() -> None:
    """Results that share memory are views of one another, as they would be."""

    def work(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b = a + 1
        return b[:, 1:], b, b.transpose(0, 1), b.split(2, -1)[1]

    f = torch.compile(work, dynamic=True)
    for a in lengths(20, 17, 18):
        made, theirs = f(a), work(a.cpu())
        for one, other in zip(made, theirs, strict=True):
            compare(one, other)
        made[1].zero_()
        assert not made[0].any() and not made[3].any()


def test_sizes_that_shrink() -> None:
    """What becomes shorter where a size grows has no bound there."""
    f = torch.compile(lambda a: a.new_ones(40 - a.shape[1]) * a.sum(), dynamic=True)
    graph = one_graph(lambda: [f(one) for one in lengths(20, 21)])
    assert "may shrink" in graph.exact and graph.programs == 2


def test_sizes_that_are_equal_by_chance() -> None:
    """Operands of one size share programs as long as they have it; another one is refused."""
    f = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    made = []
    known = set(functions.compiled())
    for n in (5, 6, 7, 20):
        q, k, v = (torch.randn(1, 2, one, 8) for one in (3, n, n))
        made.append((f(q.to("tpu"), k.to("tpu"), v.to("tpu")), f"{n}"))
        compare(made[-1][0], F.scaled_dot_product_attention(q, k, v))
    assert sum(one.programs for one in set(functions.compiled()) - known) == 3


@pytest.mark.slow
def test_two_hundred_lengths() -> None:
    """They need eight programs at most."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True).eval()
    theirs = torch.nn.Sequential(torch.nn.Embedding(100, 32), layer, torch.nn.Linear(32, 100))
    ours = copy.deepcopy(theirs).to("tpu")
    f = torch.compile(ours)
    draw = random.Random(0)
    before = torch.tpu.metrics()["programs"]
    with torch.no_grad():
        for _ in range(200):
            a = torch.randint(0, 100, (2, draw.randint(2, 500)))
            compare(f(a.to("tpu")), theirs(a))
    assert torch.tpu.metrics()["programs"] - before <= 8
