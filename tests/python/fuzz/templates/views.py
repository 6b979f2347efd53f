"""Reductions, views and complex numbers."""

import torch

from ..pool import FLOATS, LARGEST, LOOSE, RAW, Skip
from .step import (
    Step,
    has_dims,
    is_arithmetic,
    is_bool,
    is_float,
    is_number,
    is_signed,
    name_of,
    new,
    nonempty,
    rank,
    template,
)

# -- Reductions, products, scans --


@template(3)
def reduce(pool):
    a = pool.tensor()
    form = pool.pick("reduce", "{}.sum()", "{}.sum({})", "{}.sum({}, keepdim=True)",
                     "{}.sum((0, -1))",
                     "torch.count_nonzero({})", "{}.sum(dtype=torch.float64)", "torch.sum({}, {})",
                     "{}.sum(list(range({}.dim())))")  # fmt: skip
    if "range" in form:
        return new(pool, form.format(a, a))
    return new(pool, form.format(a, pool.dim(a)) if form.count("{") > 1 else form.format(a))


@template()
def reduce_bool(pool):
    a = pool.tensor()
    form = pool.pick("any", "{}.any()", "{}.all()", "{}.any({})", "{}.all({}, keepdim=True)")
    return new(pool, form.format(a, pool.dim(a)) if form.count("{") > 1 else form.format(a))


@template(2)
def extreme(pool):
    a = pool.tensor(is_number)
    form = pool.pick("extreme", "{}.max()", "{}.amax({})", "{}.amin({}, keepdim=True)",
                     "{}.argmax({})", "{}.min({})[0]", "{}.argmin()", "{}.max({}).indices",
                     "torch.aminmax({}, dim={}).max", "{}.cummax({}).values")  # fmt: skip
    return new(pool, form.format(a, pool.dim(a)) if form.count("{") > 1 else form.format(a))


@template()
def scan(pool):
    a = pool.tensor(has_dims)
    form = pool.pick("scan", "{}.cumsum({})", "{}.cumsum({}, dtype=torch.float64)",
                     "{0}.flip({1}).cumsum({1})")  # fmt: skip
    return new(pool, form.format(a, pool.dim(a)))


@template(2)
def product(pool):
    a = pool.tensor(is_arithmetic, lambda t: t.dim() in (1, 2, 3))
    dtype, rank_of_a = pool[a].dtype, pool[a].dim()
    forms = {1: ["{} @ {}", "torch.outer({}, {})", "torch.dot({}, {})"],
             2: ["{} @ {}", "torch.mm({}, {})", "torch.mm({}, {}.t())", "{}.t() @ {}",
                 "torch.nn.functional.linear({}, {})", "torch.einsum('ij,kj->ik', {}, {})"],
             3: ["{} @ {}", "torch.bmm({}, {}.transpose(1, 2))"]}[rank_of_a]  # fmt: skip
    b = pool.tensor(lambda t: t.dtype == dtype and t.dim() in (1, 2, 3))
    return new(pool, pool.pick(f"product {rank_of_a}", *forms).format(a, b))


@template()
def product_added(pool):
    a = pool.tensor(is_float, rank(2))
    b = pool.tensor(is_float, rank(2))
    c = pool.tensor(is_float)
    form = pool.pick(
        "addmm", "torch.addmm({}, {}, {})", "torch.addmm({}, {}, {}.t(), beta=2, alpha=-1)"
    )
    return new(pool, form.format(c, a, b))


@template()
def windows(pool):
    """Convolution and pooling."""
    a = pool.tensor(lambda t: t.dtype in FLOATS[:2], rank(3), nonempty)
    form = pool.pick("windows", "torch.nn.functional.max_pool1d({}, 2, stride=1, padding=1)",
                     "torch.nn.functional.conv1d({0}, {0}[:, :, :2])",
                     "torch.nn.functional.conv1d({0}, {0}[:1].clone(), padding=1)",
                     "torch.nn.functional.max_pool1d({}, 2)",
                     "torch.nn.functional.avg_pool1d({}, 2, 1) * 2")  # fmt: skip
    return new(pool, form.format(a))


