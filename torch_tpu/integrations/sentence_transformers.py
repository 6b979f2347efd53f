"""`get_device_name()` knows five kinds of devices by name, and says "cpu" of any other."""

import sys

from torch_tpu.integrations import chosen
from torch_tpu.integrations._imports import replace

TESTED = "6.2"


def apply(module: str) -> None:
    """Has `get_device_name()` find `tpu`."""
    original = sys.modules["sentence_transformers.util"].get_device_name

    def get_device_name() -> str:
        found: str = original()
        return str(chosen() or found) if found == "cpu" else found

    replace("sentence_transformers", "get_device_name", original, get_device_name)
