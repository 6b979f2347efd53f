"""`safe_open` refuses the device "tpu:0", though it accepts the number 0, which means the same.

It parses the names of devices itself, from a list; a number it leaves to PyTorch.
"""

import sys
from typing import Any

import torch

from torch_tpu import tpu
from torch_tpu.integrations._imports import replace

TESTED = "0.8"


def apply(module: str) -> None:
    """Has `safe_open` take "tpu", "tpu:1" and such devices of PyTorch."""
    original = sys.modules["safetensors"].safe_open

    class SafeOpen(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class safe_open(metaclass=SafeOpen):  # noqa: N801 (no class can be derived from the library's)
        def __new__(cls, filename: Any, framework: str, device: Any = "cpu", **more: Any) -> Any:
            return original(filename, framework, _number(device), **more)

    replace("safetensors", "safe_open", original, safe_open)


def _number(device: Any) -> Any:
    is_name = isinstance(device, str) and device.partition(":")[0] == "tpu"
    if not is_name and not (isinstance(device, torch.device) and device.type == "tpu"):
        return device
    index = torch.device(device).index
    return tpu.current_device() if index is None else index
