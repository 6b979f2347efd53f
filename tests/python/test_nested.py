"""Nested tensors of both layouts, and flex_attention, against the CPU."""

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, check, check_gradients, modes, move, raises_alike, same
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytestmark = [
    pytest.mark.usefixtures("no_host"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile"),
]
PARTS = [torch.randn(n, 4) for n in (2, 3, 2)]


def parts(nested):
    return list(nested.unbind())


def twice(nested):
    return nested * 2 + nested.sin()


# What works on nested tensors of both layouts.
BOTH = {
    "unbind": parts,
    "padded": lambda t: t.to_padded_tensor(-1.0),
    "pointwise": lambda t: parts(twice(t)),
    "gelu": lambda t: parts(F.gelu(t.relu())),
    "softmax": lambda t: parts(t.softmax(-1)),
    "norm": lambda t: parts(
        F.layer_norm(t, (4,), torch.ones(4, device=t.device), torch.ones(4, device=t.device))
    ),
    "linear": lambda t: parts(F.linear(t, torch.ones(3, 4, device=t.device))),
    "chunks": lambda t: [parts(one) for one in t.chunk(2, -1)],
    "clone": lambda t: parts(t.clone()),
    "sum": lambda t: parts(t.sum(-1, keepdim=True)),
    "dtype": lambda t: parts(t.to(torch.bfloat16)),
}


def nested(layout, tensors):
    return torch.nested.as_nested_tensor(tensors, layout=layout)


@pytest.mark.diagonal
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
@pytest.mark.parametrize("name", BOTH)
def test_nested(name, layout):
    check(lambda *tensors: BOTH[name](nested(layout, list(tensors))), *PARTS)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
def test_gradients(layout):
    def work(weight, *tensors):
        rows = F.linear(nested(layout, list(tensors)), weight)
        return rows.to_padded_tensor(0.0), twice(rows).to_padded_tensor(1.0)

    leaves = [part.clone().requires_grad_() for part in PARTS]
    check_gradients(work, torch.randn(3, 4, requires_grad=True), *leaves)


JAGGED = {
    "ragged-sum": lambda t: t.sum(1),
    "ragged-mean": lambda t: t.mean(1),
    "ragged-softmax": lambda t: t.softmax(1).values(),
    "greatest": lambda t: t.amax(1),
    "transposed": lambda t: t.transpose(1, 2).values(),
    "narrow": lambda t: t[..., 1:3].values(),
    "wider": lambda t: t.to_padded_tensor(0.0, (3, 5, 4)),
    "from-offsets": lambda t: torch.nested.nested_tensor_from_jagged(
        t.values() + 1, t.offsets()
    ).to_padded_tensor(0.0),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("name", JAGGED)
def test_jagged(name, mode):
    if DEVICE == "tpu":
        torch.tpu.eager_mode = mode
    check(lambda *tensors: JAGGED[name](nested(torch.jagged, list(tensors))), *PARTS)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_extremes_of_whole_numbers(dtype):
    """What is padded is the dtype's bound, not an infinity."""

    def work(*tensors):
        t = nested(torch.jagged, list(tensors))
        least = (t.amin(1), *t.min(1), t.argmin(1)) if dtype != torch.bool else ()
        return t.amax(1), *t.max(1), *least, t.to_padded_tensor(-1.0)

    check(work, *((part * 5).to(dtype) for part in PARTS))


def test_padding_is_cast_as_the_cpu_casts_it():
    values, offsets = torch.arange(5)[:, None], torch.tensor([0, 2, 2, 5])

    def work(values, offsets):
        pad = torch.ops.aten._jagged_to_padded_dense_forward
        return [
            pad(values.to(dtype), [offsets], [3], padding)
            for dtype in (torch.int64, torch.int8, torch.uint8, torch.bool, torch.float32)
            for padding in (-1.0, 2.7, torch.inf, -torch.inf)
        ]

    check(work, values, offsets)


def test_empty_and_long_rows():
    """Rows of no length, and padding that is shorter than the longest row."""
    values, offsets = torch.randn(5, 2), torch.tensor([0, 2, 2, 5])
    aten = torch.ops.aten

    def work(values, offsets):
        padded = aten._jagged_to_padded_dense_forward(values, [offsets], [4], 7.0)
        back = aten._padded_dense_to_jagged_forward(padded, [offsets], 5)
        nothing = aten._jagged_to_padded_dense_forward(values[:0], [offsets * 0], [2], 1.0)
        return padded, back, aten._padded_dense_to_jagged_forward(padded, [offsets]), nothing

    check(work, values, offsets)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
def test_attention(layout):
    """Each element attends to itself, as if it were alone."""
    parts_ = [torch.randn(n, 2, 4, device=DEVICE) for n in (2, 3, 1)]
    q = nested(layout, parts_).transpose(1, 2)
    q = q if layout == torch.jagged else q.contiguous()
    out = F.scaled_dot_product_attention(q, q, q).transpose(1, 2)
    for got, one in zip(out.unbind(), parts_, strict=True):
        one = one.transpose(0, 1).cpu()
        want = F.scaled_dot_product_attention(one, one, one).transpose(0, 1)
        same(got, want)


def test_products():
    def work(*tensors):
        t = nested(torch.strided, list(tensors))
        return parts(torch.matmul(t, t.transpose(1, 2))), parts(
            t.softmax(-1).matmul(t.transpose(1, 2))
        )

    check(work, *PARTS)
    raises_alike(lambda *tensors: torch.matmul(*[nested(torch.strided, list(tensors))] * 2), *PARTS)
    rows = [part[:, 0] for part in PARTS]
    for other in (PARTS, rows):
        raises_alike(
            lambda *pair: torch.matmul(*(nested(torch.strided, list(one)) for one in pair)),
            rows,
            other,
        )


def test_sums_keep_the_dtype():
    tensors = [(part * 5).int() for part in PARTS]
    check(lambda *all_: parts(nested(torch.strided, list(all_)).sum(-1, keepdim=True)), *tensors)
    empty = [torch.zeros(0, 4), torch.zeros(0, 4)]
    check(lambda *all_: parts(nested(torch.strided, list(all_)).sum(-1, keepdim=True)), *empty)


def test_comparing_with_a_number():
    check(lambda *all_: parts(nested(torch.strided, list(all_)) > 0), *PARTS)
    check(lambda *all_: parts(nested(torch.strided, list(all_)).eq(0)), *PARTS)


def test_encoder_of_sequences_that_are_all_empty():
    """The CPU refuses what is then padded; CUDA has zeros."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval().to(DEVICE)
    mask = torch.ones(2, 5, dtype=torch.bool, device=DEVICE)
    with torch.inference_mode():
        result = encoder(torch.randn(2, 5, 8, device=DEVICE), src_key_padding_mask=mask)
    assert torch.equal(result.cpu(), torch.zeros(2, 5, 8))


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_skips_what_is_padded(norm_first):
    """The fast path nests what the mask keeps; what it drops comes back as zeros."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    x, mask = torch.randn(2, 5, 8), torch.arange(5) >= torch.tensor([[3], [5]])
    with torch.inference_mode():
        expected = encoder(x, src_key_padding_mask=mask)
        x, mask = move((x, mask))
        same(encoder.to(DEVICE)(x, src_key_padding_mask=mask), expected, rtol=1e-3, atol=1e-4)


def test_nested_attention_layer():
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    tensors = [torch.randn(n, 8) for n in (2, 4)]
    with torch.inference_mode():
        expected = [module(t[None], t[None], t[None], need_weights=False)[0][0] for t in tensors]
        q = nested(torch.strided, move(tensors))
        got = module.to(DEVICE)(q, q, q, need_weights=False)[0]
    same(parts(got), expected, rtol=1e-3, atol=1e-4)


# -- flex_attention, eager --


def plain_attention(q, k, v, change):
    n = torch.arange(q.shape[2], device=q.device)
    return change(q @ k.mT / q.shape[-1] ** 0.5, n[:, None], n).softmax(-1) @ v


FLEX = {
    "plain": ({}, lambda s, i, j: s),
    "score": (
        {"score_mod": lambda s, b, h, i, j: s + (i - j) * 0.1},
        lambda s, i, j: s + (i - j) * 0.1,
    ),
    "mask": (
        {"block_mask": lambda b, h, i, j: i >= j},
        lambda s, i, j: s.masked_fill(i < j, -torch.inf),
    ),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("name", FLEX)
def test_flex_attention(name, mode):
    if DEVICE == "tpu":
        torch.tpu.eager_mode = mode
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    options, change = FLEX[name]
    options = dict(options)
    results = []
    for device in ("cpu", DEVICE):
        leaves = [one.to(device, copy=True).requires_grad_() for one in (q, k, v)]
        if device == "cpu":
            out = plain_attention(*leaves, change)
        else:
            if "block_mask" in options:
                mask = create_block_mask(options["block_mask"], None, None, 16, 16, device=device)
                options["block_mask"] = mask
            out = flex_attention(*leaves, **options)
        out.square().sum().backward()
        results.append((out, [leaf.grad for leaf in leaves]))
    same(results[1], results[0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_flex_attention_of_groups_and_captured_tensors():
    def work(q, k, bias):
        def score(s, b, h, i, j):
            return s * bias[h]

        return flex_attention(q, k, k, score_mod=score, enable_gqa=True)

    check(work, torch.randn(2, 4, 8, 8), torch.randn(2, 2, 8, 8), torch.randn(4))
