"""`infer_device()` knows six kinds of devices by name, and says "cpu" of any other.

Adapters are then loaded on the host and moved.
"""

from torch_tpu.integrations import have_found

TESTED = "0.21"


def apply(module: str) -> None:
    """Has `infer_device()` find `tpu`."""
    have_found("peft", "peft.utils.other", "infer_device")
