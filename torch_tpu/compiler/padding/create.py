"""Rules of what makes values of sizes alone."""

from typing import Any

from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.context import Args, Context, aten, rule
from torch_tpu.compiler.padding.dims import RefusedError
from torch_tpu.compiler.padding.views import number_of


@rule("zeros", "ones", "empty", "new_zeros", "new_ones", "new_empty", "eye", "empty_strided")
def sized(cx: Context, node: fx.Node, _: Args) -> fx.Node:
    return cx.run(node, d.dims_of(cx.shape(node)))


@rule("zeros_like", "ones_like", "empty_like")
def like(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    return cx.run(node, cx.dims_at(a.self_))


@rule("full", "new_full", "full_like")
def full(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    dims = cx.dims_at(a.self_) if "like" in str(node.target) else d.dims_of(cx.shape(node))
    if not isinstance(a.fill_value, fx.Node):
        return cx.run(node, dims)
    zeros = cx.run(node, dims, fill_value=0)
    return cx.emit(
        aten.add.Tensor, zeros, cx.number(cx.value(a.fill_value), cx.value(node).dtype), dims=dims
    )


@rule("scalar_tensor")
def scalar_tensor(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    return cx.emit(
        aten._to_copy.default,
        cx.number(cx.value(a.s), cx.value(node).dtype),
        dtype=cx.value(node).dtype,
    )


@rule("arange")
def arange(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    value = cx.value(node)
    if value.dtype.is_floating_point:
        raise RefusedError(f"{node.target} of fractions")
    start = a.start if "start" in names else 0
    step = a.step if "step" in names else 1
    if isinstance(step, fx.Node):
        raise RefusedError(f"{node.target} with a step that depends on a size")
    made: Any = cx.iota(d.expr_of(value.shape[0]))
    if step != 1:
        made = cx.emit(aten.mul.Tensor, made, step)
    if isinstance(start, fx.Node) or start != 0:
        first = cx.length(number_of(start)) if isinstance(start, fx.Node) else start
        made = cx.emit(aten.add.Tensor, made, first)
    return cx.emit(aten._to_copy.default, made, dtype=value.dtype, dims=d.dims_of(value.shape))
