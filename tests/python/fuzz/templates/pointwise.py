"""Tensors out of nothing, and operators on each element."""

import torch

from ..pool import FLOATS, LOOSE, Skip
from .step import (
    has_dims,
    is_arithmetic,
    is_bool,
    is_float,
    is_int,
    is_number,
    is_signed,
    like,
    name_of,
    new,
    nonempty,
    template,
)

# -- Making tensors --


@template(3)
def make(pool):
    shape, dtype = pool.choice(pool.palette.shapes), pool.choice(pool.palette.dtypes)
    return new(pool, f"data({pool.rng.randrange(100)}, {shape}, {dtype})")


@template()
def make_filled(pool):
    shape, dtype = pool.choice(pool.palette.shapes), pool.choice(pool.palette.dtypes)
    form = pool.pick("filled", "torch.zeros({0}, dtype={1}, device=device)",
                     "torch.ones({0}, dtype={1}, device=device)",
                     "torch.full({0}, 2, dtype={1}, device=device)",
                     "torch.empty({0}, dtype={1}, device=device).fill_(1)")  # fmt: skip
    return new(pool, form.format(shape, dtype))


@template()
def make_range(pool):
    form = pool.pick("range", "torch.arange(6, device=device)", "torch.eye(3, device=device)",
                     "torch.arange(4.0, device=device)", "torch.arange(8, -4, -3, device=device)",
                     "torch.tensor([2, 0, 1], device=device)", "torch.tensor(3.0, device=device)",
                     "torch.linspace(0, 4, 5, device=device)")  # fmt: skip
    return new(pool, form)


@template()
def make_special(pool):
    values = pool.pick(
        "special", "[nan, 1.0, -inf]", "[-0.0, 0.0, inf, -1.0]", "[2.0, nan, 2.0, inf]"
    )
    return new(pool, f"torch.tensor({values}, device=device)")


@template()
def make_like(pool):
    a = pool.tensor()
    form = pool.pick("like", "torch.zeros_like({0})", "torch.ones_like({0})",
                     "torch.full_like({0}, 1)", "{0}.new_zeros(2, 3)", "{0}.new_ones({0}.shape)",
                     "torch.zeros_like({0}, dtype=torch.float32)")  # fmt: skip
    return new(pool, form.format(a))


# -- Pointwise --


@template(3)
def unary(pool):
    a = pool.tensor(is_arithmetic)
    form = pool.pick("unary", "{}.neg()", "-{}", "{}.square()", "{} * {}", "torch.positive({})")
    return new(pool, form.format(a, a))


@template(2)
def unary_ordered(pool):
    a = pool.tensor(is_signed)
    form = pool.pick("ordered", "{}.abs()", "{}.sign()", "{}.relu()", "{}.clamp(-2, 3)",
                     "{}.floor()", "{}.clamp_min(0)", "{}.round()", "{}.trunc()", "{}.sgn()",
                     "torch.nn.functional.hardtanh({})", "torch.threshold({}, 1, -2)")  # fmt: skip
    return new(pool, form.format(a))


@template(4)
def binary(pool):
    a = pool.tensor(is_arithmetic)
    b = pool.partner(a, is_arithmetic)
    form = pool.pick("binary", "{} + {}", "{} - {}", "{} * {}", "torch.add({}, {}, alpha=2)",
                     "torch.sub({}, {}, alpha=-1)", "torch.rsub({}, {})")  # fmt: skip
    return new(pool, form.format(a, b))


@template(2)
def binary_ordered(pool):
    a = pool.tensor(is_number)
    b = pool.partner(a, is_number)
    form = pool.pick("order", "torch.maximum({}, {})", "torch.minimum({}, {})", "{} < {}",
                     "{} == {}", "{} >= {}", "torch.fmax({}, {})", "torch.ne({}, {})",
                     "torch.lt({}, {})")  # fmt: skip
    return new(pool, form.format(a, b))


@template(3)
def with_number(pool):
    a = pool.tensor(is_arithmetic)
    form = pool.pick("number", "{} + {}", "{} * {}", "{} - {}", "{1} - {0}", "torch.add({}, {})",
                     "{1} * {0}")  # fmt: skip
    return new(pool, form.format(a, pool.number(a)))


@template()
def division(pool):
    a = pool.tensor(is_number)
    form = pool.pick("division", "{} // 2", "{} % 3", "torch.fmod({}, 3)",
                     "torch.remainder({}, -2)",
                     "torch.div({}, 3, rounding_mode='trunc')", "5 % ({}.abs() + 1)")  # fmt: skip
    return new(pool, form.format(a))


@template()
def bits(pool):
    a = pool.tensor(lambda t: is_bool(t) or is_int(t))
    if pool.chance(0.4):
        return new(pool, f"~{a}")
    b = pool.partner(a, lambda t: is_bool(t) or is_int(t))
    return new(pool, pool.pick("bits", "{} & {}", "{} | {}", "{} ^ {}").format(a, b))


