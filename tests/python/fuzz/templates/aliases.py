"""Windows of every kind, changes of what a tensor is a window on, and functions that are mapped."""

import torch

from ..pool import FLOATS, LARGEST, LOOSE, RAW, Skip, overlaps
from .step import (
    Step,
    has_dims,
    is_arithmetic,
    is_number,
    is_signed,
    new,
    nonempty,
    rank,
    template,
)


def whole_storage(t):
    """The tensor is all of its storage, so that any window on that is one on the tensor."""
    return t.is_contiguous() and t.untyped_storage().nbytes() == t.nbytes


def plain(t):
    return not t.is_conj() and not t.is_neg()


# -- Windows --


@template(2)
def window_write(pool):
    """Writing through a window that is made on the way."""
    a = pool.tensor(has_dims, nonempty, is_arithmetic)
    form = pool.pick("window write", "{}.diagonal(0, 0, -1).add_({})",
                     "{}.unfold(0, 1, 1).mul_({})",
                     "{}.unfold(-1, 2, 2).sub_({})", "{}.unfold(0, 2, 3).add_({})",
                     "{}.movedim(0, -1)[..., 0].add_({})", "{}.flatten()[1::2].mul_({})",
                     "{}.unsqueeze(0).transpose(0, -1)[0].add_({})", "{}.swapaxes(0, -1).sub_({})",
                     "{}.chunk(2)[-1].mul_({})", "{}.split(1, -1)[0].add_({})",
                     "{}.unbind(-1)[-1].sub_({})", "{}.permute(*range({}.dim())).mul_({})",
                     "{}.squeeze().add_({})", "{}.narrow(0, 0, 1).squeeze(0).fill_({})",
                     "{}.tensor_split(2, -1)[0].zero_().add_({})")  # fmt: skip
    if pool[a].dim() < 2 and "diagonal" in form:
        raise Skip
    values = (a, pool.number(a)) if form.count("{}") == 2 else (a, a, pool.number(a))
    return Step(form.format(*values), writes=(a,))


@template(2)
def strided_write(pool):
    """Windows by strides: apart from each other when they are written to."""
    a = pool.tensor(whole_storage, is_arithmetic, lambda t: t.numel() >= 6)
    form = pool.pick("strided write", "{a}.as_strided((2, 2), (3, 1)).add_({n})",
                     "{a}.as_strided((3,), (2,), 1).mul_({n})",
                     "{a}.as_strided((2, 3), (1, 2)).sub_({n})",
                     "{a}.as_strided((2,), (4,), 1).fill_({n})",
                     "{a}.as_strided((2, 2), (1, 3), 1).copy_({a}.flatten()[:4].view(2, 2) + 1)",
                     "{a}.as_strided((), (), 5).zero_()",
                     "{a}.as_strided((2, 2), (2, 1), 1)[{i}] = {n}")  # fmt: skip
    places = "torch.tensor([1], device=device)"
    return Step(form.format(a=a, n=pool.number(a), i=places), writes=(a,))


@template()
def overlapping_read(pool):
    a = pool.tensor(whole_storage, lambda t: t.numel() >= 6, mark=RAW)
    form = pool.pick("overlapping", "{}.as_strided((3, 4), (1, 1))",
                     "{}.as_strided((2, 3), (2, 1))",
                     "{}.as_strided((2, 2, 2), (1, 1, 2))", "{}.as_strided((3, 2), (0, 3), 1)",
                     "{}.as_strided((2, 0, 2), (1, 1, 1))", "{}.flatten().unfold(0, 3, 1)",
                     "{}.flatten().unfold(0, 4, 2)[:, 1:]")  # fmt: skip
    return new(
        pool, form.format(a) + pool.pick("and then", "", ".clone()", ".t()" * ("2)" in form))
    )


