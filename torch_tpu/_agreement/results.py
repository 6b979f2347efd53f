"""What PyTorch's Meta kernels say of results, and where the CPU's are otherwise."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch.utils._pytree import tree_map

from torch_tpu import _C
from torch_tpu._agreement.operators import Operator, Results, tensors_of

# -- Results that are stated here --


def _of_convolution(x: Tensor, w: Tensor) -> torch.memory_format:
    """How results lie: as the image or the weight; by rows where oneDNN has no part in it."""
    if x.dim() == 5 and x.dtype in (torch.float64, torch.float16):
        return torch.contiguous_format
    layout = suggest_memory_format(x)
    return suggest_memory_format(w) if layout == torch.contiguous_format else layout


def _convolve(args: list[Any]) -> Results:
    """A convolution's result. The arguments are those of aten::convolution.

    Its sizes were checked by who calls it.
    """
    x, w, _, strides, paddings, dilations, transposed, more, groups = args
    sizes = [x.shape[0], w.shape[1] * groups if transposed else w.shape[0]]
    for i, (size, kernel) in enumerate(zip(x.shape[2:], w.shape[2:], strict=True)):
        stride, padding = strides[i % len(strides)], paddings[i % len(paddings)]
        reach = dilations[i % len(dilations)] * (kernel - 1) + 1
        if transposed:
            sizes.append((size - 1) * stride - 2 * padding + reach + more[i % len(more)])
        else:
            sizes.append((size + 2 * padding - reach) // stride + 1)
    return [x.new_empty(sizes).to(memory_format=_of_convolution(x, w))]


def _convolve_back(args: list[Any]) -> Results:
    """Those gradients of a convolution that are asked for."""
    gradient, x, w, *_, mask = args
    layout = _of_convolution(x, w)
    bias = w.shape[0] if not args[6] else gradient.shape[1]
    like = (
        torch.empty_like(x, memory_format=layout),
        torch.empty_like(w, memory_format=layout),
        w.new_empty(bias),
    )
    return [one if wanted else None for one, wanted in zip(like, mask, strict=True)]


def _reflect(args: list[Any]) -> Results:
    """Reflectors in columns that lie together, and their factors: geqrf has no Meta kernel."""
    x = args[0]
    if x.dim() < 2:
        return []
    return [x.new_empty(x.mT.shape).mT, x.new_empty((*x.shape[:-2], min(x.shape[-2:])))]


def _lies_in_lines(x: Tensor) -> bool:
    """Whether the last two dims are those of a matrix by rows or by columns.

    On the CPU lines also begin at multiples of 16 bytes, for which its results have gaps; here
    results have none, and any line will do.
    """
    (rows, columns), (down, right) = x.shape[-2:], x.stride()[-2:]
    return (right == 1 and down >= max(1, columns)) or (down == 1 and right >= max(1, rows))


def _multiply_groups(args: list[Any]) -> Results:
    """Nothing if the CPU, and Meta, refuse the arguments."""
    a, b, ends, bias, dtype = args
    floats = (torch.float32, torch.bfloat16, torch.float16)
    if (
        a.dtype not in floats
        or b.dtype != a.dtype
        or dtype not in (None, a.dtype)
        or bias is not None
    ):
        return []
    form = a.dim(), b.dim()
    if not {*form} <= {2, 3} or not (_lies_in_lines(a) and _lies_in_lines(b)):
        return []
    if form != (2, 2) and a.shape[-1] != b.shape[-2]:
        return []
    if form == (3, 3):
        fits = ends is None and len(a) == len(b)
        return [a.new_empty(len(a), a.shape[1], b.shape[2])] if fits else []
    if ends is None or ends.dim() != 1 or ends.dtype != torch.int32:
        return []
    if form == (2, 2):
        return [a.new_empty(len(ends), len(a), b.shape[1])]
    fits = len(ends) == len(b if form == (2, 3) else a)
    return [a.new_empty(a.shape[-2], b.shape[-1])] if fits else []


def _normalize(args: list[Any]) -> Results:
    """The image is the second argument where the first one is its gradient."""
    second = args[1]
    back = second is not None and second.shape == args[0].shape
    return [torch.empty_like(second if back else args[0])]


def _norm_of_none(args: list[Any]) -> Results:
    """Nothing unless no number is reduced for want of results: along dims that are not empty."""
    x, _, dims, keep, dtype = args
    if x.numel() or not dims or not (x.dtype.is_floating_point or x.is_complex()):
        return []
    if any(not -x.dim() <= dim < x.dim() or x.shape[dim] == 0 for dim in dims):
        return []
    sums = x.sum(dims, keepdim=keep, dtype=dtype)
    return [sums.abs() if sums.is_complex() else sums]


def _gradient_of_none(args: list[Any]) -> Results:
    """Of the second argument; nothing where that has elements."""
    return [] if args[1].numel() else [torch.empty_like(args[1])]


STATED: dict[str, Callable[[list[Any]], Results]] = {
    "Convolved": _convolve,
    "ConvolvedBack": _convolve_back,
    "Reflected": _reflect,
    "Normalized": _normalize,
    "Grouped": _multiply_groups,
    "NormOfNone": _norm_of_none,
    "GradientOfNone": _gradient_of_none,
}

# -- Results of plain tensors, whose Meta kernels in Python take a millisecond to say the same --


def _plain(whole: list[Tensor], parts: list[Tensor | None], sizes: torch.Size) -> bool:
    """Whether tensors lie by rows, in one float, and have the first one's shape or these sizes."""
    x, tensors = whole[0], tensors_of([whole, parts])
    return (
        x.dtype in (torch.float32, torch.float64)
        and all(one.dtype == x.dtype and one.is_contiguous() for one in tensors)
        and all(one.shape == x.shape for one in whole)
        and all(one is None or one.shape == sizes for one in parts)
        and suggest_memory_format(x) == torch.contiguous_format
        and x.numel() > 0
    )


