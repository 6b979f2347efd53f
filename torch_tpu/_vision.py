"""Autocast for torchvision's operators, which torchvision has for the devices that it names.

Imported with the device: PyTorch keeps these functions until the operators are defined.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

NAMES = ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
_key = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
_autocast = torch._C.DispatchKeySet(_key)


def _in_float32(name: str) -> Callable[..., Any]:
    """An operator in f32, with results in the dtype of its first operand; f64 stays."""

    def call(first: Tensor, *others: Any) -> Any:
        def widened(one: Any) -> Any:
            narrow = isinstance(one, Tensor) and one.is_floating_point() and one.itemsize < 4
            return one.float() if narrow else one

        operator = getattr(torch.ops.torchvision, name)
        with torch._C._ExcludeDispatchKeyGuard(_autocast):
            results = operator(*map(widened, (first, *others)))
            return results if name == "nms" else tree_map(lambda one: one.to(first.dtype), results)

    return call


library = torch.library.Library("torchvision", "IMPL")  # the kernels live as long as this
for _name in NAMES:
    library.impl(_name, _in_float32(_name), "AutocastPrivateUse1")