@template()
def put_into(pool):
    """A copy of all, with a part of it replaced; the CPU keeps strides that Meta kernels do not."""
    a = pool.tensor(has_dims, nonempty, whole_storage, mark=LOOSE)
    form = pool.pick("put into", "{a}.select_scatter({a}[0].clone(), 0, -1)",
                     "{a}.slice_scatter({a}[:1].clone(), 0, {a}.shape[0] - 1)",
                     "{a}.diagonal_scatter({a}.diagonal().flip(-1))",
                     "{a}.as_strided_scatter({a}.flatten()[:2] * 2, (2,), (1,), 0)",
                     "{a}.slice_scatter({a}[::2].clone(), 0, 0, None, 2)",
                     "torch.unfold_copy({a}, 0, 1, 1)", "torch.diagonal_copy({a})",
                     "torch.as_strided_copy({a}, (2,), (1,))",
                     "torch.expand_copy({a}, (2, *{a}.shape))")  # fmt: skip
    odd = pool[a].dim() < 2 and "diagonal" in form
    if odd or (pool[a].dtype == torch.bool and "*" in form) or pool[a].numel() < 2:
        raise Skip
    return new(pool, form.format(a=a))


@template()
def negative_view(pool):
    a = pool.tensor(is_signed, plain)
    form = pool.pick("negative", "torch._neg_view({})", "torch._neg_view({})[..., :1]",
                     "torch._neg_view({}).resolve_neg()", "torch._neg_view({}) * 2",
                     "torch._neg_view({}).flatten()")  # fmt: skip
    return new(pool, form.format(a))


@template()
def negative_write(pool):
    a = pool.tensor(is_signed, plain)
    form = pool.pick("negative write", "torch._neg_view({}).add_({})",
                     "torch._neg_view({}).fill_({})",
                     "torch._neg_view({})[...] = {}", "torch._neg_view({}).mul_({})")  # fmt: skip
    return Step(form.format(a, pool.number(a)), writes=(a,))


@template(2)
def bits_write(pool):
    """Writing numbers of another dtype into the same bytes."""
    a = pool.tensor(plain, nonempty, whole_storage, has_dims, mark=RAW)
    if pool.mark(a) == LOOSE or pool[a].dtype == torch.bool:
        raise Skip
    dtype = pool.pick("bits written as", "torch.int32", "torch.uint8", "torch.int16", "torch.int64")
    form = pool.pick("bits write", "{}.view({}).fill_(3)", "{}.view({})[..., :1] = 5",
                     "{}.view({})[..., ::2].bitwise_xor_(1)", "{}.view({}).zero_()",
                     "{}.view({}).view(-1)[1:].bitwise_or_(2)",
                     "{}.view({}).copy_({}.clone().view({}))")  # fmt: skip
    return Step(form.format(a, dtype, a, dtype), writes=(a,), mark=RAW)


@template()
def complex_window(pool):
    a = pool.tensor(lambda t: t.is_complex(), nonempty)
    form = pool.pick("complex window", "torch.view_as_real({}.resolve_conj())[..., 0].add_(1)",
                     "{}.imag[..., :1].mul_(2)", "{}.real.copy_({}.imag)", "{}.mT.conj().add_(1j)",
                     "{}.conj()[:1].sub_(2)", "{}.resolve_conj().view(torch.float32).clamp_(-3, 3)",
                     "{}.conj().imag.neg_()", "{}.conj().real.zero_()",
                     "torch._neg_view({}).imag.add_(1)", "{}.conj().masked_fill_({}.real > 0, 1)",
                     "{}.conj().copy_({}.clone())")  # fmt: skip
    if pool[a].dim() < 1 or (pool[a].dim() < 2 and "mT" in form):
        raise Skip
    return Step(form.format(a, a), writes=(a,))


# -- What a tensor is a window on --


@template()
def change_window(pool):
    a = pool.tensor(whole_storage, lambda t: t.numel() >= 4, mark=RAW)
    form = pool.pick("change window", "{}.as_strided_((2,), (2,), 1)",
                     "{}.as_strided_((2, 2), (1, 1))",
                     "{}.unsqueeze_(-1)", "{}.squeeze_(0)", "{}.swapaxes_(0, -1)",
                     "{}.as_strided_((3,), (1,), 1)")  # fmt: skip
    return Step(form.format(a))


