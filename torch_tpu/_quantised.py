"""Quantised tensors: integers on the device, with PyTorch's quantizer (scales, zero points) beside.

PyTorch's own kernels, which `_lent.py` lends, make them, take views of them, and tell their scales;
here are those that touch the integers. Imported with the device: it registers its functions.
"""

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from torch_tpu._decompositions import quantise
from torch_tpu._register import DENSE, QUANTISED, register

INTEGERS = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
"""What each quantised dtype stores."""

_DTYPES = {dtype: quantised for quantised, dtype in INTEGERS.items()}

CHANNELS = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)


def _stored(dtype: torch.dtype) -> torch.dtype:
    if dtype not in INTEGERS:
        raise NotImplementedError(
            f"device 'tpu' has no tensors of {dtype}: use one of "
            f"{', '.join(str(one) for one in INTEGERS)}"
        )
    return INTEGERS[dtype]


def integers(self: Tensor) -> Tensor:
    """The integers of a quantised tensor of any device, in the same storage."""
    plain = torch.empty(0, dtype=_stored(self.dtype), device=self.device)
    return plain.set_(self.untyped_storage(), self.storage_offset(), self.size(), self.stride())


def _parameters(quantised: Tensor) -> tuple[float | Tensor, int | Tensor]:
    """Its scale and zero point, as they spread over it."""
    if quantised.qscheme() not in CHANNELS:
        return quantised.q_scale(), quantised.q_zero_point()
    axis = quantised.q_per_channel_axis()
    scales, zeros = quantised.q_per_channel_scales(), quantised.q_per_channel_zero_points()
    return quantise.along(scales, quantised, axis).float(), quantise.along(zeros, quantised, axis)


def _fill(quantised: Tensor, values: Tensor) -> Tensor:
    """Rounds values to the scales of a tensor, and writes them there."""
    if values.dtype != torch.float32:
        raise RuntimeError(f"quantize: expected a float32 tensor, and got {values.dtype}")
    info = torch.iinfo(_stored(quantised.dtype))
    whole = quantise.rounded(values, *_parameters(quantised))
    wide = whole.to(torch.float64) if quantised.dtype == torch.qint32 else whole
    integers(quantised).copy_(wide.clamp(info.min, info.max))
    return quantised


def _empty(
    like: Tensor, scale: float, zero_point: int, dtype: torch.dtype, layout: torch.memory_format
) -> Tensor:
    return torch._empty_affine_quantized(
        like.shape,
        scale=scale,
        zero_point=zero_point,
        dtype=dtype,
        device=like.device,
        memory_format=layout,
    )


def _empty_channels(
    like: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    dtype: torch.dtype,
    layout: torch.memory_format,
) -> Tensor:
    return torch._empty_per_channel_affine_quantized(
        like.shape,
        scales=scales,
        zero_points=zero_points,
        axis=axis,
        dtype=dtype,
        device=like.device,
        memory_format=layout,
    )


def _check_zero(zero: int, dtype: torch.dtype) -> None:
    info = torch.iinfo(_stored(dtype))
    if not info.min <= zero <= info.max:
        raise RuntimeError(
            f"quantize: zero_point {zero} is not among the numbers of {dtype}, "
            f"{info.min} to {info.max}"
        )


def quantize_per_tensor(self: Tensor, scale: float, zero_point: int, dtype: torch.dtype) -> Tensor:
    """Rounds to multiples of one scale."""
    _check_zero(zero_point, dtype)
    return _fill(_empty(self, scale, zero_point, dtype, suggest_memory_format(self)), self)


def quantize_by_tensors(
    self: Tensor, scale: Tensor, zero_point: Tensor, dtype: torch.dtype
) -> Tensor:
    """The same; the host reads the scale and the zero point, as it does for CUDA."""
    return quantize_per_tensor(self, scale.item(), int(zero_point.item()), dtype)


def quantize_list(
    tensors: list[Tensor], scales: Tensor, zero_points: Tensor, dtype: torch.dtype
) -> list[Tensor]:
    """Each with a scale and a zero point of its own."""
    numbers = zip(tensors, scales.tolist(), zero_points.tolist(), strict=True)
    return [quantize_per_tensor(one, scale, int(zero), dtype) for one, scale, zero in numbers]


