"""Rules of what makes values of sizes alone."""

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
    return cx.emit(aten.add.Tensor, zeros, cx.number(node, a.fill_value), dims=dims)


@rule("scalar_tensor")
def scalar_tensor(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    return cx.emit(aten._to_copy.default, cx.number(node, a.s), dtype=cx.value(node).dtype)


@rule("arange")
def arange(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    value = cx.value(node)
    if value.dtype.is_floating_point:
        raise RefusedError(f"{node.target} of fractions")
    step = getattr(a, "step", 1)
    if isinstance(step, fx.Node):
        raise RefusedError(f"{node.target} with a step that depends on a size")
    start = number_of(getattr(a, "start", 0))
    made = cx.counted(d.expr_of(value.shape[0]), start, step)
    return cx.emit(aten._to_copy.default, made, dtype=value.dtype, dims=d.dims_of(value.shape))