@template()
def change_storage(pool):
    """What was beyond the old end of a storage is not defined before it is written."""
    a = pool.tensor(whole_storage, plain, nonempty, mark=RAW)
    if pool.mark(a) == LOOSE:  # what is rounded is not compared bit by bit
        raise Skip
    form = pool.pick(
        "change storage",
        "{a}.untyped_storage().resize_(0); {a}.untyped_storage().resize_({b}); {a}.fill_({n})",
        "{a}.untyped_storage().resize_({b} * 2);"
        " {f} = {a}.new_empty(0).set_({a}.untyped_storage()); {f}[{e}:] = {n}",
        "{f} = {a}.new_empty(0).set_({a}.untyped_storage(), 0, ({e},), (1,)); {f}[:1] = {n}",
        "{f} = {a}.new_empty(0).set_({a}); {f}.fill_({n})",
        "{a}.untyped_storage().fill_(1)",
        "{f} = torch.zeros_like({a}); {f}.untyped_storage().copy_({a}.untyped_storage())",
        "{f} = {a}.flatten()[{h}:]; {f}.resize_({e}); {f}.fill_({n})",
    )
    t = pool[a]
    text = form.format(
        a=a, b=t.nbytes, e=t.numel(), h=t.numel() // 2, n=pool.number(a), f=pool.fresh()
    )
    return Step(text, writes=(a,), mark=RAW)


@template()
def swap(pool):
    """Two tensors change places; so do their names' meanings."""
    a, b = pool.tensor(mark=RAW), pool.tensor(mark=RAW)
    if a == b or pool[a]._is_view() or pool[b]._is_view():
        raise Skip
    form = pool.pick("swap", "torch.utils.swap_tensors({a}, {b})",
                     "{a}.data, {b}.data = {b}.data, {a}.data",
                     "{a}.data = {b}.data[:1]", "{a}.data = {a}.data.clone()")  # fmt: skip
    if "data" in form and pool[a].dtype != pool[b].dtype:
        raise Skip
    if "[:1]" in form and pool[b].dim() == 0:
        raise Skip
    return Step(form.format(a=a, b=b), mark=max(pool.mark(a), pool.mark(b)))


# -- Results that are written where the program says --


@template(2)
def out_window(pool):
    """Into a window of something larger, which must be neither resized nor touched elsewhere."""
    a = pool.tensor(is_number, rank(2), nonempty)
    if pool[a].numel() * 4 > LARGEST:
        raise Skip
    form = pool.pick("out window", "torch.neg({a}, out={o})", "torch.mul({a}, 2, out={o})",
                     "torch.cat([{a}[:1], {a}[1:]], out={o})", "torch.flip({a}, [0])",
                     "torch.index_select({a}, 0, torch.arange({r}, device=device), out={o})",
                     "torch.clamp({a}, -1, 2, out={o})", "torch.cumsum({a}, 1, dtype={t}, out={o})",
                     "torch.where({a} > 0, {a}, {a} * 2, out={o})",
                     "torch.stack(list({a}), out={o})", "torch.tril({a}, out={o})",
                     "torch.gather({a}, 0, torch.zeros_like({a}, dtype=torch.int64), out={o})",
                     "torch.maximum({a}, {a} * 2, out={o})",
                     "torch.sum({a}.unsqueeze(0), 0, dtype={t}, out={o})")  # fmt: skip
    window = pool.pick("window", "[1:-1, ::2]", "[1:-1, :{c}]", "[:-2, {c}:]", ".mT.mT[2:, 1::2]")
    if pool[a].dtype == torch.uint8:
        raise Skip
    rows, columns = pool[a].shape
    n = pool.fresh()
    text = f"{n} = torch.zeros({rows + 2}, {2 * columns}, dtype={pool[a].dtype}, device=device); "
    out = n + window.format(c=columns)
    return Step(text + form.format(a=a, o=out, r=rows, t=pool[a].dtype))


@template()
def out_of_products(pool):
    a = pool.tensor(lambda t: t.dtype in FLOATS[:2], rank(2))
    form = pool.pick("out product", "torch.mm({a}, {a}.t(), out={n}.t())",
                     "torch.addmm({n}.clone(), {a}, {a}.t(), out={n})",
                     "{n}.addmm_({a}, {a}.t(), beta=2)", "{n}[:].addmm_({a}, {a}.t())",
                     "torch.mm({a}, {a}.t(), out={n}.resize_(0))")  # fmt: skip
    n, rows = pool.fresh(), pool[a].shape[0]
    make = f"{n} = torch.ones({rows}, {rows}, dtype={pool[a].dtype}, device=device); "
    return Step(make + form.format(a=a, n=n))


# -- Many tensors at once, which may be windows on one --


