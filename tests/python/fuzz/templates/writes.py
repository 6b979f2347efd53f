"""Writing through all kinds of windows."""

import torch

from ..pool import LOOSE, RAW, Skip
from .step import (
    Step,
    has_dims,
    is_arithmetic,
    is_bool,
    is_number,
    is_signed,
    like,
    nonempty,
    template,
)

# -- Writing --


@template(4)
def write_number(pool):
    a = pool.tensor(is_arithmetic)
    form = pool.pick("write number", "{}.add_({})", "{}.mul_({})", "{}.sub_({})", "{} += {}")
    return Step(form.format(a, pool.number(a)), writes=(a,))


@template(3)
def write_constant(pool):
    a = pool.tensor(mark=RAW)
    form = pool.pick("write constant", "{}.fill_({})", "{}.zero_()", "{}[...] = {}", "{}.fill_({})")
    return Step(form.format(a, pool.number(a)), writes=(a,), overlap=True)


@template(3)
def write_binary(pool):
    a = pool.tensor(is_arithmetic)
    b = pool.partner(a, is_arithmetic)
    form = pool.pick(
        "write binary", "{}.add_({})", "{}.mul_({})", "{}.sub_({}, alpha=2)", "{} -= {}"
    )
    return Step(form.format(a, b), writes=(a,))


@template(3)
def write_copy(pool):
    a = pool.tensor(lambda t: not t.is_complex(), mark=RAW)
    b = pool.partner(a, lambda t: not t.is_complex(), like(pool[a]), mark=RAW)
    return Step(pool.pick("write copy", "{}.copy_({})", "{}[...] = {}").format(a, b), writes=(a,))


@template()
def write_converted(pool):
    a = pool.tensor(is_signed)
    b = pool.partner(a, is_number)
    return Step(f"{a}.copy_({b})", writes=(a,))


@template(2)
def write_unary(pool):
    a = pool.tensor(is_signed)
    form = pool.pick("write unary", "{}.neg_()", "{}.abs_()", "{}.clamp_(-3, 2)", "{}.relu_()",
                     "{}.square_()", "{}.clamp_(min=0)", "{}.sign_()",
                     "{}.remainder_(4)")  # fmt: skip
    return Step(form.format(a), writes=(a,))


@template(2)
def write_masked(pool):
    a = pool.tensor(mark=LOOSE)
    mask = pool.partner(a, is_bool)
    if pool.chance(0.6):
        return Step(f"{a}.masked_fill_({mask}, {pool.number(a)})", writes=(a,))
    if pool[mask].shape != pool[a].shape[: pool[mask].dim()]:
        raise Skip
    return Step(f"{a}[{mask}] = {pool.number(a)}", writes=(a,))


@template(2)
def write_part(pool):
    a = pool.tensor(has_dims, nonempty, mark=LOOSE)
    form = pool.pick("write part", "{}[0] = {}", "{}[..., 1:] += {}", "{}[..., ::2] = {}",
                     "{}[-1].fill_({})", "{}[1:].mul_({})", "{}.view(-1)[::2] = {}",
                     "{}.t().add_({})", "{}.diagonal().fill_({})",
                     "{}.select(0, 0).add_({})")  # fmt: skip
    if is_bool(pool[a]) and ("mul" in form or "add" in form or "+=" in form):
        raise Skip
    return Step(form.format(a, pool.number(a)), writes=(a,))


@template()
def write_row(pool):
    a = pool.tensor(has_dims, nonempty, mark=LOOSE)
    b = pool.tensor(lambda t: t.shape == pool[a].shape[1:], like(pool[a]), mark=LOOSE)
    return Step(pool.pick("write row", "{}[0] = {}", "{}[-1].copy_({})").format(a, b), writes=(a,))


@template()
def write_triangle(pool):
    a = pool.tensor(lambda t: t.dim() > 1)
    return Step(f"{a}.{pool.pick('triangle', 'tril_()', 'triu_(1)', 'tril_(-1)')}", writes=(a,))


@template()
def write_shape(pool):
    """In-place changes of the tensor's own sizes and strides."""
    a = pool.tensor(mark=RAW)
    form = pool.pick("write shape", "{}.unsqueeze_(0)", "{}.squeeze_()", "{}.t_()",
                     "{}.transpose_(0, -1)",
                     "{}.swapdims_(0, 1)", "{}.detach_()")  # fmt: skip
    return Step(form.format(a))


@template()
def write_resize(pool):
    a = pool.tensor(mark=RAW)
    shape = pool.choice(pool.palette.shapes)
    # What lies beyond the old storage is not defined: it is written before anybody looks.
    grown = pool.fresh()
    text = f"{grown} = {a}.clone().resize_({shape}); {grown}.fill_({pool.number(a)})"
    if torch.Size(shape).numel() <= pool[a].numel():
        text = f"{a}.resize_({shape})"
        if not pool[a].is_contiguous():
            raise Skip
    return Step(text, writes=())


@template()
def write_set(pool):
    a = pool.tensor(mark=RAW)
    b = pool.tensor(like(pool[a]), mark=RAW)
    form = pool.pick("set", "{}.data = {}", "{}.set_({})",
                     "{0}.set_({1}.untyped_storage(), 0, (2,), (1,))",
                     "{0}.set_({1}.untyped_storage())")  # fmt: skip
    if "(2,)" in form and pool[b].untyped_storage().nbytes() < 2 * pool[b].itemsize:
        raise Skip
    return Step(form.format(a, b))


@template()
def write_out(pool):
    a = pool.tensor(is_arithmetic)
    b = pool.partner(a, like(pool[a]))
    c = pool.tensor(like(pool[a]))
    if pool[c].numel() and pool[c].shape != torch.broadcast_shapes(pool[a].shape, pool[b].shape):
        raise Skip
    form = pool.pick(
        "out", "torch.add({}, {}, out={})", "torch.mul({}, {}, out={})", "torch.sub({}, {}, out={})"
    )
    return Step(form.format(a, b, c), writes=(c,))
