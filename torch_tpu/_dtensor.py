"""What the glue asks about tensors that are spread over devices."""

import sys
from typing import Any


def is_dtensor(tensor: Any) -> bool:
    """Whether it is a DTensor; imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)
