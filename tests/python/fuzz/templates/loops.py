"""The same step at one place after another: rows, columns, windows."""

from ..pool import LOOSE, Skip
from .step import Step, has_dims, is_bool, new, nonempty, template


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