@template(2)
def foreach_windows(pool):
    a = pool.tensor(
        is_signed, has_dims, lambda t: t.dtype in (torch.float32, torch.int64), nonempty
    )
    form = pool.pick("foreach windows", "torch._foreach_add_([{a}[:1], {a}[1:]], {n})",
                     "torch._foreach_mul_(list({a}), {n})",
                     "torch._foreach_add_([{a}, {a}[0]], {n})",
                     "torch._foreach_sub_(list({a}), list({a}.clone()))",
                     "torch._foreach_copy_([{a}[0], {a}[-1]], [{a}[-1] + 1, {a}[0] * 2])",
                     "torch._foreach_neg_([{a}[..., :1], {a}[..., 1:]])",
                     "torch._foreach_maximum_(list({a}), 0)",
                     "torch._foreach_zero_([{a}[:1], {a}])",
                     "torch._foreach_clamp_max_([{a}[-1], {a}], {n})",
                     "torch._foreach_addcmul_([{a}[0]], [{a}[0] * 1], [{a}[-1] * 1])",
                     "torch._foreach_lerp_([{a}[0]], [{a}[-1].clone()], 2.0)")  # fmt: skip
    if "lerp" in form and pool[a].dtype not in FLOATS:
        raise Skip
    return Step(form.format(a=a, n=pool.number(a)), writes=(a,), overlap=not overlaps(pool[a]))


# -- Functions of rows, mapped --


@template(2)
def mapped(pool):
    a = pool.tensor(is_signed, lambda t: t.dim() > 1, lambda t: t.shape[0] > 0, nonempty)
    form = pool.pick("mapped", "lambda x: x * 2 + x.sum()", "lambda x: x.clone().add_(1)",
                     "lambda x: x.flatten()[1:].clone().zero_()", "lambda x: x.flip(0)",
                     "lambda x: torch.where(x > 0, x, -x)", "lambda x: x.sort(0, stable=True)[0]",
                     "lambda x: x.unsqueeze(0).expand(2, *x.shape)", "lambda x: x.cumsum(0)",
                     "lambda x: x.flatten()[torch.zeros(2, dtype=torch.int64, device=device)]",
                     "lambda x: torch.zeros_like(x).copy_(x)", "lambda x: x.reshape(-1).amax(0)",
                     "lambda x: x.clone().masked_fill_(x > 1, 0)",
                     "lambda x: x.clone().index_fill_(0, torch.tensor([0], device=device), 2)",
                     "lambda x: torch.cat([x, x])", "lambda x: x.roll(1, 0)")  # fmt: skip
    dims = pool.pick("mapped dims", "", ", in_dims=-1", ", out_dims=-1", ", chunk_size=1")
    return new(pool, f"torch.func.vmap({form}{dims})({a})")


@template()
def mapped_write(pool):
    a = pool.tensor(is_signed, lambda t: t.dim() > 1, nonempty)
    form = pool.pick("mapped write", "lambda x: x.mul_(2)", "lambda x: x[:1].fill_(1)",
                     "lambda x: x.add_(x)", "lambda x: x.clamp_(-2, 2)",
                     "lambda x: x.select(0, 0).zero_()",
                     "lambda x: x.copy_(x.flip(0))")  # fmt: skip
    return Step(f"torch.func.vmap({form})({a})", writes=(a,))


@template()
def transformed(pool):
    a = pool.tensor(lambda t: t.dtype in FLOATS[:2], has_dims, nonempty)
    form = pool.pick("transformed", "torch.func.grad(lambda x: (x * x).sum())({})",
                     "torch.func.vmap(torch.func.grad(lambda x: (x * x * 2).sum()))({})",
                     "torch.func.jvp(lambda x: x.clone().mul_(x), ({0},), ({0},))[1]",
                     "torch.func.vjp(lambda x: x.flip(0) * 2, {0})[1]({0})[0]",
                     "torch.func.functionalize(lambda x: x.clone().add_(1).mul_(x))({})",
                     "torch.func.grad(lambda x: (y := x.clone(), y[:1].mul_(2), y.sum())[2])({})",
                     "torch.func.jacrev(lambda x: x.flatten()[:2] * 2)({})",
                     "torch.func.jacfwd(lambda x: x.flatten()[:2] * 3)({})")  # fmt: skip
    if pool[a].numel() > 24 and "jac" in form:
        raise Skip
    return new(pool, form.format(a))
