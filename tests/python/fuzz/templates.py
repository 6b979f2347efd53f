"""What a program's steps are made of. A template looks at the pool and returns one line of Python,
or raises Skip. `data`, `read` and `sync` are defined where the line runs; see runner.py."""

import dataclasses

import torch

from .pool import EXACT, FLOATS, INTS, LARGEST, LOOSE, RAW, Skip

TEMPLATES = []


@dataclasses.dataclass
class Step:
    text: str
    writes: tuple = ()  # names whose storages change
    mark: int = EXACT  # of what it makes and writes, at least
    overlap: bool = False  # writing the same place twice does not matter
    takes: dict = dataclasses.field(default_factory=dict)  # the highest mark that a name may have


def template(weight=1):
    def add(function):
        TEMPLATES.extend([function] * weight)
        return function

    return add


def is_float(t):
    return t.dtype in FLOATS


def is_int(t):
    return t.dtype in INTS


def is_bool(t):
    return t.dtype == torch.bool


def is_number(t):
    return t.dtype in FLOATS + INTS


def is_signed(t):
    return is_number(t) and t.dtype != torch.uint8


def is_arithmetic(t):
    return t.dtype != torch.bool


def nonempty(t):
    return t.numel() > 0


def has_dims(t):
    return t.dim() > 0


def rank(n):
    return lambda t: t.dim() == n


def like(other):
    return lambda t: t.dtype == other.dtype


def new(pool, expression, **kwargs):
    return Step(f"{pool.fresh()} = {expression}", **kwargs)