def _normalize_batch(args: list[Any]) -> Results:
    x, *parts, training, _, _ = args
    several = training and x.dim() > 1 and x.numel() > x.shape[1]
    if not several or not _plain([x], parts, x.shape[1:2]):
        return []
    return [torch.empty_like(x), *(x.new_empty(x.shape[1]) for _ in range(4))]


def _normalize_batch_back(args: list[Any]) -> Results:
    gradient, x, *parts, training, _, mask = args
    complete = training and all(mask) and None not in (parts[3], parts[4])
    if not complete or x.dim() < 2 or not _plain([x, gradient], parts, x.shape[1:2]):
        return []
    return [torch.empty_like(x), x.new_empty(x.shape[1]), x.new_empty(x.shape[1])]


def _statistics(x: Tensor, sizes: list[int]) -> Tensor:
    """Of a layer's normalization, by whose sizes the tensor ends."""
    return x.new_empty((*x.shape[: -len(sizes)], *(1 for _ in sizes)))


def _ends_with(x: Tensor, sizes: list[int]) -> bool:
    return bool(sizes) and list(x.shape[-len(sizes) :]) == sizes


def _normalize_layer(args: list[Any]) -> Results:
    x, sizes, *parts, _ = args
    if not _ends_with(x, sizes) or not _plain([x], parts, torch.Size(sizes)):
        return []
    return [torch.empty_like(x), _statistics(x, sizes), _statistics(x, sizes)]


def _normalize_layer_back(args: list[Any]) -> Results:
    gradient, x, sizes, mean, deviation, *parts, mask = args
    complete = all(mask) and None not in parts and _ends_with(x, sizes)
    if not complete or not _plain([x, gradient], parts, torch.Size(sizes)):
        return []
    if not _plain([_statistics(x, sizes), mean, deviation], [], x.shape):
        return []
    return [torch.empty_like(x), x.new_empty(sizes), x.new_empty(sizes)]


