"""What PyTorch asks a device's module for as it loads tensors."""

from torch_tpu import _C
from torch_tpu.tpu import devices

__all__ = ["_get_device_index"]


def _get_device_index(location: str, optional: bool = False) -> int:
    """Returns the index of the device on which what was saved as on `location` is to be.

    Where each rank owns one device, that is this process's own: what another rank has pickled, or
    saved, names that rank's.
    """
    index = devices._get_device_index(location, optional)
    return devices.current_device() if _owns_one_of_many() else index


def _owns_one_of_many() -> bool:
    devices.init()
    many = devices.device_count() > 1 or devices._is_one_of_many()
    return many and len(_C.device_ids()) == 1
