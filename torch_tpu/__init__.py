"""PyTorch on TPUs, and on every other device that has a PJRT plugin.

`import torch` loads this package by itself and adds the device "tpu". Importing it by name does
the same, and raises ImportError, with the reason, where that was not possible.
"""

import torch

from torch_tpu import _autoload

__version__ = "0.1.0"
__all__ = ["get_device"]

_autoload.load_or_raise()


def get_device() -> torch.device:
    """Returns the current device of this thread, such as `device(type='tpu', index=0)`.

    Raises RuntimeError if there is no device, and says why.
    """
    return torch.device("tpu", torch.get_device_module("tpu").current_device())
