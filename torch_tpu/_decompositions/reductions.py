"""Distances within one set of points, histograms of many dimensions, and segments."""

import math

import torch
from torch import Tensor

from torch_tpu._decompositions import decomposes

aten = torch.ops.aten

# -- Distances of all pairs of rows --


def _pairs(self: Tensor) -> tuple[Tensor, Tensor]:
    first, second = torch.triu_indices(
        len(self), len(self), 1, device=self.device, dtype=torch.int64
    )
    return first, second


@decomposes("_pdist_forward")
def pdist(self: Tensor, p: float = 2.0) -> Tensor:
    """Distances between all pairs of rows."""
    if len(self) < 2:
        return self.new_empty(0)
    return aten._cdist_forward(self, self, p, None)[_pairs(self)]


@decomposes("_pdist_backward")
def pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    """Gradient of the distances between all pairs of rows."""
    if len(self) < 2 or self.numel() == 0:
        return torch.zeros_like(self)
    first, second = _pairs(self)

    def square(values: Tensor) -> Tensor:
        half = self.new_zeros(len(self), len(self)).index_put((first, second), values)
        return half + half.mT

    return aten._cdist_backward(square(grad), self, self, p, square(pdist))


# -- Histograms --


def _outer_edges(points: Tensor, limits: list[float] | None) -> tuple[Tensor, Tensor]:
    dims = points.shape[1]
    if limits is not None:
        low, high = points.new_tensor(limits).reshape(dims, 2).unbind(1)
    elif len(points) == 0:
        return points.new_zeros(dims), points.new_ones(dims)
    else:
        low, high = torch.aminmax(points, dim=0)
    same = (low == high).to(points.dtype) / 2
    return low - same, high + same