@template()
def more_reductions(pool):
    a = pool.tensor(is_signed, has_dims)
    form = pool.pick("more reductions", "{}.sign().prod({})", "{}.diff(dim={})",
                     "{}.clamp(-2, 2).cumprod({})",
                     "{}.median({}).values", "{}.count_nonzero({})")  # fmt: skip
    return new(pool, form.format(a, pool.dim(a)))


# -- Views --


@template(4)
def view_slice(pool):
    a = pool.tensor(has_dims, mark=RAW)
    forms = [
        "{}[1:]",
        "{}[::2]",
        "{}[..., 1:]",
        "{}[..., :-1]",
        "{}[:2]",
        "{}[..., ::2]",
        "{}[1:2]",
    ]
    if pool[a].dim() > 1:
        forms += ["{}[:, 1:]", "{}[:, None]", "{}[1:, 1:]", "{}[:, ::3]"]
    return new(pool, pool.pick(f"slice {pool[a].dim() > 1}", *forms).format(a))


@template(2)
def view_select(pool):
    a = pool.tensor(has_dims, nonempty, mark=RAW)
    form = pool.pick("select", "{}[0]", "{}[-1]", "{}.select({}, 0)", "{}[..., 0]",
                     "{}.select({}, -1)",
                     "{}.unbind({})[0]", "{}.narrow({}, 0, 1)")  # fmt: skip
    return new(pool, form.format(a, pool.dim(a)))


@template(3)
def view_move(pool):
    a = pool.tensor(lambda t: t.dim() > 1, mark=RAW)
    form = pool.pick("move", "{}.transpose(0, 1)", "{}.transpose(0, -1)", "{}.mT",
                     "{}.movedim(0, -1)",
                     "{}.swapaxes(-1, 0)", "{}.permute(*range({}.dim() - 1, -1, -1))")  # fmt: skip
    return new(pool, form.format(a, a))


@template(3)
def view_shape(pool):
    a = pool.tensor(mark=RAW)
    form = pool.pick("shape", "{}.unsqueeze(0)", "{}.unsqueeze(-1)", "{}.squeeze()", "{}.view(-1)",
                     "{}.reshape(-1)", "{}.flatten()", "{}.view({}.shape)", "{}.ravel()",
                     "{}.detach()", "{}.view_as({})", "{}.squeeze(-1)")  # fmt: skip
    return new(pool, form.format(a, a))


@template()
def view_split_dim(pool):
    a = pool.tensor(has_dims, lambda t: t.shape[0] % 2 == 0, mark=RAW)
    form = pool.pick("unflatten", "{}.unflatten(0, (2, -1))", "{}.unflatten(0, (-1, 2))",
                     "{}.view(2, -1)", "{}.reshape(-1, 2)")  # fmt: skip
    return new(pool, form.format(a))


@template(2)
def view_expand(pool):
    a = pool.tensor(lambda t: t.numel() * 3 <= LARGEST, mark=RAW)
    form = pool.pick("expand", "{0}.expand(2, *{0}.shape)",
                     "{0}.unsqueeze(-1).expand(*{0}.shape, 3)",
                     "torch.broadcast_to({0}, (3, *{0}.shape))",
                     "{0}.unsqueeze(0).expand(3, *{0}.shape)[1:]")  # fmt: skip
    return new(pool, form.format(a))


@template()
def view_pieces(pool):
    a = pool.tensor(lambda t: t.dim() > 0 and t.shape[0] > 1, mark=RAW)
    form = pool.pick("pieces", "{}.chunk(2)", "{}.split(1)", "{}.split([1, {}.shape[0] - 1])",
                     "torch.tensor_split({}, 2)", "{}.unbind(0)")  # fmt: skip
    if pool.chance(0.5):
        first, second = pool.fresh(), pool.fresh()
        return Step(f"{first}, {second} = {form.format(a, a)}[:2]")
    return new(pool, form.format(a, a) + "[1]")


