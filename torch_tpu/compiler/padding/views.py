"""Rules of what moves elements: views, slices, and what joins or repeats."""

from typing import Any

import sympy
from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.columns import pointwise
from torch_tpu.compiler.padding.context import Args, Context, aten, name_of, rule
from torch_tpu.compiler.padding.dims import RefusedError


@rule("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unflatten")
def view(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    if name_of(node.target) == "view.dtype":
        return same(cx, node, a)
    dims = d.regrouped(cx.dims_at(a.self_), cx.shape(node))
    if dims is None:
        raise RefusedError(f"{node.target}: a new dim mixes what counts and padding")
    return cx.run(node, dims)


@rule("tril", "triu")
def triangle(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    cx.refuse_unless_prefix(node, cx.dims_at(a.self_), (-2, -1))
    return same(cx, node, a)


@rule("clone", "detach", "alias", "_to_copy", "lift_fresh_copy", "contiguous")
def same(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    return cx.run(node, cx.dims_at(a.self_))


@rule("permute")
def permute(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    return cx.run(node, tuple(own[i] for i in a.dims))


@rule("transpose.int", "t")
def transpose(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    i, k = (0, len(own) - 1) if name_of(node.target) == "t" else (a.dim0, a.dim1)
    own[i], own[k] = own[k], own[i]
    return cx.run(node, tuple(own))


@rule("unsqueeze")
def unsqueeze(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    own.insert(a.dim % (len(own) + 1), d.ONE)
    return cx.run(node, tuple(own))


@rule("squeeze")
def squeeze(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    listed = range(len(own)) if name_of(node.target) == "squeeze" else a.dim
    listed = [listed] if isinstance(listed, int) else listed
    gone = {i % len(own) for i in listed if own[i] == d.ONE}
    return cx.run(node, tuple(dim for i, dim in enumerate(own) if i not in gone))


@rule("expand")
def expand(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, exact = cx.dims_at(a.self_), d.dims_of(cx.shape(node))
    more = len(exact) - len(own)
    own = (d.ONE,) * more + own
    dims = (d.Free(new) if old == d.ONE else old for old, new in zip(own, exact, strict=True))
    return cx.run(node, tuple(dims))


@rule("repeat")
def repeat(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    own = (d.ONE,) * (len(a.repeats) - len(own)) + own
    times = [d.expr_of(one.meta["val"] if isinstance(one, fx.Node) else one) for one in a.repeats]
    return cx.run(node, tuple(d.joined((n, *dim)) for n, dim in zip(times, own, strict=True)))


@rule("stack")
def stack(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    cx.alike(node, *map(cx.dims_at, a.tensors))
    own = list(cx.dims_at(a.tensors[0]))
    own.insert(a.dim % (len(own) + 1), (sympy.Integer(len(a.tensors)),))
    return cx.run(node, tuple(own))


@rule("split", "split_with_sizes", "unbind", "chunk", "sort", "topk", "kthvalue", "mode")
@rule("median.dim")
def along_another_dim(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    at = a.dim % len(own)
    cx.refuse_along(node, own, [at])
    made = []
    for value in cx.value(node):
        dims = list(own)
        if value.dim() == len(own):
            dims[at] = (d.expr_of(value.shape[at]),)
        else:
            del dims[at]
        made.append(tuple(dims))
    return cx.run(node, made)


# -- Parts of a dim whose size varies --


def number_of(value: Any) -> sympy.Expr:
    """A number of the original graph as an expression."""
    return d.expr_of(value.meta["val"] if isinstance(value, fx.Node) else value)


def from_end(start: sympy.Expr, size: sympy.Expr) -> sympy.Expr:
    """A place that may be counted from the end, from the beginning."""
    return sympy.expand(start + size) if start.is_Integer and start < 0 else start


def picked(cx: Context, node: fx.Node, at: int, index: fx.Node, size: sympy.Expr) -> fx.Node:
    """Of the original graph's tensor the elements that an index (int64) says, along a dim."""
    own = list(cx.dims_at(node))
    if not d.is_prefix(own[at]):
        raise RefusedError("elements are picked along a dim that does not begin with what counts")
    last = cx.bound(sympy.expand(d.size_of(own[at]) - 1))
    inside = cx.emit(aten.clamp.default, index, 0, last)
    own[at] = (size,)
    return cx.emit(aten.index_select.default, cx.of(node), at, inside, dims=tuple(own))


@rule("select.int")
def select(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    at = a.dim % len(own)
    dim = own.pop(at)
    index = from_end(number_of(a.index), d.size_of(dim))
    if index.is_Integer and d.is_prefix(dim):
        return cx.run(node, tuple(own), index=int(index))
    place = cx.emit(aten.view.default, cx.length(index), [1])
    one = picked(cx, a.self_, at, place, sympy.Integer(1))
    return cx.emit(aten.squeeze.dim, one, at, dims=tuple(own))


def _step(node: fx.Node, given: Any) -> int:
    step = number_of(given or 1)
    if not step.is_Integer:
        raise RefusedError(f"{node.target} with a step that varies")
    return int(step)


@rule("slice.Tensor")
def slice_(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    at = a.dim % len(own)
    size = d.size_of(own[at])
    made = d.expr_of(cx.shape(node)[at])
    if made == size:
        return cx.emit(aten.alias.default, cx.of(a.self_), dims=tuple(own))
    start, step = from_end(number_of(a.start or 0), size), _step(node, a.step)
    cx.refuse_unless_prefix(node, own, [at])
    if not start.is_Integer:
        return picked(cx, a.self_, at, cx.counted(made, start, step), made)
    own[at] = (made,)
    end = sympy.expand(start + (made - 1) * step + 1)
    return cx.run(node, tuple(own), start=int(start), end=cx.bound(end))


@rule("slice_backward")
def slice_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.grad_output))
    at = a.dim % len(own)
    size, made = number_of(a.input_sizes[at]), d.size_of(own[at])
    if made == size:
        return cx.emit(aten.alias.default, cx.of(a.grad_output), dims=tuple(own))
    start, step = from_end(number_of(a.start), size), _step(node, a.step)
    cx.refuse_unless_prefix(node, own, [at])
    end = sympy.expand(start + (made - 1) * step + 1)
    grad = cx.cleaned(a.grad_output, 0, [at])
    own[at] = (size,)
    if not start.is_Integer:
        dtype = cx.value(node).dtype
        shape = [cx.bound(d.size_of(one)) for one in own]
        zeros = cx.emit(aten.zeros.default, shape, dtype=dtype, device=cx.device)
        places = cx.counted(made, start, step)
        places = cx.emit(aten.clamp.default, places, 0, cx.bound(sympy.expand(size - 1)))
        return cx.emit(aten.index_add.default, zeros, at, places, grad, dims=tuple(own))
    return cx.run(node, tuple(own), grad_output=grad, start=int(start), end=cx.bound(end))


@rule("select_backward")
def select_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.grad_output))
    at = a.dim % (len(own) + 1)
    size = number_of(a.input_sizes[at])
    own.insert(at, (size,))
    index = from_end(number_of(a.index), size)
    if index.is_Integer:
        return cx.run(node, tuple(own), index=int(index))
    here = cx.emit(aten.eq.Tensor, cx.iota(size), cx.length(index))
    here = cx.along(here, at, len(own))
    grad = cx.emit(aten.unsqueeze.default, cx.of(a.grad_output), at)
    zero = cx.emit(aten.zeros_like.default, grad)
    return cx.emit(aten.where.self, here, grad, zero, dims=tuple(own))


@rule("flip")
def flip(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    listed = [i % len(own) for i in a.dims]
    moved = [i for i in listed if d.varies(own[i])]
    if not moved:
        return cx.run(node, own)
    if len(moved) > 1 or len(listed) > 1:
        raise RefusedError(f"{node.target} along several dims of which sizes vary")
    size = d.size_of(own[moved[0]])
    last = cx.length(sympy.expand(size - 1))
    return picked(cx, a.self_, moved[0], cx.emit(aten.sub.Tensor, last, cx.iota(size)), size)


# -- Joining --


@rule("cat")
def cat(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    at = a.dim % len(cx.shape(node))
    pieces = [
        one
        for one in a.tensors
        if cx.value(one).dim() == cx.value(node).dim() and cx.dims_at(one)[at] != d.NOTHING
    ]
    cx.alike(node, *([dim for i, dim in enumerate(cx.dims_at(one)) if i != at] for one in pieces))
    dims = list(cx.dims_at(pieces[0]))
    sizes = [cx.dims_at(one)[at] for one in pieces]
    whole = d.expr_of(cx.shape(node)[at])
    dims[at] = (whole,)
    if not any(d.varies(one) for one in sizes[:-1]):
        cx.refuse_unless_prefix(node, sizes, [-1])
        return cx.run(node, tuple(dims))
    numbers = cx.iota(whole)
    start = sympy.Integer(0)
    made: Any = None
    for piece, size in zip(pieces, sizes, strict=True):
        places = numbers if start == 0 else cx.emit(aten.sub.Tensor, numbers, cx.length(start))
        moved = picked(cx, piece, at, places, whole)
        if cx.value(piece).dtype != cx.value(node).dtype:
            moved = cx.emit(aten._to_copy.default, moved, dtype=cx.value(node).dtype)
        here = cx.along(cx.emit(aten.ge.Scalar, places, 0), at, len(dims))
        made = moved if made is None else cx.emit(aten.where.self, here, moved, made)
        start = sympy.expand(start + d.size_of(size))
    return cx.emit(aten.alias.default, made, dims=tuple(dims))


@rule("constant_pad_nd")
def pad(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    exact = d.dims_of(cx.shape(node))
    value = a.value
    if isinstance(value, fx.Node):
        raise RefusedError(f"{node.target} with a value that depends on a size")
    changed = [len(own) - 1 - i // 2 for i in range(0, len(a.pad), 2)]
    padded = [i for i in changed if d.varies(own[i]) and exact[i] != own[i]]
    cx.refuse_unless_prefix(node, own, padded)
    for i in changed:
        before = number_of(a.pad[2 * (len(own) - 1 - i)])
        if not before.is_Integer:
            raise RefusedError(f"{node.target} before the first element, as far as a size says")
        if exact[i] != own[i]:
            own[i] = exact[i]
    return cx.run(node, tuple(own), self=cx.cleaned(a.self_, value, padded))


@rule("select_scatter", "slice_scatter")
def scatter_into(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    at = a.dim % len(own)
    cx.refuse_along(node, own, [at])
    source = list(cx.dims_at(a.src))
    if len(source) < len(own):
        source.insert(at, own[at])
    source[at] = own[at]
    cx.alike(node, source, own)
    return cx.run(node, own)


@rule("copy", "copy_")
def copy(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    if name_of(node.target) == "copy_" and any(d.varies(dim) for dim in cx.dims_at(a.self_)):
        raise RefusedError(f"{node.target} writes an argument whose size varies")
    return pointwise(cx, node, a)
