"""Rules of reductions that count, or say where something is, and of what runs along a dim."""

from typing import Any

import sympy
import torch
from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.columns import reduced_dims, results_like, without
from torch_tpu.compiler.padding.context import Args, Context, aten, rule
from torch_tpu.compiler.padding.dims import Dim, RefusedError


def count_of(cx: Context, dims: list[Dim]) -> Any:
    """How many elements of these dims count."""
    size = sympy.expand(sympy.Mul(*[d.size_of(one) for one in dims]))
    return int(size) if size.is_Integer else cx.length(size)


def _mean(
    cx: Context, x: Any, own: tuple[Dim, ...], listed: list[int], dtype: torch.dtype
) -> fx.Node:
    """The mean over dims, which stay, in f32 or f64."""
    wide = dtype if dtype == torch.float64 else torch.float32
    total = cx.emit(aten.sum.dim_IntList, cx.cleaned(x, 0, listed), listed, True, dtype=wide)
    return cx.emit(aten.div.Tensor, total, count_of(cx, [own[i] for i in listed]))


def _finished(
    cx: Context,
    node: fx.Node,
    x: fx.Node,
    own: tuple[Dim, ...],
    listed: list[int],
    dtype: torch.dtype,
    keep: bool,
) -> fx.Node:
    if not keep:
        for i in reversed(listed):
            x = cx.emit(aten.squeeze.dim, x, i)
    return cx.emit(aten._to_copy.default, x, dtype=dtype, dims=without(own, listed, keep))


@rule("mean")
def mean(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, value = cx.dims_at(a.self_), cx.value(node)
    everything = str(node.target) == "aten.mean.default"
    listed = reduced_dims(None if everything else a.dim, len(own))
    if value.dtype.is_complex:
        raise RefusedError(f"{node.target} of complex numbers")
    made = _mean(cx, a.self_, own, listed, value.dtype)
    return _finished(cx, node, made, own, listed, value.dtype, value.dim() == len(own))


@rule("var.correction", "std.correction")
def variance(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, value = cx.dims_at(a.self_), cx.value(node)
    listed = reduced_dims(a.dim, len(own))
    correction = 1 if a.correction is None else a.correction
    if value.dtype.is_complex or cx.value(a.self_).dtype.is_complex:
        raise RefusedError(f"{node.target} of complex numbers")
    off = cx.emit(
        aten.sub.Tensor, cx.of(a.self_), _mean(cx, a.self_, own, listed, value.dtype), dims=own
    )
    squares = cx.emit(aten.mul.Tensor, off, off, dims=own)
    total = cx.emit(aten.sum.dim_IntList, cx.cleaned(squares, 0, listed), listed, True)
    count = cx.emit(aten.sub.Tensor, count_of(cx, [own[i] for i in listed]), correction)
    made = cx.emit(aten.div.Tensor, total, cx.emit(aten.clamp_min.default, count, 0))
    if "std" in str(node.target):
        made = cx.emit(aten.sqrt.default, made)
    return _finished(cx, node, made, own, listed, value.dtype, value.dim() == len(own))


@rule("logsumexp")
def logsumexp(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, value = cx.dims_at(a.self_), cx.value(node)
    listed = reduced_dims(a.dim, len(own))
    kept = without(own, listed, value.dim() == len(own))
    return cx.run(node, kept, self=cx.cleaned(a.self_, "max", listed))


@rule("var_mean", "std_mean", "norm", "linalg_vector_norm", "aminmax")
def refused(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    listed = reduced_dims(a.dim if "dim" in names else None, len(own))
    cx.refuse_along(node, own, listed)
    value = cx.value(node)
    rank = (value[0] if isinstance(value, tuple | list) else value).dim()
    return cx.run(node, results_like(cx, node, without(own, listed, rank == len(own))))


@rule("argmax", "argmin", "max.dim", "min.dim")
def place_of(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, value = cx.dims_at(a.self_), cx.value(node)
    listed = reduced_dims(a.dim, len(own))
    if any(not d.is_prefix(own[i]) for i in listed) or (
        len(listed) > 1 and any(map(d.varies, own))
    ):
        raise RefusedError(f"{node.target} counts among padding")
    rank = (value[0] if isinstance(value, tuple | list) else value).dim()
    largest = "max" if "max" in str(node.target) else "min"
    dims = results_like(cx, node, without(own, listed, rank == len(own)))
    return cx.run(node, dims, self=cx.cleaned(a.self_, largest, listed))


@rule("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
def running(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    if not d.is_prefix(own[a.dim]):
        raise RefusedError(f"{node.target} along a dim that does not begin with what counts")
    return cx.run(node, results_like(cx, node, own))


@rule("sort", "topk", "kthvalue", "mode", "median.dim")
def sorted_(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    cx.refuse_along(node, tuple(own), [a.dim])
    made = []
    for value in cx.value(node):
        dims = list(own)
        if value.dim() == len(own):
            dims[a.dim] = (d.expr_of(value.shape[a.dim]),)
        else:
            del dims[a.dim]
        made.append(tuple(dims))
    return cx.run(node, made)
