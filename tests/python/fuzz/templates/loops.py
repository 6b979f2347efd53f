"""The same step at one place after another: rows, columns, windows; on one size after another."""

import torch

from ..pool import LOOSE, Skip
from .step import Step, has_dims, is_bool, is_number, new, nonempty, template


@template(3)
def read_places(pool):
    a = pool.tensor(has_dims, nonempty)
    dim = pool.dim(a)
    size = pool[a].shape[dim]
    form = pool.pick("read places", "{a}.select({d}, i) * 2", "{a}.select({d}, -1 - i).clone()",
                     "{a}.narrow({d}, i, 1).sum()", "{a}.select({d}, i).t()[..., 0]",
                     "{a}.narrow({d}, i // 2, {half}).flip(0)",
                     "{a}.select_scatter({a}.select({d}, 0), {d}, i)",
                     "{a}.transpose(0, -1)[i % {a}.shape[-1]] + {a}.transpose(0, -1)[0]",
                     "{a}.select({d}, i).eq({a}.select({d}, i // 2))")  # fmt: skip
    if is_bool(pool[a]) and "*" in form:
        raise Skip
    each = form.format(a=a, d=dim, half=(size + 1) // 2)
    return new(pool, f"torch.stack([{each} for i in range({size})])")


@template(3)
def write_places(pool):
    a = pool.tensor(has_dims, nonempty, mark=LOOSE)
    dim = pool.dim(a)
    size = pool[a].shape[dim]
    form = pool.pick("write places", "{a}.select({d}, i).add_({n})",
                     "{a}.select({d}, i).fill_({n})",
                     "{a}.select({d}, i).copy_({a}.select({d}, -1 - i))",
                     "{a}.narrow({d}, i, 1).mul_({n})", "{a}.select({d}, -1 - i).neg_()",
                     "{a}.select({d}, i)[..., ::2] = {n}",
                     "{a}.narrow({d}, i // 2, {half}).clamp_(-2, 3)")  # fmt: skip
    if is_bool(pool[a]) and not ("copy" in form or "fill" in form or "=" in form):
        raise Skip
    each = form.format(a=a, d=dim, n=pool.number(a), half=(size + 1) // 2)
    return Step(f"for i in range({size}): {each}", writes=(a,))


@template(3)
def grow(pool):
    """A cache that gets a little longer each time, by something made of all of it."""
    a = pool.tensor(has_dims, nonempty, is_number)
    dim = pool.dim(a)
    each = pool.pick("grown", "c.narrow({d}, -1, 1)", "c.sum({d}, True).clamp(-9, 9)",
                     "c.amax({d}, True)", "(c * 2 - c.flip({d})).narrow({d}, i, 1).clamp(-9, 9)",
                     "(c > c.select({d}, i).unsqueeze({d})).sum({d}, True).clamp(0, 9).to(c.dtype)",
                     "c.transpose({d}, 0).mul(c.transpose({d}, 0)).sum(0).clamp(-9, 9)"
                     ".unsqueeze(0).transpose({d}, 0)",
                     "torch.where(c < 2, c, 0 * c).select({d}, -1).unsqueeze({d})",
                     "c[(slice(None),) * ({d} % c.dim()) + (slice(i, i + 1),)].abs()")  # fmt: skip
    start = pool.pick("grown from", "{a}", "{a}.clone()", "{a}.narrow({d}, 0, 1)", "{a}.neg()")
    form = f"functools.reduce(lambda c, i: torch.cat([c, {each}], {{d}}), range({{n}}), {start})"
    return new(pool, form.format(a=a, d=dim, n=pool.rng.choice([3, 5, 7])))


@template(2)
def other_sizes(pool):
    """Something else of each size that is uploaded."""
    dtype = pool.choice([torch.int64, torch.int32, torch.bool])
    a = pool.tensor(lambda t: t.dim() == 1 and t.numel() > 1, is_number)
    each = pool.pick("of sizes", "x.sum()", "(x * 2).amax()", "x.eq(1).sum()",
                     "x.sort(-1)[0].sum()", "(x[..., None] * {a}).sum()",
                     "x.to({a}.dtype).sum()", "x.flip(0)[..., 1:].sum()",
                     "(x + x.amin(-1, True)).sum()", "{a}[x.clamp(0, 1).long()].sum()",
                     "torch.cat([x, x], -1).sum()", "x.cumsum(-1).amax()")  # fmt: skip
    shape = pool.pick("sized", "(3 + i,)", "(2, 2 + i)", "(2 + i, 3)", "(2 + i % 4,)")
    form = "torch.stack([(lambda x: {each})(data({key}, {shape}, {t})) for i in range(6)])"
    each = each.format(a=a)
    return new(pool, form.format(each=each, key=pool.rng.randrange(99), shape=shape, t=dtype))
