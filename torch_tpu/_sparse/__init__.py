"""Kernels for sparse tensors, made of dense operators on their indices and values.

`_lent.py` lends the device what PyTorch itself has composed of such operators; here is the rest.
Imported with the device: its modules register their functions.
"""

from torch_tpu._sparse import (
    arithmetic,
    convert,
    coo,
    masks,
    products,
    reductions,
    rowwise,
    softmax,
)

__all__ = ["arithmetic", "convert", "coo", "masks", "products", "reductions", "rowwise", "softmax"]