def _range_of(dtype: torch.dtype, reduced: bool) -> tuple[int, int]:
    if dtype not in (torch.qint8, torch.quint8):
        raise RuntimeError(f"quantize_per_tensor_dynamic: expected qint8 or quint8, not {dtype}")
    low, high = (0, 255) if dtype == torch.quint8 else (-128, 127)
    return (low // 2, high // 2) if reduced else (low, high)


def quantize_dynamic(self: Tensor, dtype: torch.dtype, reduce_range: bool) -> Tensor:
    """Rounds to multiples of a scale that just fits the numbers; the host reads it."""
    bounds = _range_of(dtype, reduce_range)
    least, most = self.aminmax()
    scale, zero = quantise.choose_parameters(least, most, *bounds, symmetric=False)
    return quantize_by_tensors(self, scale, zero, dtype)


def quantize_per_channel(
    self: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: torch.dtype
) -> Tensor:
    """Rounds to multiples of a scale for each place along an axis."""
    layout = suggest_memory_format(self)
    return _fill(_empty_channels(self, scales, zero_points, axis, dtype, layout), self)


def dequantize(self: Tensor) -> Tensor:
    """The numbers that it stands for, float32."""
    scale, zero = _parameters(self)
    return (integers(self).to(torch.float32) - zero) * scale


def to_floats(self: Tensor) -> Tensor:
    """What is not quantised, as float32."""
    return self.to(torch.float32)


def dequantize_list(tensors: list[Tensor]) -> list[Tensor]:
    """The same of each."""
    return [dequantize(one) for one in tensors]


def int_repr(self: Tensor) -> Tensor:
    """A copy of the integers."""
    return integers(self).clone()


def make_per_tensor(self: Tensor, scale: float, zero_point: int) -> Tensor:
    """A quantised tensor of these integers."""
    target = _empty(self, scale, zero_point, _DTYPES[self.dtype], torch.contiguous_format)
    integers(target).copy_(self)
    return target


def make_per_channel(self: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """The same, with a scale for each place along an axis."""
    dtype = _DTYPES[self.dtype]
    target = _empty_channels(self, scale, zero_point, axis, dtype, torch.contiguous_format)
    integers(target).copy_(self)
    return target


def copy_from(self: Tensor, dst: Tensor, non_blocking: bool = False) -> Tensor:
    """Copies between quantised tensors, and rounds what is not quantised to the target's scales.

    `copy_` comes here, which minds shapes; who calls it minds scales.
    """
    if not dst.is_quantized:
        raise RuntimeError("copy_: a quantised tensor is copied to a quantised one: dequantize it")
    if not self.is_quantized:
        return _fill(dst, self.to(dst.device).expand(dst.shape))
    if self.dtype != dst.dtype or self.qscheme() != dst.qscheme():
        raise RuntimeError(
            f"copy_: expected one kind of quantised tensors, and got {self.dtype} with "
            f"{self.qscheme()} and {dst.dtype} with {dst.qscheme()}"
        )
    integers(dst).copy_(integers(self), non_blocking)
    return dst


def flip(self: Tensor, dims: list[int]) -> Tensor:
    """Turns dims around, of what has one scale, as on the CPU."""
    if self.qscheme() in CHANNELS:
        raise RuntimeError("flip: expected a quantised tensor with one scale: dequantize it")
    return make_per_tensor(integers(self).flip(dims), self.q_scale(), self.q_zero_point())


def equal(self: Tensor, other: Tensor) -> bool:
    """Whether two have the same dtype, scales, and integers."""
    if (self.dtype, self.qscheme(), self.shape) != (other.dtype, other.qscheme(), other.shape):
        return False
    pairs = zip(_parameters(self), _parameters(other), strict=True)
    same = [torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs]
    return all(same) and torch.equal(integers(self), integers(other))


register(
    DENSE,
    {
        "quantize_per_tensor": quantize_per_tensor,
        "quantize_per_tensor.tensor_qparams": quantize_by_tensors,
        "quantize_per_tensor.tensors": quantize_list,
        "quantize_per_tensor_dynamic": quantize_dynamic,
        "quantize_per_channel": quantize_per_channel,
        "_make_per_tensor_quantized_tensor": make_per_tensor,
        "_make_per_channel_quantized_tensor": make_per_channel,
        "dequantize.self": to_floats,
    },
)
register(
    QUANTISED,
    {
        "dequantize.self": dequantize,
        "dequantize.tensors": dequantize_list,
        "int_repr": int_repr,
        "equal": equal,
        "flip": flip,
        "_copy_from": copy_from,
    },
)
