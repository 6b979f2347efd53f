"""Registers kernels of sparse tensors."""

from collections.abc import Callable

import torch

COO, COMPRESSED = "SparsePrivateUse1", "SparseCsrPrivateUse1"

_library = torch.library.Library("aten", "IMPL")  # the kernels live as long as this


def register(key: str, kernels: dict[str, Callable[..., object]]) -> None:
    """Makes functions the kernels of overloads, such as "add.out", for COO or compressed."""
    for name, kernel in kernels.items():
        _library.impl(name, kernel, key)
