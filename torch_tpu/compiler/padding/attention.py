"""Rules of attention: scores of padding count for nothing, forward and backward."""

from typing import Any

from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.context import Args, Context, aten, rule
from torch_tpu.compiler.padding.dims import Dim, RefusedError


@rule("_scaled_dot_product_fused_attention_overrideable")
def attention(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    dims, bias, causal = _attention(cx, node, a)
    exact = cx.exact_dims(node)
    out = (*dims[:3], cx.dims_at(a.value)[3])
    clean = cx.zeroed(a, "key", "value", which=[2])
    return cx.run(node, [out, dims[:3], *exact[2:]], attn_bias=bias, is_causal=causal, **clean)


def _attention(cx: Context, node: fx.Node, a: Args) -> tuple[tuple[Dim, ...], Any, bool]:
    """The query's dims; what is added to the scores, for padding too; whether they are causal."""
    if a.dropout_p:
        raise RefusedError(f"{node.target} draws random numbers")
    query, key, value = (cx.dims_at(one) for one in (a.query, a.key, a.value))
    cx.alike(node, query[:1], key[:1])
    if d.varies(query[1]) or d.varies(key[1]):  # otherwise queries may be grouped
        cx.alike(node, query[1:2], key[1:2])
    cx.alike(node, key[:3], value[:3])
    cx.refuse_along(node, (query[3], value[3]), (0, 1))
    bias = a.attn_bias and cx.cleaned(a.attn_bias, 0, range(3))
    if not d.varies(key[2]):
        return query, bias, a.is_causal
    if a.is_causal:  # a query sees no key behind it
        if query[2] != key[2]:
            raise RefusedError(f"{node.target}: causal, of queries and keys of two lengths")
        return query, bias, True
    if bias is None:
        row = cx.emit(
            aten.zeros.default,
            [1, 1, 1, cx.bound(d.size_of(key[2]))],
            dtype=cx.value(a.query).dtype,
            device=cx.device,
            dims=(d.ONE, d.ONE, d.ONE, key[2]),
        )
        return query, cx.cleaned(row, float("-inf"), [3]), False
    if cx.dims(bias)[-1] != key[2]:
        raise RefusedError(f"{node.target}: a mask of another size than the keys")
    return query, cx.cleaned(bias, float("-inf"), [-1]), False


@rule("_scaled_dot_product_fused_attention_overrideable_backward")
def attention_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    query, bias, causal = _attention(cx, node, a)
    exact = cx.exact_dims(node)
    if a.grad_input_mask[3] and any(map(d.varies, exact[3])):
        raise RefusedError(f"{node.target} of a mask whose size varies")
    cx.alike(
        node,
        query[:3],
        cx.dims_at(a.grad_out)[:3],
        cx.dims_at(a.out)[:3],
        cx.dims_at(a.logsumexp),
    )
    clean = cx.zeroed(a, "grad_out", "query", "key", "value", "out", "logsumexp")
    return cx.run(
        node,
        [query, cx.dims_at(a.key), cx.dims_at(a.value), exact[3]],
        attn_bias=bias,
        is_causal=causal,
        **clean,
    )
