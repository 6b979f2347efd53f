"""Streams and events. They are PyTorch's own classes, whose default device is the accelerator."""

from typing import Any

import torch

from torch_tpu import _C
from torch_tpu.tpu.devices import Device, _get_device_index, _lazy_init, is_initialized

Stream = torch.Stream
Event = torch.Event

_PRIVATE_USE_1 = 20  # c10::DeviceType's number, which never changes


def current_stream(device: Device = None) -> torch.Stream:
    """Returns this thread's current stream on a device, by default the current one."""
    if device is None:  # Dynamo, which traces this, knows the call without an argument
        return torch.accelerator.current_stream()
    return torch.accelerator.current_stream(device)


def default_stream(device: Device = None) -> torch.Stream:
    """Returns a device's default stream."""
    index = _get_device_index(device, optional=True)
    return torch.Stream(stream_id=0, device_index=index, device_type=_PRIVATE_USE_1)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes `stream` current in this thread, and its device; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that makes a stream current; a stream of None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._device = -1
        self._previous: torch.Stream | None = None

    def __enter__(self) -> "StreamContext":
        if self.stream is not None:
            _lazy_init()
            self._device = _C.current_device()
            self._previous = current_stream(self.stream.device)
            set_stream(self.stream)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            set_stream(self._previous)
            _C.set_device(self._device)
            self._previous = None


def stream(stream: torch.Stream | None) -> StreamContext:
    """Returns a context manager that makes `stream` current."""
    return StreamContext(stream)


def synchronize(device: Device = None) -> None:
    """Waits until everything launched on a device is done, and raises what went wrong there."""
    if is_initialized() or _C.is_in_bad_fork():
        _C.synchronize(_get_device_index(device, optional=True))


def _set_stream_by_id(stream_id: int, device_index: int, device_type: Any) -> None:
    set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )
