"""`infer_device()` knows six kinds of devices by name, and says "cpu" of any other.

Adapters are then loaded on the host and moved.
"""

import sys

from torch_tpu.integrations import chosen
from torch_tpu.integrations._imports import replace

TESTED = "0.21"


def apply(module: str) -> None:
    """Has `infer_device()` find `tpu`."""
    original = sys.modules["peft.utils.other"].infer_device

    def infer_device() -> str:
        found: str = original()
        return str(chosen() or found) if found == "cpu" else found

    replace("peft", "infer_device", original, infer_device)
