"""Rules of reductions that count, or say where something is, and of what runs along a dim."""

from typing import Any

import torch
from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.columns import reduced_dims, result_rank, results_like, without
from torch_tpu.compiler.padding.context import Args, Context, aten, name_of, rule
from torch_tpu.compiler.padding.dims import Dim, RefusedError


def count_of(cx: Context, dims: list[Dim]) -> Any:
    """How many elements of these dims count."""
    size = d.size_of(tuple(factor for dim in dims for factor in dim))
    return int(size) if size.is_Integer else cx.length(size)


def _mean(
    cx: Context, x: Any, own: tuple[Dim, ...], listed: list[int], dtype: torch.dtype
) -> fx.Node:
    """The mean over dims, which stay, in f32 or f64."""
    wide = dtype if dtype == torch.float64 else torch.float32
    total = cx.emit(aten.sum.dim_IntList, cx.cleaned(x, 0, listed), listed, True, dtype=wide)
    return cx.emit(aten.div.Tensor, total, count_of(cx, [own[i] for i in listed]))


def _finished(
    cx: Context, node: fx.Node, x: fx.Node, own: tuple[Dim, ...], listed: list[int]
) -> fx.Node:
    """What was reduced over dims that stayed, as the node's result is."""
    keep = result_rank(cx, node) == len(own)
    for i in () if keep else reversed(listed):
        x = cx.emit(aten.squeeze.dim, x, i)
    dims = without(own, listed, keep)
    return cx.emit(aten._to_copy.default, x, dtype=cx.value(node).dtype, dims=dims)


@rule("mean")
def mean(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, value = cx.dims_at(a.self_), cx.value(node)
    everything = name_of(node.target) == "mean"
    listed = reduced_dims(None if everything else a.dim, len(own))
    if value.dtype.is_complex:
        raise RefusedError(f"{node.target} of complex numbers")
    made = _mean(cx, a.self_, own, listed, value.dtype)
    return _finished(cx, node, made, own, listed)


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
    return _finished(cx, node, made, own, listed)


@rule("logsumexp")
def logsumexp(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    listed = reduced_dims(a.dim, len(own))
    kept = without(own, listed, result_rank(cx, node) == len(own))
    return cx.run(node, kept, self=cx.cleaned(a.self_, "max", listed))


@rule("var_mean", "std_mean", "norm", "linalg_vector_norm", "aminmax")
def refused(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    listed = reduced_dims(a.dim if "dim" in names else None, len(own))
    cx.refuse_along(node, own, listed)
    kept = without(own, listed, result_rank(cx, node) == len(own))
    return cx.run(node, results_like(cx, node, kept))


@rule("argmax", "argmin", "max.dim", "min.dim")
def place_of(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    listed = reduced_dims(a.dim, len(own))
    if any(not d.is_prefix(own[i]) for i in listed) or (
        len(listed) > 1 and any(map(d.varies, own))
    ):
        raise RefusedError(f"{node.target} counts among padding")
    largest = "max" if "max" in str(node.target) else "min"
    kept = without(own, listed, result_rank(cx, node) == len(own))
    return cx.run(node, results_like(cx, node, kept), self=cx.cleaned(a.self_, largest, listed))


@rule("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
def running(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    cx.refuse_unless_prefix(node, own, [a.dim])
    return cx.run(node, results_like(cx, node, own))
