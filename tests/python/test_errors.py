"""What the CPU refuses is refused, with the same type of exception."""

import contextlib
import warnings

import pytest
import torch
from support import DEVICE, living, modes, move, raises_alike, same
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

F = torch.nn.functional
INDEX = torch.tensor([[0, 1, 1], [1, 0, 0]])
REFUSED = {
    "gather-overlap": lambda x, i: torch.gather(x, 1, i, out=x.new_empty(1).expand(2, 3)),
    "gather-input": lambda x, i: torch.gather(x, 1, i, out=x),
    "take-index": lambda x, i: torch.take(i, i, out=i),
    "select-overlap": lambda x, i: torch.index_select(x, 0, i[0], out=x.new_empty(1).expand(3, 3)),
    "cat-input": lambda x, i: torch.cat([x, x], out=torch.cat([x, x])[:1].expand(4, 3)),
    "complex-dtypes": lambda x, i: torch.complex(x, x.double()),
    "complex-of-bfloat16": lambda x, i: torch.complex(x.bfloat16(), x.bfloat16()),
    "polar-of-bfloat16": lambda x, i: torch.polar(x.bfloat16(), x.bfloat16()),
    "step-dtypes": lambda x, i: torch.heaviside(x, x.bfloat16()),
    "wide-summand": lambda x, i: torch.addmm(x, x[:1], x[:1].t()),
    "wide-vector": lambda x, i: torch.addmv(x[0], x[:1], x[0]),
    "boundaries": lambda x, i: torch.bucketize(x, x),
    "byte-mask": lambda x, i: x.masked_scatter(i.byte(), x),
    "add-other-rank": lambda x, i: x.index_add(0, i[0, :2], x[0, :2]),
    "add-other-shape": lambda x, i: x.index_add(0, i[0, :2], x.reshape(3, 2)[:2]),
    "uniform-whole-numbers": lambda x, i: torch.rand(3, dtype=torch.int32, device=x.device),
    "float-to-integers": lambda x, i: i.mul_(x),
    "float-to-integers-of-a-list": lambda x, i: torch._foreach_mul_([i, i.clone()], 1.5),
    "float-function-of-integers": lambda x, i: i.logit_(),
    "integers-to-bools": lambda x, i: (i > 0).mul_(i),
    "sample-integers": lambda x, i: torch.multinomial(i, 2),
    "sample-nothing": lambda x, i: torch.multinomial(x.abs(), 0),
    "sample-too-many": lambda x, i: torch.multinomial(x.abs(), 4),
    "complex-ceil": lambda x, i: torch.ceil(torch.complex(x, x)),
    "complex-ceil-of-a-list": lambda x, i: torch._foreach_ceil([torch.complex(x, x)]),
    "integer-fractions": lambda x, i: torch.frac(i),
    "integer-lerp": lambda x, i: torch.lerp(i, i, i),
    "bool-difference": lambda x, i: x - True,
    "loss-weight-dtype": lambda x, i: torch.nn.functional.nll_loss(x, i[0, :2], x[0].half()),
    "norm-weight-dtype": lambda x, i: torch.nn.functional.layer_norm(x, (3,), x[0].half()),
    "bias-dtype": lambda x, i: torch.nn.functional.linear(x, x, x[:, 0].half()),
    "extremes-dtype": lambda x, i: torch.aminmax(
        x, dim=0, out=(x.new_empty(3).double(), x.new_empty(3).double())
    ),
    "interpolated-integers": lambda x, i: F.interpolate(i[None, None], scale_factor=2),
    "interpolated-bools": lambda x, i: F.interpolate(i[None, None] > 0, (4, 4), mode="bilinear"),
    "pooled-integers": lambda x, i: F.adaptive_avg_pool2d(i[None], 1),
    "maxima-of-integers": lambda x, i: F.adaptive_max_pool1d(i, 1),
    "unfolded-integers": lambda x, i: F.unfold(i[None, None], 2),
    "folded-integers": lambda x, i: F.fold(torch.stack([i[0]] * 4)[None, :, :2], (2, 3), 2),
    "huber-of-integers": lambda x, i: F.huber_loss(i, i),
    "smooth-l1-of-integers": lambda x, i: F.smooth_l1_loss(i, i),
    "nll-of-integers": lambda x, i: F.nll_loss(i, i[0, :2]),
    "draws-of-integers": lambda x, i: torch.bernoulli(i),
    "index-copy-self": lambda x, i: x.index_copy_(0, torch.arange(2, device=x.device), x),
    "index-add-self": lambda x, i: x.index_add_(0, torch.arange(2, device=x.device), x),
    "index-put-self": lambda x, i: x.index_put_((torch.arange(2, device=x.device),), x),
    "index-fill-self": lambda x, i: i[0].index_fill_(0, i[0], 1),
    "index-reduce-self": lambda x, i: x.index_reduce_(0, i[0, 1:], x, "prod"),
    "scatter-self": lambda x, i: x.scatter_(1, i, x),
    "scatter-index": lambda x, i: i.scatter_(1, i, 1),
    "scatter-add-self": lambda x, i: x.scatter_add_(1, i, x),
    "scatter-reduce-self": lambda x, i: x.scatter_reduce_(1, i, x, "sum"),
    "put-self": lambda x, i: x.put_(i, x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    raises_alike(REFUSED[name], torch.arange(6.0).reshape(2, 3), INDEX)


def test_overlap_that_is_allowed():
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    torch.add(x, x, out=x)
    torch.mm(x, x.t(), out=torch.empty(2, 2, device=DEVICE))
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_numbers_of_distributions():
    """Also where a fine call of the same kind came before."""
    for good, bad in (
        (lambda x: x.normal_(0.5, 2.5), lambda x: x.normal_(0.5, -2.5)),
        (lambda x: x.uniform_(0.5, 2.5), lambda x: x.uniform_(2.5, 0.5)),
        (lambda x: x.exponential_(1.5), lambda x: x.exponential_(-1.5)),
        (lambda x: x.cauchy_(0.5, 2.5), lambda x: x.cauchy_(0.5, -2.5)),
        (lambda x: x.log_normal_(0.5, 2.5), lambda x: x.log_normal_(0.5, -2.5)),
        (lambda x: x.geometric_(0.5), lambda x: x.geometric_(1.5)),
        (lambda x: x.bernoulli_(0.5), lambda x: x.bernoulli_(1.5)),
        (lambda x: torch.normal(x, 2.5), lambda x: torch.normal(x, -2.5)),
    ):
        good(torch.empty(3, device=DEVICE))
        state = torch.get_rng_state()
        raises_alike(bad, torch.empty(3))
        assert torch.equal(torch.get_rng_state(), state)


def test_targets_that_the_cpu_accepts():
    """They are of another dtype than the operands, which is no reason to ask about zeros."""
    chosen = torch.empty(2, dtype=torch.long, device=DEVICE)
    torch.multinomial(torch.tensor([0.0, 1, 2], device=DEVICE), 2, out=chosen)
    assert sorted(chosen.tolist()) == [1, 2]


# What only the device knows. Debug raises as the CPU does; else indices that are read clamp to the
# nearest there is, and writes beyond the end are left out.
X = torch.arange(12.0).reshape(3, 4)
LOSSES = torch.nn.functional
NOT_THERE = {
    "index_select": (lambda x, i: x.index_select(0, i), [0, 3], [0, 2]),
    "index": (lambda x, i: x[i], [0, 3], [0, 2]),
    "index-below": (lambda x, i: x[i], [0, -4], [0, 0]),
    "gather": (lambda x, i: x.gather(0, i[:, None]), [0, 3], [0, 2]),
    "take": (lambda x, i: x.take(i), [0, 12], [0, 11]),
    "embedding": (lambda x, i: LOSSES.embedding(i, x), [0, 3], [0, 2]),
    "embedding_bag": (lambda x, i: LOSSES.embedding_bag(i[None], x), [0, 3], [0, 2]),
    "nll_loss": (lambda x, i: LOSSES.nll_loss(x, i), [0, 1, 4], [0, 1, 3]),
    "cross_entropy": (lambda x, i: LOSSES.cross_entropy(x, i), [0, 1, 4], [0, 1, 3]),
    "index_put": (lambda x, i: x.index_put((i,), x[:2]), [1, 3], [1]),
    "index_add": (lambda x, i: x.index_add(0, i, x[: len(i)]), [1, 3], [1]),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[: len(i)]), [1, 3], [1]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 5), [1, 3], [1]),
    "scatter": (lambda x, i: x.scatter(0, i[:, None], 5.0), [1, 3], [1]),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[:, None], x), [1, 3], [1]),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(0, i[:, None], x, "sum"), [1, 3], [1]),
    "put": (lambda x, i: x.put(i, x[0, : len(i)]), [1, 12], [1]),
    "one_hot": (lambda x, i: LOSSES.one_hot(i, 3), [1, 3], None),
    "searchsorted": (lambda x, i: torch.searchsorted(x[0, :2], x, sorter=i), [1, 2], None),
    "multi_margin": (lambda x, i: LOSSES.multi_margin_loss(x, i), [0, 1, 4], None),
    "divisor": (lambda x, i: i // i, [1, 0], None),
    "histc": (lambda x, i: torch.histc(x[0] / i, 4), [0] * 4, None),
    "svd": (lambda x, i: torch.linalg.svd(x / i)[1], [0] * 4, None),
}


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", NOT_THERE)
def test_values_that_do_not_fit(name, varies):
    function, indices, instead = NOT_THERE[name]
    texts = living(5, 6, 4, 3) if varies else []
    for mode in modes():
        with torch.tpu.set_eager_mode(mode) if DEVICE == "tpu" else contextlib.nullcontext():
            if mode == "debug" or DEVICE == "cpu":
                raises_alike(function, X, torch.tensor(indices))
                continue
            got = function(move(X), move(torch.tensor(indices))).cpu()
            if name == "index_put":
                continue  # takes as many rows as indices
            if instead is not None:
                same(got, function(X, torch.tensor(instead)))
    assert len(texts) == 4 * varies


