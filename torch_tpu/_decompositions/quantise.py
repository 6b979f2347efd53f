"""Fake quantisation: rounding to what small integers could hold, and choosing their scales."""

import torch
from torch import Tensor

from torch_tpu._decompositions import decomposes


def rounded(values: Tensor, scale: Tensor | float, zero_point: Tensor | int) -> Tensor:
    """The whole numbers, not clamped, that values become; they are floating point.

    A zero point of fractions is added before rounding.
    """
    scaled = values * (1 / scale)
    if isinstance(zero_point, Tensor) and zero_point.is_floating_point():
        return torch.round(scaled + zero_point)
    return torch.round(scaled) + zero_point


def along(values: Tensor, like: Tensor, axis: int) -> Tensor:
    """Values for the places along an axis, as they spread over a tensor."""
    return values.reshape([-1 if dim == axis else 1 for dim in range(like.dim())])


def _fake_quantise(
    self: Tensor, scale: Tensor | float, zero_point: Tensor | int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Returns the values as integers would hold them, and which of them those can hold."""
    quantised = rounded(self, scale, zero_point)
    values = (quantised.clamp(low, high) - zero_point) * scale
    return values.to(self.dtype), (quantised >= low) & (quantised <= high)


@decomposes("fake_quantize_per_tensor_affine_cachemask")
def fake_quantise(
    self: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Rounds to what small integers could hold, all with one scale."""
    return _fake_quantise(self, scale, zero_point, quant_min, quant_max)


@decomposes("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantise_if_enabled(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    fake_quant_enabled: Tensor,
    quant_min: int,
    quant_max: int,
) -> tuple[Tensor, Tensor]:
    """Rounds to what small integers could hold, where that is switched on."""
    values, mask = _fake_quantise(self, scale, zero_point, quant_min, quant_max)
    enabled = fake_quant_enabled != 0
    return torch.where(enabled, values, self), mask | ~enabled


@decomposes("fake_quantize_per_channel_affine_cachemask")
def fake_quantise_channels(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Rounds to what small integers could hold, with a scale for each channel."""
    scale, zero_point = along(scale, self, axis), along(zero_point, self, axis)
    return _fake_quantise(self, scale, zero_point, quant_min, quant_max)


def _whole(zero_point: Tensor, low: int, high: int) -> Tensor:
    return torch.round(zero_point).clamp(low, high).to(torch.int64)


@decomposes("_fake_quantize_learnable_per_tensor_affine")
def fake_quantise_learnable(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """Rounds to what small integers could hold, with a learnable scale."""
    whole = _whole(zero_point, quant_min, quant_max)
    return _fake_quantise(self, scale, whole, quant_min, quant_max)[0]


@decomposes("_fake_quantize_learnable_per_channel_affine")
def fake_quantise_learnable_channels(
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """Rounds to what small integers could hold, with a learnable scale for each channel."""
    scale, zero_point = along(scale, self, axis), along(zero_point, self, axis)
    whole = _whole(zero_point, quant_min, quant_max)
    return _fake_quantise(self, scale, whole, quant_min, quant_max)[0]


def _learnable_backward(
    grad: Tensor, self: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor, Tensor]:
    whole = _whole(zero_point, low, high)
    values, inside = _fake_quantise(self, scale, whole, low, high)
    by_scale = torch.where(inside, (values - self) / scale, values / scale)
    by_zero_point = torch.where(inside, 0, -scale)
    return grad * inside, grad * by_scale, grad * by_zero_point


@decomposes("_fake_quantize_learnable_per_tensor_affine_backward")
def fake_quantise_learnable_backward(
    grad: Tensor,
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of rounding with a learnable scale."""
    dx, ds, dz = _learnable_backward(grad, self, scale, zero_point, quant_min, quant_max)
    return dx, (ds.sum() * grad_factor).reshape(1), (dz.sum() * grad_factor).reshape(1)


@decomposes("_fake_quantize_learnable_per_channel_affine_backward")
def fake_quantise_learnable_channels_backward(
    grad: Tensor,
    self: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of rounding with a learnable scale for each channel."""
    wide = along(scale, self, axis), along(zero_point, self, axis)
    dx, ds, dz = _learnable_backward(grad, self, *wide, quant_min, quant_max)
    others = [dim for dim in range(self.dim()) if dim != axis % self.dim()]
    if others:
        ds, dz = ds.sum(others), dz.sum(others)
    return dx, ds * grad_factor, dz * grad_factor


# -- The observer of quantisation-aware training --

_LEAST_SCALE = 6.1e-5


def _observe(running: Tensor, seen: Tensor, average: float, on: Tensor) -> Tensor:
    """The running extreme: what was seen, if it is the first; blended into later ones."""
    first = torch.isinf(running)
    new = torch.where(first, seen, running + average * (seen - running))
    return running.copy_(torch.where(on, new, running))


def choose_parameters(
    least: Tensor, most: Tensor, low: int, high: int, symmetric: bool
) -> tuple[Tensor, Tensor]:
    """Returns the scale and the zero point that map the range, widened to hold 0, to integers."""
    least, most = least.double().clamp(max=0), most.double().clamp(min=0)
    if symmetric:
        half = (high - low) // 2
        widest = torch.maximum((least / -(half + 1)).abs(), (most / half).abs())
        both = (least < 0) & (most > 0)
        least = torch.where(both, -widest * (half + 1), least)
        most = torch.where(both, widest * half, most)
    scale = (most - least) / (high - low)
    scale = torch.where((scale.float() == 0) | torch.isinf(1 / scale.float()), 0.1, scale)
    small = scale < _LEAST_SCALE
    stretch = torch.where(small, _LEAST_SCALE / scale, 1)
    above = torch.where(most == 0, 0, most * stretch)
    least = torch.where(small & (most == 0), -_LEAST_SCALE * (high - low), least * stretch)
    most, scale = above, scale.clamp(min=_LEAST_SCALE)
    from_least, from_most = low - least / scale, high - most / scale
    nearer = abs(low) - (least / scale).abs() < abs(high) - (most / scale).abs()
    zero_point = torch.where(nearer, from_least, from_most)
    if symmetric:
        zero_point = torch.where((least < 0) & (most > 0), (low + high) / 2, zero_point)
    return scale, torch.round(zero_point).clamp(low, high)


@decomposes("_fused_moving_avg_obs_fq_helper")
def observe_and_fake_quantise(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, Tensor]:
    """Follows the range of the values, chooses a scale by it, and rounds."""
    observing, rounding = observer_on.reshape(()) != 0, fake_quant_on.reshape(()) != 0
    if per_row_fake_quant:
        least, most = torch.aminmax(self.movedim(ch_axis, 0).flatten(1), dim=1)
        if running_min.numel() == 0:  # a new observer does not know how many channels there are
            running_min.resize_(least.shape).fill_(torch.inf)
            running_max.resize_(least.shape).fill_(-torch.inf)
            scale.resize_(least.shape)
            zero_point.resize_(least.shape)
    else:
        least, most = torch.aminmax(self)
    _observe(running_min, least, averaging_const, observing)
    _observe(running_max, most, averaging_const, observing)
    chosen = choose_parameters(running_min, running_max, quant_min, quant_max, symmetric_quant)
    for parameter, value in zip((scale, zero_point), chosen, strict=True):
        parameter.copy_(torch.where(rounding, value.to(parameter.dtype), parameter))
    own = (scale, zero_point)
    if per_row_fake_quant:
        own = (along(scale, self, ch_axis), along(zero_point, self, ch_axis))
    values, mask = _fake_quantise(self, *own, quant_min, quant_max)
    return torch.where(rounding, values, self), mask | ~rounding