def _rectify(args: list[Any]) -> Results:
    """Also its gradient, whose first two arguments are tensors."""
    tensors = tensors_of(args)
    return [torch.empty_like(tensors[0])] if _plain(tensors, [], tensors[0].shape) else []


def _put_back(args: list[Any]) -> Results:
    gradient, sizes, _, _, end, _ = args
    return [gradient.new_empty(sizes)] if end == _C.AS_MANY else []


def _fit_plainly(args: list[Any]) -> bool:
    """Whether lists that are written are plain, element by element; the rest are real numbers."""
    lists = [one for one in args if isinstance(one, list | tuple)]
    numbers = [one for one in args if not isinstance(one, list | tuple)]
    if len({len(one) for one in lists}) != 1:
        return False
    for element in zip(*lists, strict=True):
        tensors = tensors_of([*element])
        numbers += [one for one in element if not isinstance(one, Tensor)]
        if not _plain(tensors, [], tensors[0].shape):
            return False
    return all(isinstance(one, int | float) for one in numbers)


PLAIN: dict[str, Callable[[list[Any]], Results]] = {
    "relu": _rectify,
    "threshold_backward": _rectify,
    "_native_batch_norm_legit_functional": _normalize_batch,
    "native_batch_norm_backward": _normalize_batch_back,
    "native_layer_norm": _normalize_layer,
    "native_layer_norm_backward": _normalize_layer_back,
    "slice_backward": _put_back,
}
"""By row."""

# -- Corrections --


def _training(op: Operator, args: list[Any]) -> bool:
    return op.argument >= 0 and bool(args[op.argument])


def _narrow_statistics(op: Operator, args: list[Any], results: Results) -> None:
    """The CPU keeps a normalization's in the input's dtype unless its parameters are wider."""
    dtype = args[0].dtype
    same = all(one.dtype == dtype for one in tensors_of(args))
    for i, one in enumerate(results[1:3] if same else (), 1):
        results[i] = (
            None if one is None else torch.empty_like(one, dtype=dtype).new_empty(one.shape)
        )


def _forget_statistics(op: Operator, args: list[Any], results: Results) -> None:
    for i, one in enumerate(results[1:3], 1):
        if one is not None and not _training(op, args):
            results[i] = one.new_empty(0)


def _forget_sample_dim(op: Operator, args: list[Any], results: Results) -> None:
    if args[0].dim() <= 1 and results[0] is not None:
        results[0] = results[0].new_empty(())


def _promote(op: Operator, args: list[Any], results: Results) -> None:
    dtype = torch.result_type(args[0], args[1])
    if (dtype.is_floating_point or dtype.is_complex) and results[0] is not None:
        results[0] = results[0].to(dtype)


def _keep_format(op: Operator, args: list[Any], results: Results) -> None:
    if results[0] is not None:
        image = next(one for one in ("input", "self") if one in op.names)
        layout = suggest_memory_format(args[op.names.index(image)])
        results[0] = torch.empty_like(results[0], memory_format=layout)


def _lay_by_rows(op: Operator, args: list[Any], results: Results) -> None:
    results[:] = [None if one is None else one.new_empty(one.shape) for one in results]


def _lay_like_first(op: Operator, args: list[Any], results: Results) -> None:
    if results[0] is not None:
        results[0] = torch.empty_like(args[0], dtype=results[0].dtype)


def _lay_as_gathered(op: Operator, args: list[Any], results: Results) -> None:
    """As AdvancedIndex in aten/src/ATen/native/TensorAdvancedIndexing.cpp prepares its iterator."""
    x, result = args[0], results[0]
    at = [i for i, one in enumerate(args[1]) if one is not None]
    indices = [args[1][i] for i in at]
    masks = any(one.dtype in (torch.bool, torch.uint8) for one in indices)
    if result is None or masks or not at:
        return
    if at[-1] - at[0] >= len(at):  # others are between them
        x = x.permute(at + [i for i in range(x.dim()) if i not in at])
        at = list(range(len(at)))
    first, after = at[0], x.dim() - len(at) - at[0]
    indices = list(torch.broadcast_tensors(*indices))
    sizes, strides = list(x.size()), list(x.stride())
    sizes[first : first + len(at)] = indices[0].shape
    strides[first : first + len(at)] = [0] * indices[0].dim()
    spread = [one.reshape((1,) * first + one.shape + (1,) * after) for one in indices]
    results[0] = _lay_by_iterator([x.as_strided(sizes, strides), *spread], result)


def _lay_by_iterator(operands: list[Tensor], result: Tensor) -> Tensor:
    """Returns the result as PyTorch's iterator over the operands lays it, of fake tensors as well.

    The sizes of these may be symbols: then it lies as it would for those that they stand for.
    """
    if type(result) is Tensor:
        return _C.iterated(operands, result)
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    plain = [_without_symbols(one) for one in (*operands, result)]
    if None in plain:
        return result
    with unset_fake_temporarily():
        meta = [torch.empty_strided(*one, device="meta") for one in plain if one]
        strides = _C.iterated(meta[:-1], meta[-1]).stride()
    order = sorted(range(result.dim()), key=lambda d: -strides[d])
    laid = result.new_empty([result.shape[d] for d in order])
    return laid.permute([order.index(d) for d in range(result.dim())])


def _without_symbols(x: Tensor) -> tuple[list[int], list[int]] | None:
    """Sizes and strides, or None where a symbol stands for no number."""
    sizes, strides = (
        [one if isinstance(one, int) else one.node.hint for one in numbers]
        for numbers in (x.size(), x.stride())
    )
    return None if None in (*sizes, *strides) else (sizes, strides)


def _lay_as_convolved(op: Operator, args: list[Any], results: Results) -> None:
    """PyTorch computes what has one dim as if it had two."""
    x, w = (args[op.names.index(name)] for name in ("input", "weight"))
    if x.dim() == 3:
        x, w = x.contiguous().unsqueeze(2), w.unsqueeze(2)
    layout = _of_convolution(x, w)
    for i, one in enumerate(results[:2]):
        if one is not None:
            wide = one.unsqueeze(2) if one.dim() == 3 else one
            laid = torch.empty_like(wide, memory_format=layout)
            results[i] = laid.squeeze(2) if one.dim() == 3 else laid


CORRECTIONS: dict[str, Callable[[Operator, list[Any], Results], None]] = {
    "NarrowStatistics": _narrow_statistics,
    "NoStatistics": _forget_statistics,
    "NoSampleDim": _forget_sample_dim,
    "Promotes": _promote,
    "AsConvolved": _lay_as_convolved,
    "KeepsFormat": _keep_format,
    "Contiguous": _lay_by_rows,
    "LikeFirst": _lay_like_first,
    "Gathers": _lay_as_gathered,
}


def _iterate(op: Operator, args: list[Any], result: Tensor) -> Tensor:
    """Numbers computed element by element lie as PyTorch's iterator has it.

    Shape functions in Python do without it, and only come near. A number that the CPU makes a
    tensor of has another shape than the others, which decides how dims of one element lie.
    """
    kinds = op.known.kinds
    operands = tensors_of(args[: -len(op.outs)] if op.outs else args)
    if "SecondFirst" in kinds:
        operands[:2] = operands[1], operands[0]
    if "WithNoise" in kinds:
        operands = [operands[2 if _training(op, args) else 1], operands[0]]
    if any(not isinstance(args[i], Tensor) for i in op.wrapped):
        operands.append(result.new_empty(()))
    return _lay_by_iterator(operands, result)


