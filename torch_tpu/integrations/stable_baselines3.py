"""`get_device("auto")` means CUDA, or the CPU where that is not available."""

import sys
from typing import Any

import torch

from torch_tpu.integrations import chosen
from torch_tpu.integrations._imports import replace

TESTED = "2.9"


def apply(module: str) -> None:
    """Has `get_device("auto")` find `tpu`."""
    original = sys.modules["stable_baselines3.common.utils"].get_device

    def get_device(device: Any = "auto") -> torch.device:
        found: torch.device = original(device)
        return chosen() or found if device == "auto" and found.type == "cpu" else found

    replace("stable_baselines3", "get_device", original, get_device)
