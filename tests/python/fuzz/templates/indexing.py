"""Reading and writing where tensors of indices say."""

import torch

from ..pool import EXACT, INTS, LOOSE, RAW, Skip
from .step import (
    Step,
    has_dims,
    is_bool,
    is_int,
    is_number,
    new,
    nonempty,
    template,
)

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
    form = pool.pick("gather",
                     "{0}.gather({1}, torch.zeros({2}, dtype=torch.int64, device=device))",
                     "torch.take_along_dim({0}, {0}.bool().argsort({1}, stable=True),"
                     " {1})")  # fmt: skip
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
    form = pool.pick("scatter", "{a}.scatter_({d}, {z}, {n})",
                     "{a}.scatter_({d}, {z}, {a}.clone())",
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
    form = pool.pick("mixed", "{a}[{i}, 1:]", "{a}[1:, {j}]", "{a}[None, {i}]",
                     "{a}[{i}[:, None], {j}]",
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
    form = pool.pick("mask write", "{a}[{a} > 0] = {n}", "{a}[{a} != 1] *= {n}",
                     "{a}[{a} < 2] += {n}",
                     "{a}.masked_scatter_({a} > 0, {a}.neg())", "{a}[{a} > 0] = {a}[{a} > 0] + 1",
                     "{a}.index_put_(({a} == 0,), torch.tensor(1,"
                     " device=device).to({a}.dtype))")  # fmt: skip
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
    """Copied, since on the device they are windows on results of the largest size."""
    a = pool.tensor(nonempty)
    form = pool.pick("dependent", "{0}[{0} != 0]", "{0}.nonzero()",
                     "torch.masked_select({0}, {0} == 1)",
                     "torch.unique({0}) if not {0}.is_complex() else {0}",
                     "torch.argwhere({0})")  # fmt: skip
    return new(pool, f"({form.format(a)}).clone(memory_format=torch.contiguous_format)")
