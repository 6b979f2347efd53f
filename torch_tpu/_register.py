"""Registers the device's kernels that are written in Python."""

from collections.abc import Callable, Mapping

import torch

DENSE, QUANTISED, NESTED = "PrivateUse1", "QuantizedPrivateUse1", "NestedTensorPrivateUse1"
COO, COMPRESSED = "SparsePrivateUse1", "SparseCsrPrivateUse1"

_library = torch.library.Library("aten", "IMPL")  # the kernels live as long as this


def register(key: str, kernels: Mapping[str, Callable[..., object]]) -> None:
    """Makes functions the kernels of overloads, such as "add.out", under a dispatch key."""
    for name, kernel in kernels.items():
        _library.impl(name, kernel, key)
