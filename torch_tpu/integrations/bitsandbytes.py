"""Its operators have kernels for devices that it names; on others they compile in vain, or miss.

What it has for every device runs through `torch.compile` with Inductor, which knows no `tpu`, at
each call anew; 8-bit optimizers and gradients of 8-bit weights it has for named devices only.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

TESTED = "0.50"


def apply(module: str) -> None:
    """Registers kernels for `tpu`."""
    # The library's own kernels of the CPU's optimizers are ordinary PyTorch.
    of_cpu = sys.modules["bitsandbytes.backends.cpu.ops"]
    kernels: dict[str, Callable[..., Any]] = {
        "dequantize_blockwise": dequantize_blockwise,
        "dequantize_blockwise.out": _written(dequantize_blockwise),
        "dequantize_4bit": dequantize_4bit,
        "dequantize_4bit.out": _written(dequantize_4bit),
        "gemv_4bit": gemv_4bit,
        "gemv_4bit.out": _written(gemv_4bit),
        "int8_linear_matmul": int8_linear_matmul,
        "int8_linear_matmul.out": _written(int8_linear_matmul),
        "int8_double_quant": int8_double_quant,
        "optimizer_update_32bit": of_cpu._optimizer_update_32bit_cpu,
        "optimizer_update_8bit_blockwise": of_cpu._optimizer_update_8bit_blockwise_cpu,
    }
    for name, kernel in kernels.items():
        torch.library.register_kernel(f"bitsandbytes::{name}", "tpu", kernel)


def _written(kernel: Callable[..., Tensor]) -> Callable[..., None]:
    def write(*operands: Any, out: Tensor) -> None:
        out.copy_(kernel(*operands))

    return write


def _scaled(values: Tensor, absmax: Tensor, block: int) -> Tensor:
    """Values (flat) by the scale of their block; the last block may be a short one."""
    missing = -values.numel() % block
    blocks = F.pad(values, (0, missing)).view(-1, block) * absmax.view(-1, 1)
    return blocks.flatten()[: values.numel()]


def dequantize_blockwise(
    codes: Tensor, absmax: Tensor, table: Tensor, block: int, dtype: torch.dtype
) -> Tensor:
    """Values of uint8 `codes` (any shape) by a `table` of 256 and a scale for each `block`."""
    return _scaled(table[codes.flatten().int()], absmax, block).view(codes.shape).to(dtype)


def _unpacked(
    packed: Tensor, absmax: Tensor, table: Tensor, block: int, shape: Sequence[int]
) -> Tensor:
    """Values (f32, of `shape`) of codes of 4 bits: two a byte, the high bits first."""
    bits = packed.contiguous().view(torch.uint8).flatten()
    codes = torch.stack([bits >> 4, bits & 15], 1).flatten()[: torch.Size(shape).numel()]
    return _scaled(table[codes.int()], absmax, block).view(shape)


@functools.cache
def _table(quant_type: str, device: torch.device) -> Tensor:
    table: Tensor = sys.modules["bitsandbytes.functional"].get_4bit_type(quant_type, device=device)
    return table


def dequantize_4bit(
    packed: Tensor,
    absmax: Tensor,
    block: int,
    quant_type: str,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """Values (of `shape`) of `packed` codes ("nf4" or "fp4") with a scale for each `block`."""
    return _unpacked(packed, absmax, _table(quant_type, packed.device), block, shape).to(dtype)


def gemv_4bit(
    x: Tensor, packed: Tensor, shape: Sequence[int], absmax: Tensor, table: Tensor, block: int
) -> Tensor:
    """`x` (..., k) times the transpose of a packed weight of `shape` (n, k)."""
    return F.linear(x, _unpacked(packed, absmax, table, block, shape).to(x.dtype))


def int8_linear_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """`x` (..., k) times the transpose of `weight` (n, k): int8 to int32, exactly."""
    product = torch._int_mm(x.reshape(-1, x.shape[-1]), weight.t())
    return product.view(*x.shape[:-1], weight.shape[0])


def int8_double_quant(
    x: Tensor, threshold: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """A matrix in int8 by rows and by columns, both scales (f32), and the columns left out.

    With a threshold, larger values count in no scale, and the columns that hold them are listed.
    """
    by_row = torch.ops.bitsandbytes.int8_vectorwise_quant.default(x, threshold)
    rows, row_scales, outliers = by_row
    kept = x.masked_fill(x.abs() >= threshold, 0.0) if threshold > 0.0 else x
    scales = kept.abs().amax(0).float()
    return rows, (kept * 127.0 / scales).round().to(torch.int8), row_scales, scales, outliers