WITH_ERRORS = [op for op in op_db if op.error_inputs_func is not None]


def call(op, sample):
    return op(sample.input, *sample.args, **sample.kwargs)


def move_sample(sample):
    kwargs = {k: DEVICE if k == "device" else v for k, v in move(sample.kwargs).items()}
    return type(sample)(move(sample.input), args=move(sample.args), kwargs=kwargs)


def outcome(op, sample, change=lambda x: x):
    """The type of the exception that it raises, or None."""
    try:
        for leaf in tree_flatten(call(op, change(sample)))[0]:
            if isinstance(leaf, torch.Tensor):
                leaf.cpu()
    except Exception as error:
        return type(error)
    return None


def pairs_of_samples(op):
    """Yields each wrong call for the CPU and the device's, or None where that has none."""
    device = []
    with contextlib.suppress(RuntimeError):  # a tensor of too many dims ends them
        device.extend(op.error_inputs(DEVICE))
    hosts = list(op.error_inputs("cpu"))
    if len(hosts) == len(device):
        yield from zip(hosts, device, strict=True)
        return
    for host in hosts:
        alike = [one for one in device if one.error_regex == host.error_regex]
        if alike:
            device.remove(alike[0])
        yield host, alike[0] if alike else None


@pytest.mark.slow
@pytest.mark.parametrize("op", WITH_ERRORS, ids=lambda op: op.formatted_name)
def test_error_inputs(op):
    """The CPU's type of exception, or the one that the sample expects of other devices."""
    for mode in modes():
        with torch.tpu.set_eager_mode(mode) if DEVICE == "tpu" else contextlib.nullcontext():
            for number, (host, device) in enumerate(pairs_of_samples(op)):
                expected = outcome(op, host.sample_input)
                if device is not None:
                    actual = outcome(op, device.sample_input)
                    assert actual in (expected, device.error_type), (number, mode)
                elif mode == "debug":  # an index, which no other device is expected to check
                    assert outcome(op, host.sample_input, move_sample) == expected, number


