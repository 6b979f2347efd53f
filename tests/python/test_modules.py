"""torch.nn modules and losses, forward and backward, against the CPU."""

import copy
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from support import (
    DEVICE,
    check,
    check_gradients,
    counted,
    living,
    only_tpu,
    raises_alike,
    same,
    slow_but,
)
from torch import nn


def compare_module(module, *inputs, training=True, tolerance=None):
    """Compares outputs, buffers and all gradients of a module on both devices."""
    limits = tolerance or {"rtol": 1e-3, "atol": 1e-4}
    results = []
    for device in ("cpu", DEVICE):
        m = copy.deepcopy(module).to(device).train(training)
        moved = []
        for x in inputs:
            y = x.detach().clone().to(device)
            moved.append(y.requires_grad_() if y.is_floating_point() else y)
        out = m(*moved)
        outs = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        loss = sum(
            (t * torch.linspace(0, 1, t.numel(), device=device).view(t.shape)).sum() for t in outs
        )
        loss.backward()
        grads = [p.grad for p in m.parameters()] + [x.grad for x in moved if x.is_floating_point()]
        results.append((outs, grads, list(m.buffers())))
    same(results[1], results[0], **limits)


MODULES = {
    "linear": (nn.Linear(5, 3), [(4, 5)]),
    "bilinear": (nn.Bilinear(3, 4, 5), [(2, 3), (2, 4)]),
    "conv1d": (nn.Conv1d(3, 6, 3, stride=2, padding=1), [(2, 3, 9)]),
    "conv2d": (nn.Conv2d(3, 6, 3, padding=1), [(2, 3, 8, 8)]),
    "conv2d-groups": (nn.Conv2d(4, 8, 3, stride=2, dilation=2, groups=2), [(2, 4, 11, 11)]),
    "conv2d-same": (nn.Conv2d(2, 2, 3, padding="same", bias=False), [(1, 2, 6, 6)]),
    "conv3d": (nn.Conv3d(2, 3, 2), [(1, 2, 4, 4, 4)]),
    "conv-transpose1d": (nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=1), [(2, 3, 5)]),
    "conv-transpose2d": (
        nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1, groups=2),
        [(1, 4, 5, 5)],
    ),
    "batchnorm1d": (nn.BatchNorm1d(4), [(6, 4)]),
    "batchnorm2d": (nn.BatchNorm2d(3), [(2, 3, 4, 4)]),
    "layernorm": (nn.LayerNorm((3, 4)), [(2, 3, 4)]),
    "groupnorm": (nn.GroupNorm(2, 4), [(2, 4, 5, 5)]),
    "instancenorm": (nn.InstanceNorm2d(3, affine=True), [(2, 3, 5, 5)]),
    "rmsnorm": (nn.RMSNorm(6), [(2, 6)]),
    "maxpool1d": (nn.MaxPool1d(2), [(2, 3, 8)]),
    "maxpool2d": (nn.MaxPool2d(3, stride=2, padding=1), [(2, 3, 8, 8)]),
    "avgpool2d": (nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), [(2, 3, 8, 8)]),
    "adaptive-avg": (nn.AdaptiveAvgPool2d((2, 3)), [(2, 3, 8, 9)]),
    "adaptive-max": (nn.AdaptiveMaxPool2d(2), [(2, 3, 8, 8)]),
    "upsample-nearest": (nn.Upsample(scale_factor=2), [(1, 2, 4, 4)]),
    "upsample-bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), [(1, 2, 4, 4)]),
    "pixel-shuffle": (nn.PixelShuffle(2), [(1, 8, 3, 3)]),
    "unfold": (nn.Unfold(2, stride=2), [(1, 2, 6, 6)]),
    "reflection-pad": (nn.ReflectionPad2d(1), [(1, 2, 4, 4)]),
    "replication-pad": (nn.ReplicationPad1d(2), [(1, 2, 4)]),
    "constant-pad": (nn.ConstantPad2d((1, -1, 2, 0), 3.5), [(1, 2, 4, 4)]),
    "gelu": (nn.GELU(), [(3, 4)]),
    "gelu-tanh": (nn.GELU(approximate="tanh"), [(3, 4)]),
    "silu": (nn.SiLU(), [(3, 4)]),
    "elu": (nn.ELU(), [(3, 4)]),
    "softplus": (nn.Softplus(beta=2), [(3, 4)]),
    "hardswish": (nn.Hardswish(), [(3, 4)]),
    "leaky-relu": (nn.LeakyReLU(0.2), [(3, 4)]),
    "prelu": (nn.PReLU(), [(3, 4)]),
    "mish": (nn.Mish(), [(3, 4)]),
    "glu": (nn.GLU(), [(3, 4)]),
    "softmax": (nn.Softmax(-1), [(3, 4)]),
    "log-softmax": (nn.LogSoftmax(0), [(3, 4)]),
    "lstm": (nn.LSTM(4, 5, num_layers=2, batch_first=True, bidirectional=True), [(2, 3, 4)]),
    "lstm-projected": (nn.LSTM(4, 5, proj_size=3, bidirectional=True), [(3, 2, 4)]),
    "lstm-no-bias": (nn.LSTM(4, 5, bias=False), [(3, 2, 4)]),
    "gru-no-bias": (nn.GRU(4, 5, bias=False), [(3, 2, 4)]),
    "gru": (nn.GRU(4, 5, num_layers=2), [(3, 2, 4)]),
    "rnn": (nn.RNN(4, 5), [(3, 2, 4)]),
    "lstm-cell": (nn.LSTMCell(4, 5), [(2, 4)]),
    "gru-cell": (nn.GRUCell(4, 5), [(2, 4)]),
    "attention": (nn.MultiheadAttention(8, 2, batch_first=True), [(2, 3, 8)] * 3),
    "encoder": (
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True),
        [(2, 3, 8)],
    ),
    "decoder": (nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), [(3, 2, 8), (4, 2, 8)]),
}

