"""Rules of what reads or writes where an index says; an index that is padding is 0."""

import torch
from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.context import Args, Context, rule
from torch_tpu.compiler.padding.dims import Dim, RefusedError


@rule("embedding")
def embedding(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    table = cx.dims_at(a.weight)
    if not d.is_prefix(table[0]):
        raise RefusedError(f"{node.target}: a table that does not begin with what counts")
    return cx.run(node, (*cx.dims_at(a.indices), table[1]), indices=cx.cleaned(a.indices, 0))


@rule("scatter")
def scatter(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    at = a.dim % max(len(own), 1)
    others = [cx.dims_at(one) for one in (a.index, getattr(a, "src", None)) if one is not None]
    for dims in others:
        cx.alike(node, own[:at] + own[at + 1 :], dims[:at] + dims[at + 1 :])
        cx.refuse_along(node, dims, [at])
    cx.refuse_along(node, own, [at])
    return cx.run(node, own, index=cx.cleaned(a.index, 0))


@rule("gather")
def gather(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, index = cx.dims_at(a.self_), cx.dims_at(a.index)
    if not own:
        raise RefusedError(f"{node.target} of a number")
    at = a.dim % len(own)
    others = [i for i, dim in enumerate(own) if i != at and d.varies(dim)]
    cx.alike(node, [own[i] for i in others], [index[i] for i in others])
    cx.refuse_unless_prefix(node, own, [at])
    return cx.run(node, index, index=cx.cleaned(a.index, 0))


@rule("index_select")
def index_select(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = list(cx.dims_at(a.self_))
    cx.refuse_unless_prefix(node, own, [a.dim])
    own[a.dim] = cx.dims_at(a.index)[0]
    return cx.run(node, tuple(own), index=cx.cleaned(a.index, 0))


@rule("index.Tensor", "_unsafe_index.Tensor")
def index(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    listed = [*a.indices, *[None] * (len(own) - len(a.indices))]
    at = [i for i, one in enumerate(listed) if one is not None]
    cx.refuse_unless_prefix(node, own, at)
    spread = _spread(cx, node, [listed[i] for i in at])
    rest = [own[i] for i in range(len(own)) if i not in at]
    together = at == list(range(at[0], at[-1] + 1))
    place = at[0] if together else 0
    dims = (*rest[:place], *spread, *rest[place:])
    clean = [None if one is None else cx.cleaned(one, 0) for one in a.indices]
    return cx.run(node, dims, indices=clean)


def _spread(cx: Context, node: fx.Node, indices: list[fx.Node]) -> tuple[Dim, ...]:
    """The dims of indices, which are no masks, that are broadcast to one another."""
    if any(cx.value(one).dtype == torch.bool for one in indices):
        raise RefusedError(f"{node.target} with a mask")
    rank = max(len(cx.dims_at(one)) for one in indices)
    made = []
    for i in range(-rank, 0):
        found = {own[i] for one in indices if len(own := cx.dims_at(one)) >= -i} - {d.ONE}
        cx.alike(node, *([dim] for dim in found))
        made.append(found.pop() if found else d.ONE)
    return tuple(made)


@rule("index_put", "_unsafe_index_put")
def index_put(cx: Context, node: fx.Node, a: Args) -> fx.Node:
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
def embedding_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    grad = cx.dims_at(a.grad_output)
    cx.alike(node, grad[:-1], cx.dims_at(a.indices))
    if a.scale_grad_by_freq:
        raise RefusedError(f"{node.target} counts its indices")
    return cx.run(node, cx.exact_dims(node), **cx.zeroed(a, "grad_output", "indices"))


@rule("scatter_add", "index_add")
def scatter_add(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.self_)
    source = "src" if hasattr(a, "src") else "source"
    at = a.dim % len(own)
    indexed = cx.dims_at(a.index)
    along = indexed[at] if len(indexed) == len(own) else indexed[0]
    given = cx.dims_at(getattr(a, source))
    others = [i for i, dim in enumerate(own) if i != at and d.varies(dim)]
    cx.alike(node, [own[i] for i in others], [given[i] for i in others])
    cx.alike(node, [given[at]], [along])
    cx.refuse_unless_prefix(node, own, [at])
    return cx.run(node, own, **cx.zeroed(a, "index", source))
