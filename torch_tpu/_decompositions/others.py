"""Checks, creation into given tensors, scaled products, and fake quantisation."""

import torch
from torch import Tensor

from torch_tpu._decompositions import decomposes

# -- Checks, which wait --


@decomposes("_assert_async", "_assert_async.msg")
def assert_async(self: Tensor, message: str = "Expected Tensor with single nonzero value") -> None:
    """Raises an error if the one element is 0."""
    torch._check(bool(self), lambda: message)


# -- Creation --


@decomposes("range.out")
def range_out(start: float, end: float, step: float = 1, *, out: Tensor) -> Tensor:
    """Numbers from the first to the last, which is included."""
    torch._check(step != 0, lambda: "step must be nonzero")
    torch._check(
        (end - start) * step >= 0, lambda: "upper bound and lower bound inconsistent with step sign"
    )
    count = int((end - start) / step) + 1
    steps = torch.arange(count, dtype=torch.float64, device=out.device)
    return out.resize_(count).copy_(start + step * steps)


@decomposes("randperm.generator_out")
def randperm_out(n: int, *, generator: torch.Generator | None, out: Tensor) -> Tensor:
    """A random permutation."""
    drawn = torch.randperm(n, generator=generator, dtype=out.dtype, device=out.device)
    return out.resize_(n).copy_(drawn)


# -- Products of scaled small floats --


@decomposes("_scaled_mm")
def scaled_product(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Product of two matrices, each with a scale for all or for each row or column."""
    result = (self.float() * scale_a) @ (mat2.float() * scale_b)
    if bias is not None:
        result = result + bias
    if scale_result is not None:
        result = result * scale_result
    return result.to(out_dtype or self.dtype)


# -- Fake quantisation --


def _fake_quantise(
    self: Tensor, scale: Tensor | float, zero_point: Tensor | int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Returns the values as integers would hold them, and which of them those can hold."""
    inverse = 1 / scale
    if isinstance(zero_point, Tensor) and zero_point.is_floating_point():
        quantised = torch.round(self * inverse + zero_point)
    else:
        quantised = torch.round(self * inverse) + zero_point
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


def _along(values: Tensor, self: Tensor, axis: int) -> Tensor:
    return values.reshape([-1 if dim == axis else 1 for dim in range(self.dim())])


@decomposes("fake_quantize_per_channel_affine_cachemask")
def fake_quantise_channels(
    self: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    """Rounds to what small integers could hold, with a scale for each channel."""
    scale, zero_point = _along(scale, self, axis), _along(zero_point, self, axis)
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
    scale, zero_point = _along(scale, self, axis), _along(zero_point, self, axis)
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
    wide = _along(scale, self, axis), _along(zero_point, self, axis)
    dx, ds, dz = _learnable_backward(grad, self, *wide, quant_min, quant_max)
    others = [dim for dim in range(self.dim()) if dim != axis % self.dim()]
    if others:
        ds, dz = ds.sum(others), dz.sum(others)
    return dx, ds * grad_factor, dz * grad_factor