def test_shapes_are_those_of_the_mask():
    x = torch.zeros(3, 4, device=DEVICE)
    mask = torch.tensor([True, False, True], device=DEVICE)
    with pytest.raises(RuntimeError, match=r"value tensor of shape \[5\].*of shape \[2, 4\]"):
        x[mask] = torch.ones(5, device=DEVICE)
    with pytest.raises(RuntimeError, match=r"value tensor of shape \[5\].*of shape \[2\]"):
        x[torch.eye(3, 4, device=DEVICE) * x.new_tensor([1, 1, 0, 0]) > 0] = torch.ones(5).to(
            DEVICE
        )


@pytest.mark.filterwarnings("always")
def test_masks_of_bytes():
    x, mask = torch.arange(3.0, device=DEVICE), torch.tensor([1, 0, 1], dtype=torch.uint8)
    with pytest.warns(UserWarning, match="uint8"):
        assert x[mask.to(DEVICE)].tolist() == [0, 2]
    with pytest.warns(UserWarning, match="uint8"):
        assert torch.where(mask.to(DEVICE), x, 7).tolist() == [0, 7, 2]


def test_what_is_empty_says_nothing_of_the_rest():
    def drop(count):
        return torch.native_dropout(torch.arange(count, device=DEVICE), 1.0, True)[0]

    assert drop(0).numel() == 0
    with pytest.raises(RuntimeError, match="can't be cast"):
        drop(6)