@template(2)
def view_odd(pool):
    a = pool.tensor(lambda t: t.dim() > 1, mark=RAW)
    form = pool.pick("odd", "{}.diagonal()", "{}.diagonal(1)", "{}.unfold(1, 2, 1)",
                     "{}.unfold(0, 2, 2)",
                     "{}.diagonal(-1, 0, -1)", "{}.unfold(-1, 1, 1)",
                     "{}.T if {}.dim() == 2 else {}")  # fmt: skip
    return new(pool, form.format(a, a, a))


@template(2)
def view_strided(pool):
    a = pool.tensor(mark=RAW)
    total = pool[a].untyped_storage().nbytes() // pool[a].itemsize
    forms = {"as_strided({}, (2, 2), (1, 1), 0)": 3, "as_strided({}, (2,), (3,), 1)": 5,
             "as_strided({}, (3,), (2,))": 5 + pool[a].storage_offset(),
             "as_strided({}, (2, 3), (3, 1), 0)": 6, "as_strided({}, (), (), 2)": 3,
             "as_strided({}, (2, 2), (5, 2), 0)": 8, "as_strided({}, (2, 3), (1, 2), 0)": 6,
             "as_strided({}, (3, 2), (2, 3), 1)": 9, "as_strided({}, (2, 2, 2), (1, 2, 4), 0)": 8,
             "as_strided({}, (2, 0), (1, 1), 0)": 1, "as_strided({}, (2, 3), (0, 1), 1)": 4,
             "as_strided({}, (2, 2), (4, 3), 2)": 10}  # fmt: skip
    form = pool.pick("strided", *forms)
    if forms[form] > total:
        raise Skip
    return new(pool, "torch." + form.format(a))


@template()
def view_bits(pool):
    a = pool.tensor(lambda t: not t.is_conj() and not t.is_neg(), mark=RAW)
    if pool.mark(a) == LOOSE:
        raise Skip
    dtype = pool.pick("bits as", torch.int32, torch.uint8, torch.int16, torch.float32, torch.int64,
                      torch.float64)  # fmt: skip
    if is_bool(pool[a]):
        dtype = torch.uint8
    return new(pool, f"{a}.view({name_of(dtype)})", mark=RAW)


# -- Complex numbers --


@template()
def complex_parts(pool):
    a = pool.tensor(lambda t: t.is_complex())
    form = pool.pick("complex", "{}.real", "{}.imag", "{}.conj()", "{}.conj().imag", "{}.mH",
                     "torch.view_as_real({}.resolve_conj())", "{}.conj() * {}", "{}.conj().clone()",
                     "{}.adjoint()", "{}.conj_physical()", "{}.resolve_conj()")  # fmt: skip
    if pool[a].dim() < 2 and ("mH" in form or "adjoint" in form):
        raise Skip
    return new(pool, form.format(a, a))


@template()
def complex_make(pool):
    a = pool.tensor(lambda t: t.dtype == torch.float32)
    if pool[a].dim() and pool[a].shape[-1] == 2 and pool.chance(0.5):
        return new(pool, f"torch.view_as_complex({a})")
    b = pool.partner(a, lambda t: t.dtype == torch.float32)
    return new(pool, f"torch.complex({a}, {b})")


@template()
def complex_write(pool):
    a = pool.tensor(lambda t: t.is_complex())
    form = pool.pick("complex write", "{}.real.mul_(2)", "{}.imag.add_(1)", "{}.conj().add_(2)",
                     "{}.conj().imag.fill_(1)", "{}.conj_physical_()", "{}.mul_(1j)",
                     "{}.conj().imag.mul_(-1)", "{}.conj().copy_({} + 1)")  # fmt: skip
    return Step(form.format(a, a), writes=(a,))
