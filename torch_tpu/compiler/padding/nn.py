"""Rules of convolutions, norms and losses."""

from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.columns import tensors
from torch_tpu.compiler.padding.context import Args, Context, aten, name_of, rule
from torch_tpu.compiler.padding.dims import Dim, RefusedError
from torch_tpu.compiler.padding.reductions import count_of


@rule("convolution")
def convolution(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, exact = cx.dims_at(a.input), cx.exact_dims(node)
    if any(map(d.varies, cx.dims_at(a.weight))) or not all(map(d.is_prefix, own[1:])):
        raise RefusedError(f"{node.target} with a kernel whose size varies")
    return cx.run(node, (own[0], *exact[1:]), input=cx.cleaned(a.input, 0, range(1, len(own))))


@rule("convolution_backward")
def convolution_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, exact = cx.dims_at(a.input), cx.exact_dims(node)
    grad = cx.dims_at(a.grad_output)
    cx.alike(node, own[:1], grad[:1])
    cx.refuse_unless_prefix(node, own[1:] + grad[1:], range(2 * len(own) - 2))
    clean = cx.zeroed(a, "grad_output", "input")
    return cx.run(node, [own, *exact[1:]], **clean)


@rule("dot", "mv")
def vector_product(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    other = "tensor" if name_of(node.target) == "dot" else "vec"
    own = cx.dims_at(a.self_)
    cx.alike(node, own[-1:], cx.dims_at(getattr(a, other)))
    return cx.run(node, own[:-1], **cx.zeroed(a, "self", other, which=[-1]))


# -- Norms --


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.grad_output)
    cx.alike(node, own, cx.dims_at(a.output))
    return cx.run(node, own, **cx.zeroed(a, "grad_output", "output", which=[a.dim]))


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def layer_norm_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.input)
    cx.refuse_along(node, own, range(len(own) - len(a.normalized_shape), len(own)))
    cx.alike(node, own, cx.dims_at(a.grad_out))
    clean = cx.zeroed(a, *(one for one in ("grad_out", "input", "mean", "rstd") if hasattr(a, one)))
    exact = cx.exact_dims(node)
    return cx.run(node, [own, *exact[1:]], **clean)


@rule("_fused_rms_norm")
def rms_norm(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own = cx.dims_at(a.input)
    lead = len(own) - len(a.normalized_shape)
    cx.refuse_along(node, own, range(lead, len(own)))
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
def by_sample(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    first = tensors(cx, node)[0]
    own = cx.dims_at(first)
    cx.refuse_along(node, own, range(1, len(own)))
    exact = cx.exact_dims(node)
    if isinstance(exact, list):
        return cx.run(
            node, [(own[0], *one[1:]) if one and d.varies(one[0]) else one for one in exact]
        )
    return cx.run(node, (own[0], *exact[1:]))


# -- Losses --


@rule("nll_loss_forward", "nll_loss_backward")
def nll_loss(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    own, target = cx.dims_at(a.self_), cx.dims_at(a.target)
    cx.alike(node, own[:-1], target)
    cx.refuse_along(node, own, [-1])
    skipped = cx.cleaned(a.target, a.ignore_index)
    if "backward" in str(node.target):
        return cx.run(node, own, target=skipped)
    exact = cx.exact_dims(node)
    return cx.run(node, [target if exact[0] else (), exact[1]], target=skipped)


LOSSES = (
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "soft_margin_loss",
)


@rule(*LOSSES)
def loss(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    dims = _loss_dims(cx, node)
    each = cx.run(node, dims, reduction=0)
    if a.reduction == 0:
        return each
    total = cx.emit(aten.sum.default, cx.cleaned(each, 0))
    return total if a.reduction == 2 else cx.emit(aten.div.Tensor, total, count_of(cx, list(dims)))


def _loss_dims(cx: Context, node: fx.Node) -> tuple[Dim, ...]:
    """Of the loss of each element."""
    shapes = [cx.dims_at(one) for one in tensors(cx, node)]
    longest = max(shapes, key=len)
    cx.alike(node, *[one for one in shapes if one])
    return longest


@rule(*(f"{name}_backward" for name in LOSSES))
def loss_backward(cx: Context, node: fx.Node, a: Args) -> fx.Node:
    dims = _loss_dims(cx, node)
    if a.reduction != 1:
        return cx.run(node, dims)
    grad = cx.emit(aten.div.Tensor, cx.of(a.grad_output), count_of(cx, list(dims)))
    return cx.run(node, dims, grad_output=grad, reduction=2)