SLOW = {
    "lstm",
    "bilinear",
    "conv2d-same",
    "hardswish",
    "elu",
    "mish",
    "leaky-relu",
    "gelu-tanh",
    "lstm-cell",
    "upsample-bilinear",
    "replication-pad",
    "softmax",
    "gru",
    "lstm-projected",
    "lstm-no-bias",
    "gru-no-bias",
    "decoder",
}  # as others, or as the models


@pytest.mark.parametrize("name", slow_but(MODULES, *(MODULES.keys() - SLOW)))
def test_module(name):
    module, shapes = MODULES[name]
    compare_module(module, *(torch.randn(shape) for shape in shapes))


@pytest.mark.parametrize("name", ["batchnorm2d", "encoder", "attention", "instancenorm"])
def test_module_in_evaluation(name):
    module, shapes = MODULES[name]
    compare_module(module, *(torch.randn(shape) for shape in shapes), training=False)


@pytest.mark.parametrize("name", ["encoder", "attention"])
def test_fast_path_of_inference(name):
    module, shapes = MODULES[name]
    inputs = [torch.randn(shape) for shape in shapes]
    with torch.inference_mode():
        expected = copy.deepcopy(module).eval()(*inputs)
        actual = copy.deepcopy(module).eval().to(DEVICE)(*(x.to(DEVICE) for x in inputs))
    same(actual, expected, rtol=1e-3, atol=1e-4)


def test_fast_attention_without_weights():
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 3, 8)
    with torch.inference_mode():
        expected = module(x, x, x, need_weights=False)
        x = x.to(DEVICE)
        actual = module.to(DEVICE)(x, x, x, need_weights=False)
    assert actual[1] is None
    same(actual, expected, rtol=1e-3, atol=1e-4)


def test_batch_norm_saves_no_statistics_in_evaluation():
    x, ones, zeros = torch.randn(3, 2, 4), torch.ones(2), torch.zeros(2)
    for name in ("_native_batch_norm_legit", "native_batch_norm"):
        for training in (True, False):
            op = getattr(torch.ops.aten, name)
            check(op, x, ones, zeros, zeros, ones, training, 0.1, 1e-5)
    check(torch.ops.aten._native_batch_norm_legit_no_training, x, ones, zeros, zeros, ones, 0.1, 1)


