"""Kernels of the device that are made of others, and that read something back.

Imported with the device: it registers its functions.
"""

import torch
from torch import Tensor

from torch_tpu._register import DENSE, register


def equal(self: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same sizes and numbers."""
    if self.device != other.device:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found "
            f"{self.device} and {other.device}"
        )
    return self.shape == other.shape and bool(torch.eq(self, other).all())


def tensor_split(self: Tensor, sections: Tensor, dim: int = 0) -> list[Tensor]:
    """How many parts there are depends on the sections, which PyTorch wants on the host."""
    sections = sections.cpu()
    stand_in = torch.empty((), device="cpu").expand(self.shape)
    torch.tensor_split(stand_in, sections, dim)  # PyTorch's checks of all that it refuses
    return list(torch.tensor_split(self, sections.tolist(), dim))


def set_empty(self: Tensor) -> Tensor:
    """Lets a tensor have an empty storage of its own."""
    own = torch.empty(0, dtype=self.dtype, device=self.device)
    return self.set_(own.untyped_storage(), 0, own.shape, own.stride())


def copy_from_and_resize(self: Tensor, dst: Tensor) -> Tensor:
    """Copies between devices to a tensor that takes the other's sizes."""
    if self.shape != dst.shape:
        dst.resize_(self.shape)
    return torch._copy_from(self, dst)


def lazy_clone(self: Tensor) -> Tensor:
    """A tensor of the same geometry, in a storage that is a copy of this one's.

    All copies are lazy here, so it is an ordinary one.
    """
    elements = self.untyped_storage().nbytes() // self.itemsize
    whole = self.as_strided((elements,), (1,), 0).clone()
    return whole.as_strided(self.shape, self.stride(), self.storage_offset())


register(
    DENSE,
    {
        "equal": equal,
        "set_": set_empty,
        "_lazy_clone": lazy_clone,
        "_copy_from_and_resize": copy_from_and_resize,
    },
)
# Composite for autograd: made of views, which have gradients of their own.
for _key in (DENSE, "AutogradPrivateUse1"):
    register(_key, {"tensor_split.tensor_indices_or_sections": tensor_split})
# `p.data = q` asks with the GIL held. What PyTorch does of itself under this key takes the lock of
# p's accumulator, whose holder, a thread that uses p, may be waiting for the GIL.
_through = torch.library.fallthrough_kernel
register("AutogradPrivateUse1", {"_has_compatible_shallow_copy_type": _through})
# copy_ reaches _copy_from below these keys; that kernel minds the bits itself.
for _key in ("Conjugate", "Negative", "ZeroTensor"):
    for _name in (
        "_copy_from",
        "_copy_from_and_resize",
        "_reshape_alias",
        "record_stream",
        "set_.source_Storage",
    ):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{_name}", _key):
            register(_key, {_name: _through})
