"""Tensors given to other libraries and to other processes.

A tensor's data may be anywhere, and a write to it makes new data; so nobody else can be given its
memory. Whoever asks for the data gets a copy that lies in the host's memory.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.utils.dlpack
from torch import Tensor

_CPU = (torch.utils.dlpack.DLDeviceType.kDLCPU, 0)


def apply() -> None:
    """Changes PyTorch's functions for it; all other devices' tensors go through untouched."""
    _patch_export()
    _patch_import()
    _patch_processes()


def _refuse() -> NoReturn:
    raise BufferError(
        "a tpu tensor's data is not in memory that other libraries can read; "
        "export tensor.cpu(), or ask for a copy on the device 'cpu'"
    )


def _patch_export() -> None:
    """Keeps a handle from being exported as if it were an address.

    PyTorch does not know a renamed device in `__dlpack_device__`, and `__dlpack__` would hand out
    the storage's pointer, which for this device is a handle.
    """
    from torch.utils.dlpack import DLDeviceType

    original_device, original_export = Tensor.__dlpack_device__, Tensor.__dlpack__
    original_capsule = torch._C._to_dlpack

    def dlpack_device(self: Tensor) -> tuple[Any, int]:
        if self.device.type != "tpu":
            return original_device(self)
        return DLDeviceType.kDLExtDev, self.device.index or 0

    def dlpack(self: Tensor, **kwargs: Any) -> Any:
        if self.device.type != "tpu":
            return original_export(self, **kwargs)
        if not isinstance(kwargs.get("stream"), int | None):
            raise TypeError("stream must be an int or None")
        wanted = kwargs.pop("dl_device", None)
        if wanted is None or wanted[0] != DLDeviceType.kDLCPU or kwargs.pop("copy", None) is False:
            _refuse()
        if self.is_conj() or self.is_neg():
            raise BufferError("a tensor whose conjugation or negation is due cannot be exported")
        return self.cpu().__dlpack__(**kwargs)

    def to_dlpack(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if tensor.device.type == "tpu":
            _refuse()
        return original_capsule(tensor, *args, **kwargs)

    Tensor.__dlpack_device__ = dlpack_device  # type: ignore[method-assign]
    Tensor.__dlpack__ = dlpack  # type: ignore[method-assign]
    for module in (torch, torch.utils.dlpack):
        vars(module)["to_dlpack"] = to_dlpack


def _patch_import() -> None:
    """Tensors of other libraries come to the device by way of the host, and are copied."""
    original = torch.utils.dlpack.from_dlpack

    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
        ours = isinstance(ext_tensor, Tensor) and ext_tensor.device.type == "tpu"
        target = torch.device(device) if device is not None else None
        if not ours and (target is None or target.type != "tpu"):
            return original(ext_tensor, device=device, copy=copy)
        if ours and (target is None or target.type == "tpu"):
            if ext_tensor.requires_grad:
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
            here = target is None or target.index in (None, ext_tensor.device.index)
            return _moved(ext_tensor, None if here else target, copy)
        if ours:
            capsule = ext_tensor.__dlpack__(dl_device=_CPU, copy=copy)
            return original(capsule).to(target)
        return _moved(original(ext_tensor), target, copy)

    from_dlpack.__doc__ = original.__doc__
    for module in (torch, torch.utils.dlpack):
        vars(module)["from_dlpack"] = from_dlpack


def _moved(tensor: Tensor, device: torch.device | None, copy: bool | None) -> Tensor:
    """The same data, shared if the tensor need not move and no copy was asked for."""
    if device is None:
        return tensor.clone() if copy else tensor.detach()
    if copy is False:
        raise BufferError(f"tensors do not come to the device '{device}' without a copy")
    return tensor.to(device)


def _patch_processes() -> None:
    """What is sent to another process is a copy: it travels in shared memory of the host.

    The other process must be able to use the device: one that was forked from a process that has
    used it is not. What is written there is not seen here.
    """
    from multiprocessing.context import get_spawning_popen
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing import reductions

    original = reductions.reduce_tensor

    def reduce_tensor(tensor: Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if tensor.device.type != "tpu" or tensor.layout != torch.strided or tensor.is_nested:
            reduced: tuple[Callable[..., Any], tuple[Any, ...]] = original(tensor)
            return reduced
        if tensor.requires_grad and not tensor.is_leaf:
            original(tensor)  # raises
        torch.utils.hooks.warn_if_has_hooks(tensor)
        host = tensor.detach().cpu().share_memory_()
        if (process := get_spawning_popen()) is not None:  # which is given no file of its own
            vars(process).setdefault("tensors_under_way", []).append(host)
        parameter = isinstance(tensor, torch.nn.Parameter)
        return _rebuild, (host, str(tensor.device), parameter, tensor.requires_grad)

    for kind in (Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)


def _rebuild(host: Tensor, device: str, parameter: bool, requires_grad: bool) -> Tensor:
    from torch_tpu.tpu._utils import _get_device_index

    tensor = host.to(torch.device("tpu", _get_device_index(device)))
    if parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
