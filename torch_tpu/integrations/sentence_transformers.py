"""`get_device_name()` knows five kinds of devices by name, and says "cpu" of any other."""

from torch_tpu.integrations import have_found

TESTED = "6.2"


def apply(module: str) -> None:
    """Has `get_device_name()` find `tpu`."""
    have_found("sentence_transformers", "sentence_transformers.util", "get_device_name")
