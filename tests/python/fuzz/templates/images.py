"""Batches of images, in memory by planes or with channels last, and what models do with them."""

import torch

from ..pool import EXACT, LARGEST, LOOSE, RAW
from .step import Step, is_number, name_of, new, nonempty, rank, template

LAYOUTS = (
    "{}",
    "{}.to(memory_format=torch.channels_last)",
    "{}.transpose(1, 3)",
    "{}.permute(0, 3, 1, 2)",
)
SIZES = ((2, 3, 4, 4), (1, 4, 3, 5), (2, 2, 1, 6), (3, 1, 4, 3), (2, 4, 2, 2))


def is_image(t):
    return t.dim() == 4 and t.dtype == torch.float32 and t.numel() > 0


@template(2)
def image(pool):
    data = f"data({pool.rng.randrange(100)}, {pool.choice(SIZES)}, {name_of(torch.float32)})"
    return new(pool, pool.choice(LAYOUTS).format(data))


@template(2)
def lay_image(pool):
    a = pool.tensor(rank(4), mark=RAW)
    form = pool.pick("lay", "{}.contiguous(memory_format=torch.channels_last)",
                     "{}.to(memory_format=torch.channels_last)", "{}.contiguous()",
                     "{}.clone()", "{}.clone(memory_format=torch.channels_last)",
                     "torch.empty_like({0}).copy_({0})",
                     "{}.to(torch.float64, memory_format=torch.channels_last)",
                     "torch.zeros_like({0}, memory_format=torch.channels_last) + {0}",
                     "{0}.new_zeros({0}.shape).copy_({0})")  # fmt: skip
    return new(pool, form.format(a))


@template(2)
def view_image(pool):
    a = pool.tensor(rank(4), mark=RAW)
    form = pool.pick("view image", "{}.permute(0, 2, 3, 1)", "{}.permute(0, 3, 1, 2)",
                     "{}.flatten(1)", "{}.flatten(2)", "{}.flatten(2).transpose(1, 2)",
                     "{0}.permute(0, 2, 3, 1).reshape(-1, {0}.shape[1])",
                     "{}.unflatten(1, (-1, 1))", "{}[:, :, ::2, 1:]", "{}.mT",
                     "{}.permute(0, 2, 3, 1).flatten(0, 2)")  # fmt: skip
    return new(pool, form.format(a))


def weight(pool, layout, *sizes):
    data = f"data({pool.rng.randrange(100)}, {sizes}, torch.float32).clamp(-1, 1)"
    return layout.format(data)


@template(3)
def convolve(pool):
    a = pool.tensor(is_image)
    channels, made = pool[a].shape[1], pool.rng.choice((1, 2, 4))
    high, wide = pool.rng.choice(((1, 1), (3, 3), (2, 1), (1, 3)))
    layout = pool.choice(LAYOUTS[:2])
    whole = weight(pool, layout, made, channels, high, wide)
    each = weight(pool, layout, channels, 1, high, wide)
    turned = weight(pool, layout, channels, made, high, wide)
    forms = {
        "padded": f"conv2d({a}, {whole}, padding=1)",
        "strided": f"conv2d({a}, {whole}, stride=2, padding={high // 2, wide // 2})",
        "dilated": f"conv2d({a}, {whole}, padding=2, dilation=2)",
        "depthwise": f"conv2d({a}, {each}, groups={channels}, padding='same')",
        "transposed": f"conv_transpose2d({a}, {turned}, stride=2)",
        "line": f"conv1d({a}[:, :, 0], {whole}[:, :, 0])",
    }
    return new(pool, f"torch.nn.functional.{forms[pool.pick('convolve', *forms)]}", mark=LOOSE)


@template(2)
def resample(pool):
    a = pool.tensor(is_image, lambda t: t.numel() <= LARGEST // 2, mark=LOOSE)
    form = pool.pick("resample", "max_pool2d({}, 2, ceil_mode=True)", "max_pool2d({}, 3, 1, 1)",
                     "avg_pool2d({}, 2, padding=1)", "adaptive_avg_pool2d({}, (2, 1))",
                     "adaptive_max_pool2d({}, 2)", "interpolate({}, scale_factor=2)",
                     "interpolate({}, size=(3, 5), mode='bilinear')",
                     "pad({}, (1, 0, 0, 1), mode='reflect')",
                     "pad({}, (1, 1, 2, 0), mode='replicate')",
                     "pad({}, (0, 1), mode='circular')", "pad({}, (1, -1, 0, 2), value=1.0)",
                     "unfold({}, (2, 2), padding=1)")  # fmt: skip
    return new(pool, f"torch.nn.functional.{form.format(a)}", mark=LOOSE)


@template()
def shuffle(pool):
    a = pool.tensor(rank(4), is_number, nonempty)
    form = pool.pick("shuffle", "pixel_shuffle({}, 2)", "pixel_unshuffle({}, 2)",
                     "channel_shuffle({}, 2)")  # fmt: skip
    return new(pool, f"torch.nn.functional.{form.format(a)}", mark=EXACT)


@template(2)
def normalize(pool):
    a = pool.tensor(is_image, mark=LOOSE)
    form = pool.pick("normalize",
                     "batch_norm({a}, torch.zeros({c}, device=device), "
                     "torch.ones({c}, device=device))",
                     "batch_norm({a}, None, None, training=True)", "group_norm({a}, 1)",
                     "instance_norm({a})", "layer_norm({a}, {a}.shape[1:])",
                     "layer_norm({a}.permute(0, 2, 3, 1), {a}.shape[1:2])", "softmax({a}, 1)",
                     "glu({a}, 1)", "normalize({a}, dim=1)", "logsigmoid({a})")  # fmt: skip
    return new(pool, f"torch.nn.functional.{form.format(a=a, c=pool[a].shape[1])}", mark=LOOSE)


@template(2)
def image_gradient(pool):
    a = pool.tensor(is_image)
    kernel = weight(pool, pool.choice(LAYOUTS[:2]), 2, pool[a].shape[1], 2, 2)
    form = pool.pick(
        "image gradient",
        "torch.nn.functional.conv2d(x, w, padding=1)",
        "torch.nn.functional.conv2d(x, w, padding=1).relu().flatten(1)",
        "torch.nn.functional.max_pool2d(torch.nn.functional.conv2d(x, w, padding=1), 2)",
        "torch.nn.functional.conv2d(x, w, padding=1).permute(0, 2, 3, 1)",
        "torch.nn.functional.avg_pool2d(x, 2) * w.sum()",
        "torch.nn.functional.batch_norm(x, None, None, training=True) * w.sum()",
        "torch.nn.functional.interpolate(x, scale_factor=2).flatten(2) * w.sum()",
    )
    lines = (
        f"x = {a}.detach().clone().requires_grad_()",
        f"w = {kernel}.requires_grad_()",
        f"y = {form}",
        "{0}, {1} = torch.autograd.grad((y * y).sum(), [x, w])",
    )
    return Step("; ".join(lines).format(pool.fresh(), pool.fresh()), mark=LOOSE)