@decomposes("_histogramdd_bin_edges")
def histogram_edges(
    self: Tensor,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    """Edges of equal bins in each dimension."""
    lows, highs = _outer_edges(self.reshape(-1, self.shape[-1]), range)
    edges = []
    for count, low, high in zip(bins, lows, highs, strict=True):
        step = torch.arange(count + 1, dtype=self.dtype, device=self.device)
        width = (high - low) / count
        first_half = step < (count + 1) // 2
        edges.append(torch.where(first_half, low + width * step, high - width * (count - step)))
    return edges


@decomposes("_histogramdd_from_bin_tensors")
def histogram_between(
    self: Tensor, bins: list[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """How many points, or which sum of weights, lie between the edges in every dimension."""
    points = self.reshape(-1, self.shape[-1])
    shape = [len(edges) - 1 for edges in bins]
    weights = torch.ones_like(points[:, 0]) if weight is None else weight.reshape(-1)
    place = torch.zeros_like(weights, dtype=torch.int64)
    inside = torch.ones_like(place, dtype=torch.bool)
    for column, edges, count in zip(points.unbind(1), bins, shape, strict=True):
        column = column.contiguous()
        bin = torch.searchsorted(edges.contiguous(), column, right=True) - 1
        bin = torch.where(column == edges[-1], count - 1, bin)
        inside &= (bin >= 0) & (bin < count)
        place = place * count + bin
    size = math.prod(shape)
    counts = weights.new_zeros(size + 1).index_add(0, place.where(inside, size), weights)
    histogram = counts[:size].reshape(shape)
    if density:
        histogram = histogram / histogram.sum()
        for dim, edges in enumerate(bins):
            widths = edges.diff().reshape([-1 if i == dim else 1 for i in range(len(bins))])
            histogram = histogram / widths
    return histogram


@decomposes("_histogramdd_from_bin_cts")
def histogram_of_equal_bins(
    self: Tensor,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """How many points, or which sum of weights, lie in each of equal bins."""
    edges = histogram_edges(self, bins, range=range)
    return histogram_between(self, edges, weight=weight, density=density)


# -- Segments --

_OTHER_NAMES = {"amax": "max", "amin": "min"}
_IDENTITIES = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCERS = {"sum": "sum", "mean": "sum", "prod": "prod", "max": "amax", "min": "amin"}


class _Segments:
    """Which segment each slice along `axis` belongs to; those of none form one more, the last."""

    def __init__(
        self, data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int
    ) -> None:
        if offsets is None:
            assert lengths is not None
            offsets = torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))
        axis %= data.dim()
        self.axis = axis
        self.lengths = self.spread(offsets.diff(), data)
        self.count = offsets.shape[-1] - 1
        place = torch.arange(data.shape[axis], device=data.device).expand(
            *offsets.shape[:-1], data.shape[axis]
        )
        segment = torch.searchsorted(
            offsets[..., 1:].long().contiguous(), place.contiguous(), right=True
        )
        segment = torch.where(place < offsets[..., :1], self.count, segment)
        self.segment = self.spread(segment, data).expand(data.shape)

    def spread(self, x: Tensor, data: Tensor) -> Tensor:
        return x.reshape(x.shape + (1,) * (data.dim() - self.axis - 1))

    def reduce(self, data: Tensor, how: str, start: float) -> Tensor:
        shape = list(data.shape)
        shape[self.axis] = self.count + 1
        whole = data.new_full(shape, start).scatter_reduce(self.axis, self.segment, data, how)
        return whole.narrow(self.axis, 0, self.count)

    def gather(self, per_segment: Tensor) -> Tensor:
        """Gives each element its segment's value, and 0 outside of all segments."""
        shape = list(per_segment.shape)
        shape[self.axis] = 1
        with_rest = torch.cat([per_segment, per_segment.new_zeros(shape)], self.axis)
        return with_rest.gather(self.axis, self.segment)


@decomposes("segment_reduce")
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduces consecutive stretches of one dimension."""
    torch._check(indices is None, lambda: "segment_reduce: indices are not supported")
    torch._check(
        lengths is not None or offsets is not None,
        lambda: "segment_reduce: either lengths or offsets must be given",
    )
    if lengths is not None and not unsafe:
        fits = (lengths >= 0).all() & (lengths.sum(-1) == data.shape[axis]).all()
        torch._check(
            bool(fits),
            lambda: "segment_reduce: lengths must not be negative and sum to the data's size",
        )
    if not data.is_floating_point():
        raise NotImplementedError(f"segment_reduce: not implemented for {data.dtype}; use floats")
    reduce = _OTHER_NAMES.get(reduce, reduce)
    segments = _Segments(data, lengths, offsets, axis)
    start = _IDENTITIES[reduce] if initial is None else float(initial)
    result = segments.reduce(data, _REDUCERS[reduce], start)
    if reduce == "mean":
        nothing = segments.lengths == 0
        mean = result / torch.where(nothing, 1, segments.lengths)
        result = torch.where(nothing, math.nan, mean) if initial is None else mean
    return result


@decomposes("_segment_reduce_backward")
def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Tensor:
    """Gradient of the reduction of consecutive stretches."""
    reduce = _OTHER_NAMES.get(reduce, reduce)
    segments = _Segments(data, lengths, offsets, axis)
    if reduce == "sum":
        return segments.gather(grad)
    if reduce == "mean":
        return segments.gather(grad / segments.lengths.clamp(min=1))
    if reduce in ("max", "min"):
        hit = ((data == segments.gather(output)) | data.isnan()).to(grad.dtype)
        return hit * segments.gather(grad / segments.reduce(hit, "sum", 0).clamp(min=1))
    zero, nan = data == 0, data.isnan()
    alone = zero | nan  # the output cannot be divided by it: the product of the others is made anew

    def others_of(kind: Tensor) -> Tensor:
        return segments.gather(segments.reduce(kind.to(data.dtype), "sum", 0)) > kind

    start = 1.0 if initial is None else float(initial)
    anew = segments.gather(segments.reduce(torch.where(alone, 1, data), "prod", start))
    anew = torch.where(others_of(nan), math.nan, torch.where(others_of(zero), 0, anew))
    others = torch.where(alone, anew, segments.gather(output) / data)
    return segments.gather(grad) * others
