"""What Dynamo asks of a device: its streams, its events, and which device is current.

So code between `with torch.tpu.device(...)` or `with torch.tpu.stream(...)` is part of the graph
around it, as it is with torch.cuda's.
"""

import torch
from torch._dynamo import device_interface
from torch._dynamo.variables import ctx_manager

from torch_tpu import tpu
from torch_tpu.tpu import devices, streams


class Interface(device_interface.DeviceInterface):
    """`torch.tpu` by the names that Dynamo has for all devices."""

    device = devices.device  # type: ignore[assignment]
    Event = torch.Event  # type: ignore[assignment]
    Stream = torch.Stream  # type: ignore[assignment]
    current_device = staticmethod(devices.current_device)
    set_device = staticmethod(devices.set_device)
    device_count = staticmethod(devices.device_count)
    is_available = staticmethod(devices.is_available)
    stream = staticmethod(streams.stream)
    current_stream = staticmethod(streams.current_stream)  # type: ignore[assignment]
    set_stream = staticmethod(streams.set_stream)
    _set_stream_by_id = staticmethod(streams._set_stream_by_id)
    synchronize = staticmethod(streams.synchronize)
    get_device_properties = staticmethod(devices.get_device_properties)  # type: ignore[assignment]
    memory_allocated = staticmethod(tpu.memory_allocated)
    is_bf16_supported = staticmethod(tpu.is_bf16_supported)


def _device_variable() -> "type[ctx_manager.GenericDeviceVariable]":
    """`torch.tpu.device` in code that Dynamo traces."""

    class DeviceVariable(ctx_manager.GenericDeviceVariable):
        _exchange_fn = staticmethod(torch._C._accelerator_exchangeDevice)
        _maybe_exchange_fn = staticmethod(torch._C._accelerator_maybeExchangeDevice)
        _get_device_index_fn = staticmethod(devices._get_device_index)

        def module_name(self) -> str:
            return "torch.tpu"

        def python_type(self) -> type:
            return devices.device

    return DeviceVariable


def install() -> None:
    """Has Dynamo take them for the device "tpu"; before 2.13 it knows no device but CUDA's."""
    device_interface.get_registered_device_interfaces()  # enters PyTorch's own, which ours replaces
    device_interface.register_interface_for_device("tpu", Interface)
    if hasattr(ctx_manager, "register_device_context_manager"):
        ctx_manager.register_device_context_manager(devices.device, _device_variable())