WARNED = {
    "sum": lambda x: torch.sum(x, 0, out=x.new_empty(7)),
    "add": lambda x: torch.add(x, 1, out=x.new_empty(7)),
    "sort": lambda x: torch.sort(x, out=(x.new_empty(7), x.new_empty(7, dtype=torch.int64))),
    "cumsum": lambda x: torch.cumsum(x, 0, out=x.new_empty(7)),
    "random-half": lambda x: x.half().random_(0, 5000),
    "random-half-to": lambda x: x.half().random_(5000),
    "random-bfloat16": lambda x: x.bfloat16().random_(-1000, 5),
    "nothing": lambda x: torch.add(x, 1, out=x.new_empty(0)),
}


@pytest.mark.parametrize("work", WARNED.values(), ids=WARNED)
def test_what_the_cpu_warns_of_is_warned_of_as_often(work):
    found = []
    for device in ("cpu", DEVICE):
        with warnings.catch_warnings(record=True, action="always") as seen:
            work(torch.ones(2, 3, device=device))
        found.append([str(one.message).partition("(Triggered")[0] for one in seen])
    assert found[1] == found[0]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", ["rows", "all of a dim", "mask", "one for a mask"])
def test_values_of_another_dtype_at_indices(name, accumulate):
    """They are refused, but for a lone one that fills a mask."""
    for into, values in (
        (torch.float64, torch.int32),
        (torch.int64, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float32),
    ):
        found = []
        for device in ("cpu", DEVICE):
            x = torch.zeros(1, 3, dtype=into, device=device)
            one = torch.tensor([1, 2], dtype=values, device=device)
            rows = torch.tensor([0, 1], device=device)
            mask = torch.tensor([[True, True, False]], device=device)
            indices, one = {
                "rows": ((rows[:1] * 0, rows), one),
                "all of a dim": ((None, rows), one),
                "mask": ((mask,), one),
                "one for a mask": ((mask,), one[:1]),
            }[name]
            try:
                written = torch.ops.aten.index_put_(x, list(indices), one, accumulate)
                found.append(written.tolist())
            except RuntimeError as error:
                found.append(str(error))
        assert found[0] == found[1]
