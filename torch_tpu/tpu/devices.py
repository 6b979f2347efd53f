"""Devices: how many, which is current, what they are."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from torch_tpu import _C

Device: TypeAlias = torch.device | str | int | None


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Returns the index that `device` means; None and "tpu" mean the current device.

    Raises ValueError for a device of another type, and, unless `optional`, for None.
    """
    if isinstance(device, bool) or not isinstance(device, int | str | torch.device | None):
        raise ValueError(f"expected a tpu device, its index, or None, but got {device!r}")
    if device is None:
        if not optional:
            raise ValueError("expected a device such as 'tpu:0' or 0, but got None")
        return current_device()
    if isinstance(device, int):
        return current_device() if device < 0 else device
    parsed = torch.device(device)
    if allow_cpu and parsed.type == "cpu":
        return -1
    if parsed.type != "tpu":
        raise ValueError(f"expected a tpu device, but got {device}")
    return current_device() if parsed.index is None else parsed.index


def init() -> None:
    """Opens the plugin and its devices; operators do this by themselves.

    Raises RuntimeError if no plugin can be opened, and says which ones were tried.
    """
    _lazy_init()


def _lazy_init() -> None:
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot use device 'tpu' in a forked process when its parent has used it. "
            "Start the process with torch.multiprocessing's 'spawn' method."
        )
    _C.init()


def is_initialized() -> bool:
    """True once the plugin is open in this process."""
    return _C.is_initialized() and not _C.is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    return _C.is_in_bad_fork()


def is_available() -> bool:
    """True if there is a device. Never raises."""
    return device_count() > 0


def device_count() -> int:
    """The number of devices; 0 if no plugin can be opened. Never raises; opens the plugin."""
    try:
        return _C.device_count()
    except (RuntimeError, ImportError):
        return 0


def current_device() -> int:
    """The index of this thread's current device."""
    _lazy_init()
    return _C.current_device()


def set_device(device: Device) -> None:
    """Makes `device` this thread's current one; a negative index changes nothing.

    A rank that no launcher gave an index, and that owns one device and has not used it yet, gives
    it this one. Raises RuntimeError for an index that this process does not have.
    """
    if isinstance(device, int) and device < 0:
        return
    index = _get_device_index(device)
    _C.set_device(index)


def _is_one_of_many() -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


class device:  # noqa: N801 (torch.cuda's name)
    """Context manager that makes a device current.

    device: an index, "tpu:0", a torch.device, or None or a negative index to change nothing.
    """

    def __init__(self, device: Any) -> None:
        unchanged = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if unchanged else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        if self.idx >= 0:
            set_device(self.prev_idx)


class device_of(device):  # noqa: N801 (torch.cuda's name)
    """Context manager that makes a tensor's device current; nothing for other devices' tensors."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "tpu" else None)


@dataclass(frozen=True)
class TpuDeviceProperties:
    """What is known about a device.

    name: the plugin's name for its kind. index: PyTorch's number. id: the plugin's number, -1 where
    another process of this host has the device, which is like this process's own then.
    total_memory: bytes. api_version: of the PJRT C API that the plugin speaks.
    """

    name: str
    index: int
    id: int
    total_memory: int
    platform: str
    platform_version: str
    plugin: str
    api_version: tuple[int, int]


def get_device_properties(device: Device = None) -> TpuDeviceProperties:
    """Returns the properties of a device, by default of the current one."""
    from torch_tpu.tpu import memory

    _lazy_init()
    index = _get_device_index(device, optional=True)
    return TpuDeviceProperties(
        name=_C.device_kind(index),
        index=index,
        id=_C.device_id(index),
        total_memory=memory.mem_get_info(index)[1],
        platform=_C.platform(),
        platform_version=_C.platform_version(),
        plugin=_C.plugin_path(),
        api_version=_C.api_version(),
    )


def get_device_name(device: Device = None) -> str:
    """Returns the plugin's name for the kind of a device, such as "TPU v5e" or "cpu"."""
    _lazy_init()
    return _C.device_kind(_get_device_index(device, optional=True))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every PJRT plugin computes in bfloat16, natively or not."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("tpu")` takes, as CUDA's does."""
    return [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def set_plugin(plugin: str | None = None, *, cpu_devices: int | None = None) -> None:
    """Chooses the plugin, as the environment variable TORCH_TPU_PLUGIN does, before first use.

    plugin: a path, or "cpu", "tpu" or "cuda"; None leaves it. cpu_devices: how many virtual
    devices the CPU plugin is to have; None: as TORCH_TPU_CPU_DEVICES says. Raises RuntimeError once
    a plugin is open.
    """
    _C.set_plugin(plugin, cpu_devices or 0)