def test_embeddings():
    ids = torch.tensor([[0, 3], [3, 9]])
    compare_module(nn.Embedding(10, 4, padding_idx=0), ids)
    compare_module(nn.EmbeddingBag(10, 4, mode="mean"), ids)


LOSSES = {
    "mse": (F.mse_loss, "float"),
    "l1": (F.l1_loss, "float"),
    "smooth-l1": (F.smooth_l1_loss, "float"),
    "huber": (F.huber_loss, "float"),
    "bce-logits": (F.binary_cross_entropy_with_logits, "unit"),
    "kl": (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), "float"),
    "cross-entropy": (F.cross_entropy, "class"),
    "label-smoothing": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), "class"),
    "ignore-index": (lambda x, y: F.cross_entropy(x, y, ignore_index=1), "class"),
    "nll": (lambda x, y: F.nll_loss(x.log_softmax(1), y), "class"),
    "nll-sum": (lambda x, y: F.nll_loss(x.log_softmax(1), y, reduction="sum"), "class"),
    "multi-margin": (F.multi_margin_loss, "class"),
    "cosine": (lambda x, y: F.cosine_similarity(x, y), "float"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss(name):
    function, kind = LOSSES[name]
    x = torch.randn(6, 4, requires_grad=True)
    y = {
        "float": torch.randn(6, 4),
        "unit": torch.rand(6, 4),
        "class": torch.tensor([0, 1, 2, 3, 1, 0]),
    }[kind]
    check_gradients(function, x, y)


@pytest.mark.parametrize("loss", [F.multi_margin_loss, F.multilabel_margin_loss])
def test_margins_of_what_is_not_a_number(loss):
    x = torch.tensor([[math.nan] * 4, [1.0, math.nan, 2.0, 0.5]], requires_grad=True)
    y = torch.tensor([1, 2]) if loss is F.multi_margin_loss else torch.tensor([[1, 3, -1, 0]] * 2)
    check_gradients(partial(loss, reduction="sum"), x, y)


def test_weighted_cross_entropy():
    def work(x, y, w):
        return F.cross_entropy(x, y, weight=w)

    check_gradients(
        work, torch.randn(6, 4, 2, requires_grad=True), torch.randint(0, 4, (6, 2)), torch.rand(4)
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [None, torch.bool, torch.float32], ids=str)
def test_attention_function(causal, masked):
    if causal and masked is not None:
        pytest.skip("PyTorch takes one or the other")
    q, k, v = (torch.randn(2, 3, n, 4, requires_grad=True) for n in (5, 5, 5))
    mask = None
    if masked is torch.bool:
        mask = torch.ones(5, 5, dtype=torch.bool).tril()
    elif masked:
        mask = torch.randn(5, 5)

    def work(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    check_gradients(work, q, k, v, mask)


LONG = {
    "plain": ((1, 8, 1030), (8, 1030), {}),
    "causal": ((1, 8, 1030), (8, 1030), {"is_causal": True}),
    "causal, fewer keys": ((2, 4, 2048), (2, 600), {"is_causal": True}),
    "bias": ((1, 4, 2048), (2, 1100), {"attn_mask": lambda: torch.randn(2048, 1100)}),
    "bias of keys": ((2, 4, 1500), (4, 750), {"attn_mask": lambda: torch.randn(2, 1, 1, 750)}),
    "mask": ((1, 8, 1030), (8, 1030), {"attn_mask": lambda: torch.rand(1030, 1030) > 0.5}),
    "few rows": ((1, 2, 130), (2, 40000), {}),
}


@pytest.mark.parametrize("case", slow_but(LONG, "bias"))
def test_long_attention(case):
    """More logits than are taken at once; the last block has rows that are none."""
    (batch, heads, rows), (shared, keys), options = LONG[case]
    q = torch.randn(batch, heads, rows, 8, requires_grad=True)
    k, v = (torch.randn(batch, shared, keys, n, requires_grad=True) for n in (8, 12))
    mask = options["attn_mask"]() if "attn_mask" in options else None
    if mask is not None and mask.dtype == torch.bool:
        mask[3] = False
    elif mask is not None:
        mask.requires_grad_()

    def work(q, k, v, mask):
        chosen = {**options, "attn_mask": mask}
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=shared < heads, **chosen)

    check_gradients(work, q, k, v, mask)


@pytest.mark.parametrize("half", slow_but([False, True], True), ids=["f32", "bf16"])
@pytest.mark.parametrize("varies", [False, True])
def test_attention_drops_what_dropout_would(half, varies):
    texts = living(9, 7, 3, 5, 2) if varies else []
    q, k, v = (torch.randn(2, 3, n, 8).to(DEVICE).requires_grad_() for n in (5, 7, 7))
    grad = torch.randn(2, 3, 5, 8).to(DEVICE)
    results = []
    for attend in (
        lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=0.3),
        lambda: F.dropout((q @ k.mT * 8**-0.5).softmax(-1), 0.3) @ v,
    ):
        torch.manual_seed(0)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
            out = attend()
        results.append((out, *torch.autograd.grad(out, (q, k, v), grad)))
        results[-1] += (torch.rand(3, device=DEVICE),)
    for pair in zip(*results, strict=True):
        same(*pair, **({"rtol": 0.05, "atol": 0.05} if half else {}))
    torch.manual_seed(0)
    F.scaled_dot_product_attention(q, k, v)
    drawn = torch.rand(3, device=DEVICE)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(3, device=DEVICE)), "nothing was drawn without dropout"
    assert len(texts) == 5 * varies