@template()
def logic(pool):
    a = pool.tensor()
    b = pool.partner(a)
    form = pool.pick("logic", "torch.logical_and({}, {})", "torch.logical_or({}, {})",
                     "torch.logical_xor({}, {})", "torch.logical_not({})", "{} == {}",
                     "torch.isfinite({})")  # fmt: skip
    return new(pool, form.format(a, b))


@template(2)
def where(pool):
    a = pool.tensor(mark=LOOSE)
    mask = pool.partner(a, is_bool)
    if pool.chance(0.4):
        return new(pool, f"torch.where({mask}, {a}, {pool.number(a)})")
    b = pool.partner(a, like(pool[a]), mark=LOOSE)
    pool.partner(b, lambda t: t is pool[mask])
    return new(pool, f"torch.where({mask}, {a}, {b})")


@template()
def ternary(pool):
    a = pool.tensor(lambda t: t.dtype in FLOATS[:2])
    b, c = pool.partner(a, like(pool[a])), pool.partner(a, like(pool[a]))
    form = pool.pick("ternary", "torch.addcmul({}, {}, {}, value=2)", "torch.lerp({}, {}, 2)",
                     "torch.clamp({}, {}, {})", "torch.addcmul({}, {}, {})")  # fmt: skip
    return new(pool, form.format(a, b, c))


@template(2)
def convert(pool):
    a = pool.tensor(lambda t: not t.is_complex())
    dtype = pool.pick("dtype", *pool.palette.dtypes, torch.int64, torch.float32, torch.int32)
    if not is_signed(torch.empty(0, dtype=dtype)) and not is_bool(pool[a]):
        raise Skip  # negative numbers as unsigned ones are not defined
    form = pool.pick("convert", "{}.to({})", "{}.type({})", "{}.to({}, copy=True)")
    return new(pool, form.format(a, name_of(dtype)))


@template()
def to_bool(pool):
    return new(pool, f"{pool.tensor()}.bool()")


@template()
def promotion(pool):
    a = pool.tensor()
    form = pool.pick("promotion", "{} * 2.0", "{} + 1", "{} * True", "{} + torch.tensor(2)",
                     "{} * 2j",
                     "{} + torch.tensor(2.0, device=device)", "torch.tensor(1.5) * {}", "{} - 0.5",
                     "torch.tensor(3, dtype=torch.float64) * {}", "1.0 - {}",
                     "{} * torch.ones(())")  # fmt: skip
    if is_bool(pool[a]) and "-" in form:
        raise Skip
    return new(pool, form.format(a))


@template()
def power(pool):
    a = pool.tensor(is_signed)
    return new(pool, pool.pick("power", "{} ** 2", "{}.pow(3)", "{} ** 1", "{} ** 0").format(a))


@template()
def shift(pool):
    a = pool.tensor(is_int, nonempty)
    return new(pool, pool.pick("shift", "{} << 1", "{} >> 1", "{} << 2").format(a))


# -- Rounded, and continuous so that a small error stays one --


@template()
def smooth(pool):
    a = pool.tensor(is_float, mark=LOOSE)
    form = pool.pick("smooth", "{}.tanh()", "{}.sigmoid()", "{}.sin()", "{} / 3", "{}.abs().sqrt()",
                     "{}.clamp(-5, 5).exp()", "{}.abs().log1p()", "{}.atan()",
                     "torch.nn.functional.gelu({})", "torch.nn.functional.softplus({})",
                     "torch.nn.functional.silu({})", "1 / ({}.square() + 1)")  # fmt: skip
    return new(pool, form.format(a), mark=LOOSE)


@template()
def smooth_reduce(pool):
    a = pool.tensor(lambda t: t.dtype in FLOATS[:2], has_dims, nonempty, mark=LOOSE)
    form = pool.pick("smooth reduce", "{}.mean()", "{}.softmax(-1)", "{}.mean({})", "{}.var()",
                     "torch.logsumexp({}, {})", "{}.norm()", "{}.log_softmax({})",
                     "torch.nn.functional.layer_norm({}, {}.shape[-1:])")  # fmt: skip
    if "layer" in form:
        return new(pool, form.format(a, a), mark=LOOSE)
    if "var" in form and pool[a].numel() < 2:
        raise Skip
    return new(pool, form.format(a, pool.dim(a)), mark=LOOSE)


@template()
def smooth_arithmetic(pool):
    a = pool.tensor(is_float, mark=LOOSE)
    b = pool.partner(a, is_float, mark=LOOSE)
    form = pool.pick("smooth binary", "{} + {}", "{} * {}", "{} - {}", "{} / ({}.abs() + 1)",
                     "torch.maximum({}, {})")  # fmt: skip
    return new(pool, form.format(a, b), mark=LOOSE)
