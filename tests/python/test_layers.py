"""Fused layers and their rarer parts, against the CPU, none of them on the host."""

import pytest
import torch
from support import DEVICE, check, check_gradients, modes, move, only_tpu, raises_alike, same
from torch import nn

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]
aten = torch.ops.aten
PADDING = torch.tensor([[False, False, False, True, True], [False] * 5])
CAUSAL = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
MASKS = [
    {},
    {"src_key_padding_mask": PADDING},
    {"src_mask": CAUSAL},
    {"src_mask": CAUSAL, "src_key_padding_mask": PADDING},
]


@pytest.fixture(params=[mode for mode in modes() if mode != "debug"])
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


def alike(module, *args, **kwargs):
    """Runs a module for inference on the CPU, then moved to the device."""
    module.eval()
    with torch.no_grad():
        expected = module(*args, **kwargs)
        moved_args, moved = move((args, kwargs))
        same(module.to(DEVICE)(*moved_args, **moved), expected)


@pytest.mark.diagonal
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layers(mode, norm_first, masks):
    for activation in ("relu", "gelu"):
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, batch_first=True, norm_first=norm_first, activation=activation
        )
        alike(layer, torch.randn(2, 5, 8), **masks)


def test_attention(mode):
    x = torch.randn(2, 5, 8)
    for more in (
        {},
        {"key_padding_mask": PADDING},
        {"attn_mask": CAUSAL},
        {"need_weights": False},
        {"average_attn_weights": False},
    ):
        alike(nn.MultiheadAttention(8, 2, batch_first=True), x, x, x, **more)