def test_a_mask_and_causal():
    q, mask = torch.randn(1, 1, 3, 4), torch.tensor([[1, 0, 1], [0, 1, 1], [1, 0, 1]]).bool()

    def work(q, mask, p):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=True, dropout_p=p)

    same(work(q.to(DEVICE), mask.to(DEVICE), 0), work(q, mask, 0))
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="is_causal"):
            work(q.to(device), mask.to(device), 0.5)


def test_attention_without_a_gradient_of_its_output():
    tensors = [torch.randn(1, 1, 2, 2, dtype=torch.float64) for _ in range(3)]
    tensors = [x.to(DEVICE).requires_grad_() for x in tensors]
    assert torch.autograd.gradcheck(F.scaled_dot_product_attention, tensors, fast_mode=True)


GROUPED = {
    "plain": (2, lambda mask: {}),
    "one head": (1, lambda mask: {}),
    "causal": (2, lambda mask: {"is_causal": True}),
    "mask": (2, lambda mask: {"attn_mask": mask > 0}),
    "bias": (2, lambda mask: {"attn_mask": mask, "scale": 0.3}),
}


@pytest.mark.parametrize("case", slow_but(GROUPED, "bias"))
def test_grouped_query_attention(case):
    heads, options = GROUPED[case]
    q, mask = torch.randn(2, 6, 5, 8, requires_grad=True), torch.randn(2, 6, 5, 7)
    mask[..., 0] = 1
    k = torch.randn(2, heads, 7, 8, requires_grad=True)
    v = torch.randn(2, heads, 7, 3, requires_grad=True)

    def work(q, k, v):
        chosen = options(mask.to(q.device))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **chosen)

    check_gradients(work, q, k, v)
    [operators], _ = counted(lambda: work(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE)), "ops_row")
    assert operators == 1 or case == "mask"  # which PyTorch makes numbers of


@pytest.mark.parametrize("heads", [4, 3])
def test_heads_that_the_key_s_do_not_divide(heads):
    for device in ("cpu", DEVICE):
        q, k = torch.randn(1, heads, 2, 4, device=device), torch.randn(1, 2, 2, 4, device=device)
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(q, k, k, enable_gqa=heads == 3)


