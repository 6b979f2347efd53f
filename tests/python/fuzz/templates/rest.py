"""Joining, many tensors at once, gradients, reading, forgetting, waiting."""

import torch

from ..pool import FLOATS, LARGEST, LOOSE, RAW, Skip
from .step import (
    Step,
    has_dims,
    is_arithmetic,
    is_number,
    is_signed,
    like,
    new,
    nonempty,
    template,
)

# -- Putting together and rearranging --


@template(2)
def join(pool):
    a = pool.tensor(has_dims, mark=RAW)
    b = pool.tensor(like(pool[a]), has_dims, mark=RAW)
    form = pool.pick("join", "torch.cat([{}, {}])", "torch.cat([{}, {}], -1)",
                     "torch.stack([{}, {}])",
                     "torch.hstack([{}, {}])", "torch.stack([{}, {}], 1)")  # fmt: skip
    return new(pool, form.format(a, b))


@template()
def join_mixed(pool):
    a, b = pool.tensor(has_dims), pool.tensor(has_dims)
    return new(pool, f"torch.cat([{a}, {b}, {a}])")


@template(2)
def rearrange(pool):
    a = pool.tensor(has_dims, lambda t: t.numel() <= LARGEST // 4, mark=RAW)
    form = pool.pick("rearrange", "{}.flip({})", "{}.roll(1, {})",
                     "torch.repeat_interleave({}, 2, {})",
                     "{}.repeat(*[2] * {}.dim())", "{}.contiguous()", "{}.tile(2)", "{}.clone()",
                     "torch.nn.functional.pad({}, (1, 2))")  # fmt: skip
    if "dim()" in form:
        return new(pool, form.format(a, a))
    return new(pool, form.format(a, pool.dim(a)))


@template()
def order(pool):
    a = pool.tensor(is_number, has_dims)
    form = pool.pick("sort", "{}.sort({}, stable=True).values",
                     "torch.argsort({}, {}, stable=True)",
                     "{}.sort({}, descending=True, stable=True)[0]", "{}.topk(1, {}).values",
                     "{}.msort()")  # fmt: skip
    dim = pool.dim(a)
    return new(pool, form.format(a, dim, dim))


@template()
def from_host(pool):
    """Copies between the host and a view."""
    a = pool.tensor(lambda t: not t.is_complex(), mark=RAW)
    b = pool.partner(a, like(pool[a]), mark=RAW)
    form = pool.pick("host", "{a}.copy_({b}.cpu().clone())", "{a}[...] = {b}.cpu().clone()",
                     "{a}.copy_({b}.cpu().clone().contiguous())")  # fmt: skip
    return Step(form.format(a=a, b=b), writes=(a,))


@template()
def part_by_part(pool):
    """A tensor that holds nothing until all of it has been written."""
    a = pool.tensor(has_dims, nonempty, mark=RAW)
    form = pool.pick("parts",
                     "{n} = torch.empty_like({a}); {n}[:1] = {a}[:1]; {n}[1:].copy_({a}[1:])",
                     "{n} = torch.empty({a}.shape, dtype={a}.dtype, device=device); {n}[::2] = 1;"
                     " {n}[1::2] = {a}[1::2]",
                     "{n} = {a}.new_empty({a}.numel()); {n}[1:].zero_(); {n}[0] = 1")  # fmt: skip
    return Step(form.format(a=a, n=pool.fresh()))


@template()
def copy_together(pool):
    a, b = pool.tensor(mark=RAW), pool.tensor(mark=RAW)
    first, second = pool.fresh(), pool.fresh()
    return Step(f"{first}, {second} = copy.deepcopy([{a}, {b}])")


@template()
def triangle(pool):
    a = pool.tensor(lambda t: t.dim() > 1, mark=LOOSE)
    return new(pool, f"{a}.{pool.pick('tri', 'tril()', 'triu(1)', 'tril(-1)', 'triu()')}")


@template()
def copies(pool):
    a = pool.tensor(mark=RAW)
    form = pool.pick("copies", "copy.deepcopy({})", "{}.clone()", "{}.detach().clone()",
                     "{}.cpu().clone().to(device)",
                     "{}.clone(memory_format=torch.contiguous_format)",
                     "torch.empty_like({0}).copy_({0})")  # fmt: skip
    return new(pool, form.format(a))


# -- Many tensors at once --


@template()
def foreach(pool):
    a = pool.tensor(lambda t: t.dtype in (torch.float32, torch.int64))
    b = pool.tensor(like(pool[a]), lambda t: t is not pool[a])
    form = pool.pick("foreach", "torch._foreach_add_([{a}, {b}], 1)",
                     "torch._foreach_mul_([{a}, {b}], 2)",
                     "torch._foreach_neg_([{a}, {b}])", "torch._foreach_zero_([{a}, {b}])",
                     "torch._foreach_add_([{a}, {b}], [{a}.clone(), {b}.clone()])",
                     "torch._foreach_copy_([{a}, {b}], [{a} + 1, {b} * 2])",
                     "torch._foreach_mul_([{a}, {b}], [2, 3])")  # fmt: skip
    return Step(form.format(a=a, b=b), writes=(a, b))


@template()
def foreach_new(pool):
    a = pool.tensor(lambda t: t.dtype in (torch.float32, torch.int64))
    b = pool.tensor(like(pool[a]))
    form = pool.pick("foreach new", "torch._foreach_add([{}, {}], 1)",
                     "torch._foreach_mul([{}, {}], 3)",
                     "torch._foreach_neg([{}, {}])",
                     "torch._foreach_maximum([{}, {}], 0)")  # fmt: skip
    first, second = pool.fresh(), pool.fresh()
    return Step(f"{first}, {second} = {form.format(a, b)}")


@template(2)
def gradient(pool):
    a = pool.tensor(lambda t: t.dtype in FLOATS[:2])
    form = pool.pick(
        "gradient",
        "x = {a}.detach().clone().requires_grad_(); (x * x + x).sum().backward(); {n} = x.grad",
        "x = {a}.detach().clone().requires_grad_(); (x.relu() * {b}).sum().backward();"
        " {n} = x.grad",
        "x = {a}.detach().clone().requires_grad_(); y = x.expand(2, *x.shape).clone();"
        " y[0].mul_(3);"
        " y.sum().backward(); {n} = x.grad",
        "x = {a}.detach().clone().requires_grad_();"
        " {n} = torch.autograd.grad((x * {b}).sum(), x)[0]",
        "x = {a}.detach().clone().requires_grad_(); (x.reshape(-1)[::2] ** 2).sum().backward();"
        " {n} = x.grad",
        "x = {a}.detach().clone().requires_grad_(); y = x * 2; y.view(-1)[:1].zero_();"
        " (y * y).sum().backward(); {n} = x.grad",
    )
    b = pool.partner(a, like(pool[a]))
    return Step(form.format(a=a, b=b, n=pool.fresh()))


@template(2)
def gradient_loop(pool):
    """Training: the same work again and again on parameters that change in place."""
    a = pool.tensor(lambda t: t.dtype == torch.float32)
    b = pool.partner(a, like(pool[a]))
    form = pool.pick(
        "loop",
        "{n} = {a}.detach().clone().requires_grad_();"
        " o = torch.optim.SGD([{n}], 0.125, momentum=0.5)",
        "{n} = {a}.detach().clone().requires_grad_(); o = torch.optim.SGD([{n}], 0.5)",
        "{n} = {a}.detach().clone().requires_grad_(); o = torch.optim.Adam([{n}], 0.1)",
    )
    loss = pool.pick("loss", "({n} * {b} - 1).square().mean()", "({n} + {b}).square().sum()")
    count = pool.rng.choice([2, 3, 6])
    text = f"{form}; [(o.zero_grad(), {loss}.backward(), o.step()) for _ in range({count})]"
    text = text.format(a=a, b=b, n=pool.fresh()) + f"; v{pool.count}.requires_grad_(False)"
    return Step(text, mark=LOOSE)


@template()
def keep_some(pool):
    """The same work again and again, of which each time other results are still needed."""
    a = pool.tensor(lambda t: t.dtype in (torch.float32, torch.int64))
    b = pool.partner(a, like(pool[a]))
    work = pool.pick("work", "(x := {a} + {b}, y := x * 2, z := y - {a}, (x + z).sum())",
                     "(x := {a}.clone(), y := x.add_({b}), x.neg(), y * {b}, x.sum())")  # fmt: skip
    text = "kept = [[t for j, t in enumerate({w}) if i >> j & 1 or sync()] for i in range({c})]"
    text = text.format(w=work.format(a=a, b=b), c=pool.rng.choice([3, 7]))
    return Step(text + f"; {pool.fresh()} = kept[-1][0] + kept[1][0]")


# -- Reading, forgetting, waiting --


@template(2)
def read_item(pool):
    a = pool.tensor(is_number)
    b = pool.tensor(has_dims, nonempty, mark=RAW)
    form = pool.pick("item", "{n} = {b}[read({a}.sum()) % {b}.shape[0]]",
                     "{n} = {b}.roll(read({a}.sum()) % 3, 0)",
                     "{n} = {b}[: 1 + read({a}.flatten()[:1].sum()) % 2]",
                     "{n} = {b} if read({a}.sum()) > 2 else {b}.clone()",
                     "{n} = torch.tensor({a}.tolist(), device=device)")  # fmt: skip
    return Step(form.format(a=a, b=b, n=pool.fresh()))


@template()
def read_truth(pool):
    a = pool.tensor(lambda t: t.numel() == 1)
    b = pool.tensor(is_arithmetic)
    return Step(f"{b}.add_(1 if bool({a}) else 2)", writes=(b,))


@template()
def use_item(pool):
    a = pool.tensor(is_number)
    b = pool.tensor(is_signed)
    form = pool.pick("use item", "{b}.add_(read({a}.sum()) % 5)", "{b}.mul_(read({a}.sum()) % 3)")
    return Step(form.format(a=a, b=b), writes=(b,))


@template()
def forget(pool):
    if len(pool.names) < 4:
        raise Skip
    return Step(f"del {pool.tensor(mark=RAW)}")


@template()
def wait(pool):
    return Step("sync()")
