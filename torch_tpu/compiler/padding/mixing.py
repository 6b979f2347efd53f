"""Rules of what mixes elements of a dim: sums with counts, norms, products, losses, indices."""

from typing import Any

import sympy
import torch
from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.columns import reduced_dims, results_like, tensors, without
from torch_tpu.compiler.padding.dims import Dim
from torch_tpu.compiler.padding.graph import Args, Padding, RefusedError, aten, rule


def refuse_along(cx: Padding, node: fx.Node, dims: tuple[Dim, ...], which: Any) -> None:
    """Those dims must not vary."""
    if any(d.varies(dims[i]) for i in which):
        raise RefusedError(f"{node.target} along a dim whose size varies")


# -- Reductions that count --


def _count(cx: Padding, dims: list[Dim]) -> Any:
    size = sympy.expand(sympy.Mul(*[d.size_of(one) for one in dims]))
    return int(size) if size.is_Integer else cx.length(size)


def _mean(
    cx: Padding, x: Any, own: tuple[Dim, ...], listed: list[int], dtype: torch.dtype
) -> fx.Node:
    """The mean over dims, which stay, in f32 or f64."""
    wide = dtype if dtype == torch.float64 else torch.float32
    total = cx.emit(aten.sum.dim_IntList, cx.cleaned(x, 0, listed), listed, True, dtype=wide)
    return cx.emit(aten.div.Tensor, total, _count(cx, [own[i] for i in listed]))