@pytest.mark.parametrize("shape", slow_but([(2, 1), (1, 4), (1, 1)], (2, 1)))
def test_attention_broadcasts(shape):
    q = torch.randn(2, 4, 5, 8, requires_grad=True)
    k, v = (torch.randn(*shape, 6, 8, requires_grad=True) for _ in range(2))
    check_gradients(F.scaled_dot_product_attention, q, k, v)
    check_gradients(F.scaled_dot_product_attention, k, q, q)


def test_packed_sequences():
    lengths = torch.tensor([3, 2])
    results = []
    torch.manual_seed(0)
    lstm, x = nn.LSTM(4, 5, batch_first=True), torch.randn(2, 3, 4)
    for device in ("cpu", DEVICE):
        packed = nn.utils.rnn.pack_padded_sequence(x.to(device), lengths, batch_first=True)
        out, _ = copy.deepcopy(lstm).to(device)(packed)
        results.append(nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0].detach())
    same(results[1], results[0], rtol=1e-3, atol=1e-4)


def test_initializers_run_on_the_device():
    for init in (nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.orthogonal_):
        w = init(torch.empty(8, 4, device=DEVICE))
        assert torch.isfinite(w).all() and 0.05 < w.std().item() < 1.5
    w = nn.init.trunc_normal_(torch.empty(64, 64, device=DEVICE), std=0.02)
    assert w.abs().max().item() <= 2 and abs(w.std().item() - 0.02) < 0.002


def test_spectral_and_weight_norm():
    torch.manual_seed(0)
    compare_module(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), torch.randn(2, 4))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_convolutions_keep_channels_last(dims, transposed):
    make = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    module, x = make(4, 6, 3, stride=2, padding=1), torch.randn(2, 4, *[7] * dims)
    last = torch.channels_last if dims == 2 else torch.channels_last_3d
    for image, weight in ((last, None), (None, last), (None, None)):
        host = module.to(memory_format=weight or torch.contiguous_format)
        given = x.contiguous(memory_format=image or torch.contiguous_format)
        expected = host(given)
        actual = copy.deepcopy(host).to(DEVICE)(given.to(DEVICE))
        same(actual, expected)
        assert actual.stride() == expected.stride()


@only_tpu
def test_the_parts_of_synchronized_normalization_keep_the_layout():
    x = torch.randn(2, 3, 4, 5).to(DEVICE, memory_format=torch.channels_last)
    mean, scale = torch.batch_norm_stats(x, 1e-5)
    y = torch.batch_norm_elemt(x, None, None, mean, scale, 1e-5)
    assert y.stride() == x.stride()
    same(y, F.batch_norm(x, None, None, training=True))
    sums = torch.batch_norm_backward_reduce(x, x, mean, scale, None, True, False, False)[:2]
    counts = torch.tensor([[10], [30]], dtype=torch.int32, device=DEVICE)
    args = (x, x, mean, scale, None, *sums)
    gradient = torch.batch_norm_backward_elemt(*args, counts)
    assert gradient.stride() == x.stride()
    same(gradient, torch.batch_norm_backward_elemt(*args, counts.flatten()))


# -- Numbers of classes --


def test_classes_in_bytes():
    scores = torch.randn(3, 4, requires_grad=True)
    classes = torch.tensor([0, 3, 1], dtype=torch.uint8)
    check_gradients(lambda x, t: F.cross_entropy(x, t), scores, classes)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_classes_of_pixels_are_int64(dtype):
    scores, classes = torch.randn(3, 4, 2, 2), torch.zeros(3, 2, 2, dtype=dtype)
    raises_alike(F.nll_loss, scores, classes)
    if dtype == torch.int32:
        raises_alike(F.nll_loss, scores[..., 0, 0], classes[..., 0, 0])


def test_ctc_of_nothing():
    nothing = torch.tensor([], dtype=torch.long)
    raises_alike(F.ctc_loss, torch.rand(0, 0, 4), nothing, nothing, nothing)