def state(op: Operator, args: list[Any]) -> Results | None:
    """Returns results whose types are stated here, since Meta does not state them, or slowly."""
    if op.outs:
        return None
    if op.kind == "foreach" and not op.fresh_count:
        return [] if _fit_plainly(args) else None
    if op.row in PLAIN:
        return PLAIN[op.row](args)[: op.fresh_count] or None
    return next((STATED[kind](args) for kind in op.known.kinds if kind in STATED), []) or None


def _fresh_targets(op: Operator, args: list[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the out= arguments, and what empty ones become: the sizes of the results.

    Meta warns of targets that are not empty and have other sizes, as who resizes them does.
    """
    outs = tensors_of([args[i] for i in op.outs])
    fresh = [one.new_empty(0) for one in outs]
    rest = iter(fresh)
    op.call_meta(
        [tree_map(lambda _: next(rest), one) if i in op.outs else one for i, one in enumerate(args)]
    )
    return outs, fresh


def _same_counts(some: list[Tensor], others: list[Tensor]) -> bool:
    return [one.numel() for one in some] == [one.numel() for one in others]


def fills(op: Operator, args: list[Any]) -> bool:
    """Whether an out= tensor has as many elements as the result, and so keeps its sizes."""
    return bool(op.outs) and _same_counts(*_fresh_targets(op, args))


def _without_targets(op: Operator, args: list[Any]) -> Results:
    """What the same overload without out= returns; nothing where there is none."""
    own, functional = args[: -len(op.outs)], op.functional
    if not functional or functional.names != op.names[: len(own)]:
        return []
    fresh = functional.call_meta(own)
    correct(functional, own, fresh)
    return fresh


def casts(op: Operator, args: list[Any]) -> bool:
    """Whether out= arguments can hold the results, though in another dtype.

    Meta kernels in Python want one dtype of them where the CPU casts.
    """
    if not op.outs:
        return False
    try:
        fresh = _without_targets(op, args)
    except Exception:
        return False  # Meta refuses the other arguments, too
    return len(fresh) == len(tensors_of([args[i] for i in op.outs])) and None not in fresh


def unfit(op: Operator, args: list[Any]) -> list[Tensor]:
    """Returns what out= arguments become where one is larger or smaller than the result."""
    if not op.has_meta or "FillsTarget" in op.known.kinds:
        return []
    if not any(one.numel() for one in tensors_of([args[i] for i in op.outs])):
        return []
    try:
        outs, fresh = _fresh_targets(op, args)
    except Exception:
        return []  # Meta refuses the arguments themselves, too, and then the CPU is asked
    if _same_counts(outs, fresh):
        return []
    return lay_targets(op, args, [one.shape for one in outs], fresh)


def lay_targets(
    op: Operator, args: list[Any], sizes: list[torch.Size], targets: list[Tensor]
) -> list[Tensor]:
    """Returns out= arguments, to which Meta gave the results' sizes, as they then lie.

    sizes: those before. One that has others now lies as the result without out= does where the CPU
    has a kernel for it; Meta kernels in Python lay it by rows, as PyTorch does elsewhere.
    """
    laid: Results = list(targets)
    correct(op, args, laid)
    resized = [one.shape != size for one, size in zip(targets, sizes, strict=True)]
    if any(resized) and op.for_cpu:
        for i, (one, like) in enumerate(zip(targets, _without_targets(op, args), strict=False)):
            if resized[i] and like is not None and like.shape == one.shape:
                laid[i] = one.new_empty_strided(like.shape, like.stride())
    return [one for one in laid if one is not None]


def correct(op: Operator, args: list[Any], results: Results) -> None:
    """Corrects what the Meta kernel said of the results or, where there are any, of out= arguments.

    args: without data.
    """
    if not results:
        return
    kinds = op.known.kinds
    for kind, change in CORRECTIONS.items() if kinds else ():
        if kind in kinds:
            change(op, args, results)
    first = results[0]
    iterates = op.kind == "pointwise" and not kinds & {"Contiguous", "LikeFirst"}
    if iterates and len(results) == 1 and first is not None:
        results[0] = _iterate(op, args, first)