def _finished(
    cx: Padding,
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
def mean(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own, value = cx.dims_at(a.self_), cx.value(node)
    everything = str(node.target) == "aten.mean.default"
    listed = reduced_dims(None if everything else a.dim, len(own))
    if value.dtype.is_complex:
        raise RefusedError(f"{node.target} of complex numbers")
    made = _mean(cx, a.self_, own, listed, value.dtype)
    return _finished(cx, node, made, own, listed, value.dtype, value.dim() == len(own))


@rule("var.correction", "std.correction")
def variance(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
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
    count = cx.emit(aten.sub.Tensor, _count(cx, [own[i] for i in listed]), correction)
    made = cx.emit(aten.div.Tensor, total, cx.emit(aten.clamp_min.default, count, 0))
    if "std" in str(node.target):
        made = cx.emit(aten.sqrt.default, made)
    return _finished(cx, node, made, own, listed, value.dtype, value.dim() == len(own))


@rule("logsumexp")
def logsumexp(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own, value = cx.dims_at(a.self_), cx.value(node)
    listed = reduced_dims(a.dim, len(own))
    kept = without(own, listed, value.dim() == len(own))
    return cx.run(node, kept, self=cx.cleaned(a.self_, "max", listed))


@rule("var_mean", "std_mean", "norm", "linalg_vector_norm", "aminmax")
def refused(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    listed = reduced_dims(a.dim if "dim" in names else None, len(own))
    refuse_along(cx, node, own, listed)
    value = cx.value(node)
    rank = (value[0] if isinstance(value, tuple | list) else value).dim()
    return cx.run(node, results_like(cx, node, without(own, listed, rank == len(own))))


@rule("argmax", "argmin", "max.dim", "min.dim")
def place_of(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
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
def running(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    if not d.is_prefix(own[a.dim]):
        raise RefusedError(f"{node.target} along a dim that does not begin with what counts")
    return cx.run(node, results_like(cx, node, own))


@rule("sort", "topk", "kthvalue", "mode", "median.dim")
def sorted_(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    refuse_along(cx, node, tuple(own), [a.dim])
    made = []
    for value in cx.value(node):
        dims = list(own)
        if value.dim() == len(own):
            dims[a.dim] = (d.expr_of(value.shape[a.dim]),)
        else:
            del dims[a.dim]
        made.append(tuple(dims))
    return cx.run(node, made)


# -- Products --


def alike(cx: Padding, node: fx.Node, *dims: tuple[Dim, ...]) -> None:
    """Padding must lie in the same way."""
    if any(one != dims[0] for one in dims):
        raise RefusedError(f"{node.target}: padding lies differently in its operands")


@rule("_scaled_dot_product_fused_attention_overrideable")
def attention(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    dims, bias, causal = _attention(cx, node, a)
    if a.dropout_p:
        raise RefusedError(f"{node.target} draws random numbers")
    exact = cx.exact_dims(node)
    out = (*dims[:3], cx.dims_at(a.value)[3])
    clean = {name: cx.cleaned(getattr(a, name), 0, [2]) for name in ("key", "value")}
    return cx.run(node, [out, dims[:3], *exact[2:]], attn_bias=bias, is_causal=causal, **clean)


def _attention(cx: Padding, node: fx.Node, a: Args) -> tuple[tuple[Dim, ...], Any, bool]:
    """The query's dims; what is added to the scores, where keys are padding; whether that is all."""
    query, key, value = (cx.dims_at(one) for one in (a.query, a.key, a.value))
    if query[:2] != key[:2] or key[:3] != value[:3] or d.varies(query[3]) or d.varies(value[3]):
        raise RefusedError(f"{node.target}: padding lies differently in its operands")
    if not d.varies(key[2]):
        return query, cx.of(a.attn_bias), a.is_causal
    if a.is_causal:  # a query sees no key behind it
        if query[2] != key[2]:
            raise RefusedError(f"{node.target}: causal, of queries and keys of two lengths")
        return query, cx.of(a.attn_bias), True
    if a.attn_bias is None:
        row = cx.emit(
            aten.zeros.default,
            [1, 1, 1, cx.bound(d.size_of(key[2]))],
            dtype=cx.value(a.query).dtype,
            device=cx.device,
            dims=(d.ONE, d.ONE, d.ONE, key[2]),
        )
        return query, cx.cleaned(row, float("-inf"), [3]), False
    bias = cx.dims_at(a.attn_bias)
    if bias[-1] != key[2]:
        raise RefusedError(f"{node.target}: a mask of another size than the keys")
    return query, cx.cleaned(a.attn_bias, float("-inf"), [-1]), False


@rule("_scaled_dot_product_fused_attention_overrideable_backward")
def attention_backward(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    query, bias, causal = _attention(cx, node, a)
    if a.dropout_p:
        raise RefusedError(f"{node.target} draws random numbers")
    exact = cx.exact_dims(node)
    if a.grad_input_mask[3] and any(map(d.varies, exact[3])):
        raise RefusedError(f"{node.target} of a mask whose size varies")
    alike(
        cx,
        node,
        query[:3],
        cx.dims_at(a.grad_out)[:3],
        cx.dims_at(a.out)[:3],
        cx.dims_at(a.logsumexp),
    )
    clean = {
        name: cx.cleaned(getattr(a, name), 0)
        for name in ("grad_out", "query", "key", "value", "out", "logsumexp")
    }
    return cx.run(
        node,
        [query, cx.dims_at(a.key), cx.dims_at(a.value), exact[3]],
        attn_bias=bias,
        is_causal=causal,
        **clean,
    )


@rule("convolution")
def convolution(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own, exact = cx.dims_at(a.input), cx.exact_dims(node)
    if any(map(d.varies, cx.dims_at(a.weight))) or not all(map(d.is_prefix, own[1:])):
        raise RefusedError(f"{node.target} with a kernel whose size varies")
    return cx.run(node, (own[0], *exact[1:]), input=cx.cleaned(a.input, 0, range(1, len(own))))


@rule("convolution_backward")
def convolution_backward(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own, exact = cx.dims_at(a.input), cx.exact_dims(node)
    grad = cx.dims_at(a.grad_output)
    alike(cx, node, own[:1], grad[:1])
    if not all(map(d.is_prefix, own[1:])) or not all(map(d.is_prefix, grad[1:])):
        raise RefusedError(f"{node.target} of a dim that does not begin with what counts")
    clean = {name: cx.cleaned(getattr(a, name), 0) for name in ("grad_output", "input")}
    return cx.run(node, [own, *exact[1:]], **clean)


@rule("dot", "mv")
def vector_product(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    other = a.tensor if str(node.target) == "aten.dot.default" else a.vec
    own = cx.dims_at(a.self_)
    alike(cx, node, own[-1:], cx.dims_at(other))
    name = "tensor" if str(node.target) == "aten.dot.default" else "vec"
    return cx.run(
        node, own[:-1], **{"self": cx.cleaned(a.self_, 0, [-1]), name: cx.cleaned(other, 0)}
    )


# -- Norms --


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.grad_output)
    alike(cx, node, own, cx.dims_at(a.output))
    clean = {name: cx.cleaned(getattr(a, name), 0, [a.dim]) for name in ("grad_output", "output")}
    return cx.run(node, own, **clean)


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def layer_norm_backward(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.input)
    refuse_along(cx, node, own, range(len(own) - len(a.normalized_shape), len(own)))
    alike(cx, node, own, cx.dims_at(a.grad_out))
    names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
    clean = {
        name: cx.cleaned(getattr(a, name), 0)
        for name in ("grad_out", "input", "mean", "rstd")
        if name in names
    }
    exact = cx.exact_dims(node)
    return cx.run(node, [own, *exact[1:]], **clean)


@rule("_fused_rms_norm")
def rms_norm(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.input)
    lead = len(own) - len(a.normalized_shape)
    refuse_along(cx, node, own, range(lead, len(own)))
    return cx.run(node, [own, own[:lead] + (d.ONE,) * (len(own) - lead)])


@rule(
    "native_group_norm",
    "_native_batch_norm_legit_no_training",
    "max_pool2d_with_indices",
    "avg_pool2d",
    "_adaptive_avg_pool2d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "pixel_shuffle",
)
def by_sample(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    first = tensors(cx, node)[0]
    own = cx.dims_at(first)
    refuse_along(cx, node, own, range(1, len(own)))
    exact = cx.exact_dims(node)
    if isinstance(exact, list):
        return cx.run(
            node, [(own[0], *one[1:]) if one and d.varies(one[0]) else one for one in exact]
        )
    return cx.run(node, (own[0], *exact[1:]))


# -- Losses --


@rule("nll_loss_forward", "nll_loss_backward")
def nll_loss(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own, target = cx.dims_at(a.self_), cx.dims_at(a.target)
    if own[:-1] != target or d.varies(own[-1]):
        raise RefusedError(f"{node.target}: padding lies differently in its operands")
    skipped = cx.cleaned(a.target, a.ignore_index)
    if "backward" in str(node.target):
        return cx.run(node, own, target=skipped)
    exact = cx.exact_dims(node)
    return cx.run(node, [target if exact[0] else (), exact[1]], target=skipped)


@rule(
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "soft_margin_loss",
)
def loss(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    dims = _loss_dims(cx, node)
    each = cx.run(node, dims, reduction=0)
    if a.reduction == 0:
        return each
    total = cx.emit(aten.sum.default, cx.cleaned(each, 0))
    return total if a.reduction == 2 else cx.emit(aten.div.Tensor, total, _count(cx, list(dims)))


def _loss_dims(cx: Padding, node: fx.Node) -> tuple[Dim, ...]:
    """Of the loss of each element."""
    shapes = [cx.dims_at(one) for one in tensors(cx, node)]
    longest = max(shapes, key=len)
    alike(cx, node, *[one for one in shapes if one])
    return longest


@rule(
    "mse_loss_backward",
    "l1_loss_backward",
    "smooth_l1_loss_backward",
    "huber_loss_backward",
    "binary_cross_entropy_backward",
    "soft_margin_loss_backward",
)
def loss_backward(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    dims = _loss_dims(cx, node)
    if a.reduction != 1:
        return cx.run(node, dims)
    grad = cx.emit(aten.div.Tensor, cx.of(a.grad_output), _count(cx, list(dims)))
    return cx.run(node, dims, grad_output=grad, reduction=2)


# -- Indices --


@rule("embedding")
def embedding(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    table = cx.dims_at(a.weight)
    if not d.is_prefix(table[0]):
        raise RefusedError(f"{node.target}: a table that does not begin with what counts")
    return cx.run(node, (*cx.dims_at(a.indices), table[1]), indices=cx.cleaned(a.indices, 0))


@rule("scatter")
def scatter(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    at = a.dim % max(len(own), 1)
    others = [cx.dims_at(one) for one in (a.index, getattr(a, "src", None)) if one is not None]
    for dims in others:
        alike(cx, node, own[:at] + own[at + 1 :], dims[:at] + dims[at + 1 :])
        refuse_along(cx, node, dims, [at])
    refuse_along(cx, node, own, [at])
    return cx.run(node, own, index=cx.cleaned(a.index, 0))


@rule("gather")
def gather(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own, index = cx.dims_at(a.self_), cx.dims_at(a.index)
    if not own:
        raise RefusedError(f"{node.target} of a number")
    at = a.dim % len(own)
    alike = all(i == at or not d.varies(dim) or dim == index[i] for i, dim in enumerate(own))
    if not alike or not d.is_prefix(own[at]):
        raise RefusedError(f"{node.target}: padding lies differently in its operands")
    return cx.run(node, index, index=cx.cleaned(a.index, 0))


@rule("index_select")
def index_select(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    if not d.is_prefix(own[a.dim]):
        raise RefusedError(f"{node.target} along a dim that does not begin with what counts")
    own[a.dim] = cx.dims_at(a.index)[0]
    return cx.run(node, tuple(own), index=cx.cleaned(a.index, 0))


@rule("index.Tensor", "_unsafe_index.Tensor")
def index(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    listed = [*a.indices, *[None] * (len(own) - len(a.indices))]
    at = [i for i, one in enumerate(listed) if one is not None]
    if any(cx.value(listed[i]).dtype == torch.bool for i in at):
        raise RefusedError(f"{node.target} with a mask")
    if any(not d.is_prefix(own[i]) for i in at):
        raise RefusedError(f"{node.target} along a dim that does not begin with what counts")
    spread = _spread(cx, node, [listed[i] for i in at])
    rest = [own[i] for i in range(len(own)) if i not in at]
    together = at == list(range(at[0], at[-1] + 1))
    place = at[0] if together else 0
    dims = (*rest[:place], *spread, *rest[place:])
    clean = [None if one is None else cx.cleaned(one, 0) for one in a.indices]
    return cx.run(node, dims, indices=clean)


def _spread(cx: Padding, node: fx.Node, indices: list[fx.Node]) -> tuple[Dim, ...]:
    """The dims of indices that are broadcast to one another."""
    rank = max(len(cx.dims_at(one)) for one in indices)
    made = []
    for i in range(-rank, 0):
        found = {own[i] for one in indices if len(own := cx.dims_at(one)) >= -i} - {d.ONE}
        if len(found) > 1:
            raise RefusedError(f"{node.target}: padding lies differently in its operands")
        made.append(found.pop() if found else d.ONE)
    return tuple(made)


@rule("index_put", "_unsafe_index_put")
def index_put(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    listed = [one for one in a.indices if one is not None]
    spread = _spread(cx, node, listed)
    ready = a.accumulate or not any(map(d.varies, spread))
    values = cx.dims_at(a.values)
    whole = len(values) >= len(spread) and all(dim in values for dim in spread if d.varies(dim))
    if not ready or not whole or any(not d.is_prefix(dim) for dim in own):
        raise RefusedError(f"{node.target} of a number of values that varies")
    clean = [None if one is None else cx.cleaned(one, 0) for one in a.indices]
    return cx.run(
        node,
        own,
        indices=clean,
        values=cx.cleaned(a.values, 0) if a.accumulate else cx.of(a.values),
    )


@rule("embedding_dense_backward")
def embedding_backward(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    grad = cx.dims_at(a.grad_output)
    if grad[:-1] != cx.dims_at(a.indices) or a.scale_grad_by_freq:
        raise RefusedError(f"{node.target}: padding lies differently in its operands")
    clean = {"grad_output": cx.cleaned(a.grad_output, 0), "indices": cx.cleaned(a.indices, 0)}
    return cx.run(node, cx.exact_dims(node), **clean)


@rule("scatter_add", "index_add")
def scatter_add(cx: Padding, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    source = a.src if str(node.target).startswith("aten.scatter") else a.source
    at = a.dim % len(own)
    indexed = cx.dims_at(a.index)
    along = indexed[at] if len(indexed) == len(own) else indexed[0]
    given = list(cx.dims_at(source))
    alike = all(i == at or not d.varies(dim) or dim == given[i] for i, dim in enumerate(own))
    if not alike or given[at] != along or not d.is_prefix(own[at]):
        raise RefusedError(f"{node.target}: padding lies differently in its operands")
    name = "src" if source is getattr(a, "src", None) else "source"
    return cx.run(node, own, index=cx.cleaned(a.index, 0), **{name: cx.cleaned(source, 0)})