@pytest.mark.filterwarnings("ignore:.*nested tensors.*")
def test_padded_encoders_keep_the_mask():
    """The CPU gives zeros where the mask hides, as its nested tensors have no elements there."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=PADDING)
        actual = encoder.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=PADDING.to(DEVICE))
    same(actual.cpu()[~PADDING], expected[~PADDING])


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int16, torch.int64, torch.complex64], ids=str
)
def test_convolutions_of_numbers_that_are_not_real(dtype):
    x = torch.randint(0, 9, (2, 3, 6, 6)).to(dtype)
    weight, bias = torch.randint(0, 9, (3, 3, 3, 3)).to(dtype), torch.randint(0, 9, (3,)).to(dtype)

    def work(x, weight, bias):
        return nn.functional.conv2d(x, weight, bias, stride=2, padding=1)

    if dtype == torch.bool:
        raises_alike(work, x, weight, bias)
    else:
        check(work, x, weight, bias)


def test_convolutions_by_other_names():
    x, weight, bias = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4)
    grad, turned = torch.randn(2, 4, 6, 6), torch.randn(3, 4, 3, 3)
    check(aten._slow_conv2d_forward, x, weight, [3, 3], bias, [2, 2], [1, 1])
    check(aten._slow_conv2d_backward, grad, x, weight, [3, 3], [1, 1], [0, 0], [True] * 3)
    check(aten.slow_conv_dilated2d, x, weight, [3, 3], bias, [1, 1], [1, 1], [2, 2])
    pairs = [[2, 2], [1, 1], [1, 1], [1, 1]]
    check(aten.slow_conv_transpose2d, x, turned, [3, 3], bias, *pairs)


def test_fused_steps(mode):
    x = torch.randn(3, 4)
    check(lambda a: aten._add_relu(a, a, alpha=2), x)
    check(aten._aminmax, x)
    check(lambda a: aten._aminmax(a, 1, True), x)
    grad, dgrad, dx = torch.randn(3, 2), torch.randn(3, 2), torch.randn(3, 4)
    check(aten.glu_backward_jvp, aten.glu_backward(grad, x, 1), grad, x, dgrad, dx, 1)
    wide = torch.randn(3, 32).bfloat16()
    numbers, scales = torch.randint(-9, 9, (5, 32)).to(torch.int8), torch.rand(5).bfloat16()
    check(aten._weight_int8pack_mm, wide, numbers, scales)


def test_statistics_are_joined(mode):
    x, norm = torch.randn(6, 3, 4), nn.BatchNorm1d(3)
    norm(x)
    want_mean, want_scale = x.mean((0, 2)), (x.var((0, 2), correction=0) + 1e-5).rsqrt()
    for parts, counts in (([2, 4], [8.0, 16.0]), ([3, 3], None)):
        found = [aten.batch_norm_stats(part.to(DEVICE), 1e-5) for part in x.split(parts)]
        means, scales = (torch.stack(one) for one in zip(*found, strict=True))
        running = torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE)
        args = (x.to(DEVICE), means, scales, *running, 0.1, 1e-5)
        if counts is None:
            got = aten.batch_norm_gather_stats(*args, 12)
        else:
            counts = torch.tensor(counts, device=DEVICE)
            got = aten.batch_norm_gather_stats_with_counts(*args, counts)
        same(got, (want_mean, want_scale))
        same(running, (norm.running_mean, norm.running_var))


def test_running_statistics():
    x = torch.randn(4, 3, 2)
    check(aten.batch_norm_update_stats, x, torch.zeros(3), torch.ones(3), 0.1)


def test_lstm_without_biases(mode):
    for more in ({}, {"proj_size": 2}, {"bidirectional": True}):
        alike(nn.LSTM(4, 5, bias=False, **more), torch.randn(3, 2, 4))


def test_gradients_of_an_lstm_without_biases():
    lstm = nn.LSTM(4, 5, bias=False)

    def work(x, *weights):
        named = dict(zip(dict(lstm.named_parameters()), weights, strict=True))
        return torch.func.functional_call(lstm, named, (x,))

    check_gradients(work, torch.randn(3, 2, 4, requires_grad=True), *lstm.parameters())


def test_places_of_fractional_pooling_for_a_lone_image():
    def work(x, places):
        return nn.functional.fractional_max_pool3d(x, 2, 3, _random_samples=places)

    check(work, torch.randn(4, 5, 5, 5), torch.rand(2, 4, 3))


def test_multilabel_loss_of_a_lone_sample():
    for reduction in ("none", "mean"):
        check(
            lambda x, y, how=reduction: nn.functional.multilabel_margin_loss(x, y, reduction=how),
            torch.randn(4),
            torch.tensor([2, 0, -1, 1]),
        )


EACH_CHANNEL = {  # weight, input, and arguments, of which `groups` are the input's channels
    "conv1d": ((6, 1, 4), (2, 3, 9), {"stride": 2, "padding": 3}),
    "conv2d": ((5, 1, 3, 2), (2, 5, 6, 7), {"stride": (2, 1), "padding": (1, 0), "dilation": 2}),
    "conv3d": ((4, 1, 2, 3, 1), (1, 2, 4, 4, 3), {"stride": (3, 2, 1)}),
    "conv_transpose1d": ((4, 3, 4), (2, 4, 5), {"stride": 3, "padding": 1, "output_padding": 2}),
    "conv_transpose2d": ((3, 1, 2, 3), (1, 3, 4, 4), {"padding": (1, 3), "dilation": (2, 1)}),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("name", EACH_CHANNEL)
def test_convolutions_of_each_channel(name, dtype):
    weight, image, arguments = EACH_CHANNEL[name]
    x, w = (torch.randn(size, dtype=dtype, requires_grad=True) for size in (image, weight))

    def convolve(x, w):
        y = getattr(torch.nn.functional, name)(x, w, groups=image[1], **arguments)
        return torch.view_as_real(y) if y.is_complex() else y

    check_gradients(convolve, x, w)


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("stride", [1, 2, (3, 1)])
@pytest.mark.parametrize("batch", [1, 3, 0])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_with_kernels_of_one_element(dtype, stride, batch, transposed):
    torch.manual_seed(0)
    x = torch.randn(batch, 4, 7, 6, dtype=dtype)
    weight = torch.randn(4, 4, 1, 1, dtype=dtype)
    bias = torch.randn(4, dtype=dtype)

    def run(device, dtype=dtype):
        leaves = [t.to(device, dtype).requires_grad_() for t in (x, weight, bias)]
        functional = torch.nn.functional
        function = functional.conv_transpose2d if transposed else functional.conv2d
        y = function(*leaves, stride=stride)
        loss = (y * y.conj()).real.sum()
        return [y, *torch.autograd.grad(loss, leaves)]

    if dtype == torch.bfloat16:  # processors differ in how they round on the way
        for got, host, exact in zip(run(DEVICE), run("cpu"), run("cpu", torch.double), strict=True):
            error = (got.cpu().double() - exact).norm()
            assert error <= 1.5 * (host.double() - exact).norm() + 1e-2 * exact.norm()
        return
    for got, expected in zip(run(DEVICE), run("cpu"), strict=True):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-5)
