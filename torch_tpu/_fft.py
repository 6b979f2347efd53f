"""Fourier transforms of half precision, which PyTorch refuses on every device but CUDA.

They are computed in single precision, and rounded. Imported with the device: it registers them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_tpu._register import DENSE, register

_WIDER = {torch.float16: torch.float32, torch.complex32: torch.complex64}
_NARROWER = {wide: half for half, wide in _WIDER.items()}


def _of_halves(transform: Any) -> Callable[..., Tensor]:
    """A transform that takes half precision, too, and returns it then."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        wide = _WIDER.get(self.dtype)
        result: Tensor = transform._op_dk(
            composite, self if wide is None else self.to(wide), *args, **kwargs
        )
        return result if wide is None else result.to(_NARROWER[result.dtype])

    return kernel


_TRANSFORMS = {
    name: _of_halves(getattr(torch.ops.aten, name).default)
    for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    for name in (f"fft_{kind}", f"fft_{kind}2", f"fft_{kind.removesuffix('fft')}fftn")
}
# Composite for autograd: made of operators that have gradients of their own.
for _key in (DENSE, "AutogradPrivateUse1"):
    register(_key, _TRANSFORMS)
