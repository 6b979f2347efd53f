"""Texts of changing lengths in training: gradients, losses and masks know of room, too."""

import math
import os
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, alone, counted, only_tpu, same, slow_but

pytestmark = [
    only_tpu,
    pytest.mark.skipif(
        os.environ.get("TORCH_TPU_GROWING", "on") == "off", reason="TORCH_TPU_GROWING is off"
    ),
]
LENGTHS = (5, 9, 7, 12, 6, 11, 63, 64, 14, 65, 70, 30, 66, 129)
BATCH, WORDS, WIDTH = 3, 201, 8


def text(length):
    generator = torch.Generator().manual_seed(length)
    return torch.randint(1, WORDS, (BATCH, length), generator=generator)


def tables():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(WORDS, WIDTH, generator=generator) for _ in range(3)]


def heads(x):
    return x.unflatten(-1, (2, WIDTH // 2)).transpose(1, 2)


def causal(x):
    at = torch.arange(x.shape[1], device=x.device)
    return at[None] <= at[:, None]


def written_attention(x, ids):
    """As models write it out: logits, and a mask, of two dims that are as long as the text."""
    q = heads(x)
    logits = (q @ q.mT / math.sqrt(q.shape[-1])).masked_fill(~causal(x), -math.inf)
    logits = logits.masked_fill((ids % 7 == 0)[:, None, None], -1e4)
    return (logits.softmax(-1) @ q).transpose(1, 2).flatten(2)


def masked_attention(x, ids):
    q = heads(x)
    mask = causal(x)[None, None] & (ids % 7 > 0)[:, None, None]
    mask = mask | torch.eye(1, device=x.device, dtype=torch.bool)
    return F.scaled_dot_product_attention(q, q, q, mask).transpose(1, 2).flatten(2)


def shifted_labels(x, w, ids):
    """As transformers computes a language model's loss."""
    labels = F.pad(ids.masked_fill(ids % 5 == 0, -100), (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy((x @ w.T).view(-1, WORDS), labels.view(-1))


def shifted_logits(x, w, ids):
    logits = (x @ w.T)[:, :-1].contiguous()
    return F.cross_entropy(logits.view(-1, WORDS), ids[:, 1:].reshape(-1), reduction="sum")


def shifted_right(x, w, ids):
    """As transformers makes what a decoder reads of its labels."""
    shifted = ids.new_zeros(ids.shape)
    shifted[..., 1:] = ids[..., :-1].clone()
    shifted[..., 0] = 1
    return F.embedding(shifted.masked_fill_(shifted == 5, 0), w) * x


def biased_attention(x, w, ids):
    """As T5 has it: what is added to the logits is looked up by distance."""
    at = torch.arange(x.shape[1], device=x.device)
    distance = at[None] - at[:, None]
    distance = -torch.min(distance, torch.zeros_like(distance))
    far = torch.min(distance // 2 + 3, torch.full_like(distance, 9))
    bias = F.embedding(torch.where(distance < 4, distance, far), w)[..., :2].permute(2, 0, 1)
    mask = torch.where((ids % 7 > 0)[:, None, None], bias[None], -1e4)
    out = F.scaled_dot_product_attention(*[heads(x)] * 3, mask.contiguous())
    return out.transpose(1, 2).flatten(2)


def written(x, w, ids):
    """Into parts of what has a size of its own, and of what has room itself."""
    out = x.new_zeros(BATCH, 200, WIDTH)
    out[:, : x.shape[1]] = x
    out[:, 3 : 3 + x.shape[1]] += x * 2
    part = x.new_zeros(x.shape)
    part[:, 1:-1] = x[:, 2:]
    part[:, :-2] *= 3
    return torch.cat([out, part, part], 1)[:, : 190 + x.shape[1]] @ w.T


def triangles(x):
    n = x.shape[1]
    logits = heads(x) @ heads(x).mT
    upper = torch.full((n, n), -math.inf, device=x.device).triu(1)
    lower = torch.tril(torch.ones(n, n, device=x.device)).view(1, 1, n, n)
    return (logits + upper).softmax(-1) + logits.masked_fill(lower == 0, -1e4).softmax(-1)


def packed_attention(x, w, ids):
    """As nn.MultiheadAttention computes it: queries, keys and values lie in one storage."""
    bias = w[:24, 0].contiguous()
    out, weights = F.multi_head_attention_forward(
        *[x.transpose(0, 1) * 0.3] * 3, WIDTH, 2, w[:24], bias, None, None, False, 0.0,
        w[24:32], None, key_padding_mask=ids % 7 == 0,
    )  # fmt: skip
    return out.transpose(0, 1) * weights.mean()


def losses(x, w, ids):
    logits, labels = x @ w[:8].T, (ids % 2).float()[..., None].expand(-1, -1, 8)
    every = [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits]
    every += [
        F.soft_margin_loss,
        F.l1_loss,
        lambda a, b, **k: F.binary_cross_entropy(a.sigmoid(), b, **k),
    ]
    means = [one(logits, labels) for one in every]
    sums = [one(logits[..., :1], labels[..., :1], reduction="sum") for one in every]
    return sum(means) + sum(sums) + sum(one(logits, labels, reduction="none") for one in every)


CASES = {
    "mean": lambda x, w, v, ids: x.mean(1).square().sum(),
    "linear": lambda x, w, v, ids: F.linear(x, w, v[:, 0]).square(),
    "layer norm": lambda x, w, v, ids: F.layer_norm(x, (WIDTH,), w[0], v[0]).pow(3),
    "layer norm of nothing else": lambda x, w, v, ids: F.layer_norm(x, (WIDTH,)).pow(3),
    "RMS norm": lambda x, w, v, ids: F.rms_norm(x, (WIDTH,), w[0]).pow(3),
    "softmax": lambda x, w, v, ids: x.softmax(-1) * x,
    "softmax along the text": lambda x, w, v, ids: x.softmax(1) * x,
    "log of softmax": lambda x, w, v, ids: x.log_softmax(1) * x.log_softmax(-1),
    "activations": lambda x, w, v, ids: F.gelu(x) + F.silu(x) * F.gelu(x, approximate="tanh"),
    "embedding": lambda x, w, v, ids: F.embedding(ids, w, padding_idx=3, scale_grad_by_freq=True),
    "labels": lambda x, w, v, ids: F.cross_entropy((x @ w.T).view(-1, WORDS), ids.view(-1)),
    "weighted labels": lambda x, w, v, ids: F.cross_entropy(
        (x @ w.T).flatten(0, 1), ids.flatten(), v[:, 0].detach().abs(), ignore_index=4
    ),
    "labels one by one": lambda x, w, v, ids: F.cross_entropy(
        (x @ w.T).flatten(0, 1), ids.flatten(), reduction="none", label_smoothing=0.1
    ),
    "labels in columns": lambda x, w, v, ids: F.cross_entropy((x @ w.T).transpose(1, 2), ids),
    "shifted labels": lambda x, w, v, ids: shifted_labels(x, w, ids),
    "shifted logits": lambda x, w, v, ids: shifted_logits(x, w, ids),
    "first word": lambda x, w, v, ids: x[:, 0].tanh() @ w.T,
    "last word": lambda x, w, v, ids: x[:, -1].tanh() @ w.T,
    "last word, by index": lambda x, w, v, ids: x[:, [-1]].tanh() @ w.T,
    "neighbours": lambda x, w, v, ids: x[:, 1:] * x[:, :-1],
    "neighbours of neighbours": lambda x, w, v, ids: x[:, 1:-1].square() - x[:, 2:],
    "halves": lambda x, w, v, ids: torch.cat([-x[..., 4:], x[..., :4]], -1) * x,
    "words by index": lambda x, w, v, ids: x[
        torch.arange(BATCH, device=x.device), (ids % 5).argmax(-1)
    ],
    "padding": lambda x, w, v, ids: F.pad(x.square(), (0, 0, 2, 1), value=0.5),
    "attention": lambda x, w, v, ids: F.scaled_dot_product_attention(*[heads(x)] * 3),
    "causal attention": lambda x, w, v, ids: F.scaled_dot_product_attention(
        *[heads(x)] * 3, is_causal=True
    ),
    "attention with a mask": lambda x, w, v, ids: masked_attention(x, ids),
    "attention, written out": lambda x, w, v, ids: written_attention(x, ids),
    "fresh tensors": lambda x, w, v, ids: (
        x * x.new_ones(x.shape[:2])[..., None] + torch.zeros(BATCH, x.shape[1], 1, device=x.device)
    ),
    "an empty cache": lambda x, w, v, ids: torch.cat([torch.tensor([], device=x.device), x], 1) * x,
    "running sums": lambda x, w, v, ids: (
        x.cumsum(1) + F.embedding((ids > 9).int().cumsum(1) % 7, w)
    ),
    "running products": lambda x, w, v, ids: x.tanh().cumprod(1) + x.logcumsumexp(1),
    "in reverse": lambda x, w, v, ids: (
        x.flip(1) * x + x.flip(0, 1, 2) + x.flatten(0, 1).flip(0)[:3, None]
    ),
    "triangles": lambda x, w, v, ids: triangles(x),
    "largest of a text": lambda x, w, v, ids: x.max(1)[0] * x.min(1)[0],
    "labels by gather": lambda x, w, v, ids: (x @ w.T).log_softmax(-1).gather(-1, ids[..., None]),
    "words by gather": lambda x, w, v, ids: x.gather(1, (ids % 4)[..., None].expand(-1, -1, WIDTH)),
    "scattered": lambda x, w, v, ids: (
        x.new_zeros(BATCH, WORDS)
        .scatter_add(1, ids, x[..., 0])
        .scatter(1, ids % 7, 2.0)
        .scatter_add(0, ids % 3, x[..., 1])
    ),
    "scattered among words": lambda x, w, v, ids: x.scatter(
        1, torch.tensor([2, 0, 3], device=x.device)[:, None].expand(BATCH, -1, WIDTH), x[:, :3] * 2
    ),
    "added slices": lambda x, w, v, ids: x.new_zeros(WORDS, WIDTH).index_add(
        0, ids.flatten() % 50, x.flatten(0, 1)
    ),
    "chosen texts": lambda x, w, v, ids: x.index_select(0, ids[:, 0] % BATCH) * x,
    "chosen words": lambda x, w, v, ids: x.index_select(1, ids[0] % 3) * x,
    "stacked": lambda x, w, v, ids: (
        torch.stack([x, x * 2], 1) * torch.stack(x.split(4, -1), -1).sum()
    ),
    "positions": lambda x, w, v, ids: x + w[None, : x.shape[1]] * v[3 : 3 + x.shape[1]],
    "losses": lambda x, w, v, ids: losses(x, w, ids),
    "smoothed labels": lambda x, w, v, ids: F.cross_entropy(
        (x @ w.T).flatten(0, 1), ids.flatten(), label_smoothing=0.1, ignore_index=4
    ),
    "shifted to the right": lambda x, w, v, ids: shifted_right(x, w, ids),
    "attention with distances": lambda x, w, v, ids: biased_attention(x, w, ids),
    "packed attention": lambda x, w, v, ids: packed_attention(x, w, ids),
    "written parts": lambda x, w, v, ids: written(x, w, ids),
    "places among all": lambda x, w, v, ids: x.flatten(0, 1).argmax(0) + x.argmax() + x.mean(),
    "largest of all": lambda x, w, v, ids: (
        torch.cat([one.float() for one in x.flatten(0, 1).max(0)]) + x.flatten(0, 1).var(0).sum()
    ),
}
# Where operators that know nothing of room take part: parts of merged dims, writes of texts into
# what has another size, two texts that are joined.
EXACT = {"in reverse", "scattered", "written parts", "largest of all"}


def run(name, length, device):
    """The result and all gradients."""
    table, w, v = [one.to(device).requires_grad_() for one in tables()]
    ids = text(length).to(device)
    out = CASES[name](F.embedding(ids, table) + 0, w, v, ids)
    grads = torch.autograd.grad(out.square().sum(), [table, w, v], allow_unused=True)
    return [out.detach(), *(one for one in grads if one is not None)]


SLOW = {"in reverse", "running products", "scattered among words", "chosen texts", "chosen words"}
SLOW |= {"words by gather", "positions", "smoothed labels", "attention with distances", "mean"}
SLOW |= {"layer norm of nothing else", "log of softmax", "weighted labels", "labels in columns"}
SLOW |= {"shifted logits", "first word", "causal attention", "fresh tensors", "an empty cache"}
SLOW |= {"neighbours of neighbours", "largest of all", "last word", "added slices", "embedding"}
SLOW |= {"written parts", "linear", "halves", "stacked", "losses", "packed attention"}
SLOW |= {"scattered", "triangles", "layer norm", "RMS norm", "running sums", "words by index"}
SLOW |= {"places among all", "labels by gather", "attention with a mask", "softmax along the text"}
SLOW |= {"attention", "softmax", "neighbours", "attention, written out"}


@pytest.mark.parametrize("mode", slow_but(["strict", "fused"], "fused"))
@pytest.mark.parametrize("name", slow_but(CASES, *(CASES.keys() - SLOW)))
def test_numbers(name, mode):
    torch.tpu.eager_mode = mode
    for length in (*LENGTHS, WIDTH, WIDTH // 2):  # which are other dims' sizes as well
        got, want = run(name, length, DEVICE), run(name, length, "cpu")
        same(got, want, rtol=5e-3, atol=1e-3)
        assert [one.stride() for one in got] == [one.stride() for one in want]


# -- In processes of their own: what other tests do first with such texts decides, too --


def programs_of(name):
    """How many new ones lengths need whose bounds were there, and what was made exact."""
    torch.tpu.eager_mode = "strict"
    for length in LENGTHS[:-1] + LENGTHS[:-1]:
        run(name, length, DEVICE)

    def later():
        for length in (10, 13, 31, 68, 99):
            run(name, length, DEVICE)  # dropped: other sizes may be a living one's length by chance

    return counted(later, "programs", "settled")[0]


def programs_of_each(names):
    return {name: programs_of(name) for name in names}


QUICK = ["attention, written out", "shifted labels", "first word", "neighbours"]


@pytest.mark.parametrize("names", slow_but(["quick", "others"]))
def test_programs(names):
    chosen = [one for one in CASES if one not in EXACT and (one in QUICK) == (names == "quick")]
    assert alone(programs_of_each, chosen, timeout=600) == {one: [0, 0] for one in chosen}


# -- Random numbers --


def drawn(draw, ids, table):
    torch.tpu.manual_seed(5)
    made = draw(F.embedding(ids, table) + 0)
    return made.cpu(), torch.rand(3, device=DEVICE).cpu()


DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout of words": lambda x: F.dropout(x.flatten(0, 1), 0.3),
    "dropout of heads": lambda x: F.dropout(heads(x), 0.3),
    "attention": lambda x: F.scaled_dot_product_attention(*[heads(x)] * 3, dropout_p=0.3),
    "causal attention": lambda x: F.scaled_dot_product_attention(
        *[heads(x)] * 3, dropout_p=0.3, is_causal=True
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(DRAWS, "dropout"))
def test_the_same_numbers_are_drawn(name):
    """As for exact sizes, so that a layer that is computed again drops the same elements."""
    table = tables()[0].to(DEVICE)
    for length in LENGTHS:
        torch.tpu.eager_mode = "strict"
        ids = text(length).to(DEVICE)
        draw = partial(drawn, DRAWS[name], ids, table)
        [bounded], got = counted(draw, "ops_bounded")
        torch.tpu.eager_mode = "debug"
        same(list(got), list(drawn(DRAWS[name], ids.clone(), table)), rtol=1e-5, atol=1e-6)
    assert bounded >= 3


@pytest.mark.slow
def test_gradients_of_what_is_dropped():
    table = tables()[0].to(DEVICE)
    for length in LENGTHS[:4]:
        grads = []
        for mode in ("strict", "debug"):
            torch.tpu.eager_mode = mode
            torch.tpu.manual_seed(7)
            weight = table.detach().requires_grad_()
            x = F.embedding(text(length).to(DEVICE), weight)
            x = F.scaled_dot_product_attention(*[heads(x)] * 3, dropout_p=0.4)
            grads += torch.autograd.grad(F.dropout(x, 0.2).square().sum(), weight)
        same(grads[0].cpu(), grads[1].cpu(), rtol=1e-3, atol=1e-4)


# -- Models --


def train(kind):
    """Losses of 24 steps on texts of random lengths, and the programs that the last 8 needed."""
    torch.tpu.eager_mode = "fused"
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    models = {
        "encoder": torch.nn.Sequential(torch.nn.Embedding(WORDS, 16), layer),
        "linear": torch.nn.Sequential(torch.nn.Embedding(WORDS, 16), torch.nn.Linear(16, 16)),
    }
    body, head = models[kind], torch.nn.Linear(16, WORDS)
    net = torch.nn.ModuleList([body, head]).to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    losses, generator = [], torch.Generator().manual_seed(1)
    for step in range(24):
        if step == 16:
            before = torch.tpu.metrics()["programs"]
        ids = text(int(torch.randint(20, 60, (), generator=generator))).to(DEVICE)
        logits = head(body(ids))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(round(loss.item(), 3))
    return [*losses, torch.tpu.metrics()["programs"] - before]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder", "linear"])
def test_models_compile_for_the_first_lengths(kind):
    """Compiled; the host's kernels need no program for a length."""
    chosen = [{"TORCH_TPU_GROWING": one, "TORCH_TPU_KERNELS": "xla"} for one in ("on", "off")]
    with_room, exact = (alone(train, kind, **one) for one in chosen)
    same(torch.tensor(with_room[:-1]), torch.tensor(exact[:-1]), rtol=1e-2, atol=2e-3)
    assert with_room[-1] <= 2 < exact[-1]