def name_of(dtype):
    return str(dtype)


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
    form = pool.pick("division", "{} // 2", "{} % 3", "torch.fmod({}, 3)", "torch.remainder({}, -2)",
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
    form = pool.pick("promotion", "{} * 2.0", "{} + 1", "{} * True", "{} + torch.tensor(2)", "{} * 2j",
                     "{} + torch.tensor(2.0, device=device)", "torch.tensor(1.5) * {}", "{} - 0.5",
                     "torch.tensor(3, dtype=torch.float64) * {}", "1.0 - {}", "{} * torch.ones(())")  # fmt: skip
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


# -- Reductions, products, scans --


@template(3)
def reduce(pool):
    a = pool.tensor()
    form = pool.pick("reduce", "{}.sum()", "{}.sum({})", "{}.sum({}, keepdim=True)", "{}.sum((0, -1))",
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
    form = pool.pick("more reductions", "{}.sign().prod({})", "{}.diff(dim={})", "{}.clamp(-2, 2).cumprod({})",
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
    form = pool.pick("select", "{}[0]", "{}[-1]", "{}.select({}, 0)", "{}[..., 0]", "{}.select({}, -1)",
                     "{}.unbind({})[0]", "{}.narrow({}, 0, 1)")  # fmt: skip
    return new(pool, form.format(a, pool.dim(a)))


@template(3)
def view_move(pool):
    a = pool.tensor(lambda t: t.dim() > 1, mark=RAW)
    form = pool.pick("move", "{}.transpose(0, 1)", "{}.transpose(0, -1)", "{}.mT", "{}.movedim(0, -1)",
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
    form = pool.pick("expand", "{0}.expand(2, *{0}.shape)", "{0}.unsqueeze(-1).expand(*{0}.shape, 3)",
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
    form = pool.pick("odd", "{}.diagonal()", "{}.diagonal(1)", "{}.unfold(1, 2, 1)", "{}.unfold(0, 2, 2)",
                     "{}.diagonal(-1, 0, -1)", "{}.unfold(-1, 1, 1)", "{}.T if {}.dim() == 2 else {}")  # fmt: skip
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
                     "{}.square_()", "{}.clamp_(min=0)", "{}.sign_()", "{}.remainder_(4)")  # fmt: skip
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
                     "{}.t().add_({})", "{}.diagonal().fill_({})", "{}.select(0, 0).add_({})")  # fmt: skip
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
    form = pool.pick("write shape", "{}.unsqueeze_(0)", "{}.squeeze_()", "{}.t_()", "{}.transpose_(0, -1)",
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
    form = pool.pick("set", "{}.data = {}", "{}.set_({})", "{0}.set_({1}.untyped_storage(), 0, (2,), (1,))",
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


# -- Indexing --


def index(pool, size, count=None, negative=True):
    """An index tensor of the device; without repeats, so that writes have an order."""
    count = count or pool.pick("index count", 1, 2, 3)
    if not size:
        raise Skip
    places = pool.rng.sample(range(size), min(count, size))
    if negative and pool.chance(0.3):
        places = [p - size for p in places]
    return f"torch.tensor({places}, device=device)"


def base(pool, name):
    """The tensor, to be read by index; PyTorch itself gives the results of others other strides on
    the CPU than on Meta."""
    return name if pool[name].is_contiguous() else f"{name}.contiguous()"


@template(2)
def index_read(pool):
    a = pool.tensor(has_dims, nonempty, mark=RAW)
    dim, size = pool.dim(a), pool[a].shape
    a = base(pool, a)
    form = pool.pick("index", "index_select", "list", "tensor", "two", "take", "dim 1")
    if form == "index_select":
        return new(pool, f"{a}.index_select({dim}, {index(pool, size[dim], negative=False)})")
    if form == "list":
        return new(pool, f"{a}[[0, -1]]")
    if form == "two" and len(size) > 1:
        return new(pool, f"{a}[{index(pool, size[0], 1)}, {index(pool, size[1], 1)}]")
    if form == "take":
        return new(pool, f"torch.take({a}, {index(pool, size.numel())})")
    if form == "dim 1" and len(size) > 1:
        return new(pool, f"{a}[:, {index(pool, size[1])}]")
    return new(pool, f"{a}[{index(pool, size[0])}]")


@template()
def index_computed(pool):
    """Indices that the device computed itself."""
    a = pool.tensor(has_dims, nonempty, mark=RAW)
    b = pool.tensor(is_int, lambda t: t.dtype in INTS[:2])
    dim = pool.dim(a)
    form = pool.pick("computed", "{a}[{b} % {n}]", "{a}.index_select({d}, ({b} % {n}).reshape(-1))",
                     "torch.take_along_dim({a}.reshape(-1), ({b} % {m}).reshape(-1).long())",
                     "{a}.reshape(-1).gather(0, ({b} % {m}).reshape(-1).long())")  # fmt: skip
    size = pool[a].shape[dim] if "{d}" in form else pool[a].shape[0]
    if pool[b].numel() * pool[a].numel() > 600:
        raise Skip
    return new(pool, form.format(a=base(pool, a), b=b, d=dim, n=size, m=pool[a].numel()))


@template()
def gather_along(pool):
    a = pool.tensor(has_dims, nonempty, mark=RAW)
    dim = pool.dim(a)
    form = pool.pick("gather", "{0}.gather({1}, torch.zeros({2}, dtype=torch.int64, device=device))",
                     "torch.take_along_dim({0}, {0}.bool().argsort({1}, stable=True), {1})")  # fmt: skip
    if "argsort" in form and pool.mark(a) != EXACT:
        raise Skip
    return new(pool, form.format(a, dim, tuple(pool[a].shape)))


@template(2)
def index_write(pool):
    a = pool.tensor(has_dims, nonempty, mark=LOOSE)
    size, number = pool[a].shape, pool.number(a)
    form = pool.pick("index write", "{a}[{i}] = {n}", "{a}.index_fill_(0, {i}, {n})",
                     "{a}.index_put_(({i},), {a}[0].clone())", "{a}[..., {j}] = {n}",
                     "{a}.index_copy_(0, {i}, {a}[:{k}].clone())",
                     "{a}.index_add_(0, {i}, {a}[:{k}].clone())",
                     "{a}.index_put_(({i},), {a}[0].clone(), accumulate=True)")  # fmt: skip
    count = min(2, size[0])
    i = index(pool, size[0], count, negative="index_" not in form or "put" in form)
    j = index(pool, size[-1])
    return Step(form.format(a=a, i=i, j=j, k=count, n=number), writes=(a,))


@template()
def scatter_write(pool):
    a = pool.tensor(has_dims, nonempty, mark=LOOSE)
    dim, number = pool.dim(a), pool.number(a)
    zeros = (
        f"torch.zeros({tuple(pool[a].narrow(dim, 0, 1).shape)}, dtype=torch.int64, device=device)"
    )
    form = pool.pick("scatter", "{a}.scatter_({d}, {z}, {n})", "{a}.scatter_({d}, {z}, {a}.clone())",
                     "{a}.scatter_add_({d}, {z}, {a}.clone())")  # fmt: skip
    if is_bool(pool[a]) and "add" in form:
        raise Skip
    return Step(form.format(a=a, d=dim, z=zeros, n=number), writes=(a,))


@template(2)
def index_mixed(pool):
    """Indices next to slices and masks."""
    a = pool.tensor(lambda t: t.dim() > 1, nonempty, mark=LOOSE)
    size = pool[a].shape
    i, j = index(pool, size[0], 2), index(pool, size[1], 2)
    form = pool.pick("mixed", "{a}[{i}, 1:]", "{a}[1:, {j}]", "{a}[None, {i}]", "{a}[{i}[:, None], {j}]",
                     "{a}[..., {j} % {a}.shape[-1]]", "{a}[{i}, None]", "{a}[{i}[:1], {j}]",
                     "{a}[{i}][:, {j}]")  # fmt: skip
    if pool.chance(0.5):
        return new(pool, form.format(a=base(pool, a), i=i, j=j))
    if "][" in form:
        raise Skip
    return Step(form.format(a=a, i=i, j=j) + f" = {pool.number(a)}", writes=(a,))


@template(2)
def mask_write(pool):
    a = pool.tensor(nonempty, is_number)
    form = pool.pick("mask write", "{a}[{a} > 0] = {n}", "{a}[{a} != 1] *= {n}", "{a}[{a} < 2] += {n}",
                     "{a}.masked_scatter_({a} > 0, {a}.neg())", "{a}[{a} > 0] = {a}[{a} > 0] + 1",
                     "{a}.index_put_(({a} == 0,), torch.tensor(1, device=device).to({a}.dtype))")  # fmt: skip
    if pool[a].dtype == torch.uint8:
        raise Skip
    return Step(form.format(a=a, n=pool.number(a)), writes=(a,))


@template()
def put(pool):
    a = pool.tensor(nonempty, is_number)
    places = index(pool, pool[a].numel(), 2)
    form = pool.pick("put", "{a}.put_({i}, ({a}.reshape(-1)[0] + 1).expand({i}.shape))",
                     "{a}.put_({i}, {a}.reshape(-1)[{i}].clone(), accumulate=True)",
                     "{a}.view(-1)[{i}] += 1", "{a}.reshape(-1)[{i}] = 2")  # fmt: skip
    return Step(form.format(a=a, i=places), writes=(a,))


@template()
def data_dependent(pool):
    a = pool.tensor(nonempty)
    form = pool.pick("dependent", "{0}[{0} != 0]", "{0}.nonzero()", "torch.masked_select({0}, {0} == 1)",
                     "torch.unique({0}) if not {0}.is_complex() else {0}", "torch.argwhere({0})")  # fmt: skip
    return new(pool, form.format(a))


# -- Putting together and rearranging --


@template(2)
def join(pool):
    a = pool.tensor(has_dims, mark=RAW)
    b = pool.tensor(like(pool[a]), has_dims, mark=RAW)
    form = pool.pick("join", "torch.cat([{}, {}])", "torch.cat([{}, {}], -1)", "torch.stack([{}, {}])",
                     "torch.hstack([{}, {}])", "torch.stack([{}, {}], 1)")  # fmt: skip
    return new(pool, form.format(a, b))


@template()
def join_mixed(pool):
    a, b = pool.tensor(has_dims), pool.tensor(has_dims)
    return new(pool, f"torch.cat([{a}, {b}, {a}])")


@template(2)
def rearrange(pool):
    a = pool.tensor(has_dims, lambda t: t.numel() <= LARGEST // 4, mark=RAW)
    form = pool.pick("rearrange", "{}.flip({})", "{}.roll(1, {})", "torch.repeat_interleave({}, 2, {})",
                     "{}.repeat(*[2] * {}.dim())", "{}.contiguous()", "{}.tile(2)", "{}.clone()",
                     "torch.nn.functional.pad({}, (1, 2))")  # fmt: skip
    if "dim()" in form:
        return new(pool, form.format(a, a))
    return new(pool, form.format(a, pool.dim(a)))


@template()
def order(pool):
    a = pool.tensor(is_number, has_dims)
    form = pool.pick("sort", "{}.sort({}, stable=True).values", "torch.argsort({}, {}, stable=True)",
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
    form = pool.pick("parts", "{n} = torch.empty_like({a}); {n}[:1] = {a}[:1]; {n}[1:].copy_({a}[1:])",
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
                     "{}.cpu().clone().to(device)", "{}.clone(memory_format=torch.contiguous_format)",
                     "torch.empty_like({0}).copy_({0})")  # fmt: skip
    return new(pool, form.format(a))


# -- Many tensors at once --


@template()
def foreach(pool):
    a = pool.tensor(lambda t: t.dtype in (torch.float32, torch.int64))
    b = pool.tensor(like(pool[a]), lambda t: t is not pool[a])
    form = pool.pick("foreach", "torch._foreach_add_([{a}, {b}], 1)", "torch._foreach_mul_([{a}, {b}], 2)",
                     "torch._foreach_neg_([{a}, {b}])", "torch._foreach_zero_([{a}, {b}])",
                     "torch._foreach_add_([{a}, {b}], [{a}.clone(), {b}.clone()])",
                     "torch._foreach_copy_([{a}, {b}], [{a} + 1, {b} * 2])",
                     "torch._foreach_mul_([{a}, {b}], [2, 3])")  # fmt: skip
    return Step(form.format(a=a, b=b), writes=(a, b))


@template()
def foreach_new(pool):
    a = pool.tensor(lambda t: t.dtype in (torch.float32, torch.int64))
    b = pool.tensor(like(pool[a]))
    form = pool.pick("foreach new", "torch._foreach_add([{}, {}], 1)", "torch._foreach_mul([{}, {}], 3)",
                     "torch._foreach_neg([{}, {}])", "torch._foreach_maximum([{}, {}], 0)")  # fmt: skip
    first, second = pool.fresh(), pool.fresh()
    return Step(f"{first}, {second} = {form.format(a, b)}")


@template(2)
def gradient(pool):
    a = pool.tensor(lambda t: t.dtype in FLOATS[:2])
    form = pool.pick(
        "gradient",
        "x = {a}.detach().clone().requires_grad_(); (x * x + x).sum().backward(); {n} = x.grad",
        "x = {a}.detach().clone().requires_grad_(); (x.relu() * {b}).sum().backward(); {n} = x.grad",
        "x = {a}.detach().clone().requires_grad_(); y = x.expand(2, *x.shape).clone(); y[0].mul_(3);"
        " y.sum().backward(); {n} = x.grad",
        "x = {a}.detach().clone().requires_grad_(); {n} = torch.autograd.grad((x * {b}).sum(), x)[0]",
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
        "{n} = {a}.detach().clone().requires_grad_(); o = torch.optim.SGD([{n}], 0.125, momentum=0.5)",
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
