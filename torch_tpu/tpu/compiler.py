"""`torch.tpu.compiler`: tools for what `torch.compile` makes of graphs on `tpu`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_tpu.compiler.inspection import Report

__all__ = ["inspect"]


def inspect(function: Any = None) -> "Report":
    """Tells what torch.compile made of a function or module, or, without one, of all.

    Returns a report (`torch_tpu.compiler.inspection.Report`) for `print`, `.json()` and
    `.html(path)`. Raises TypeError for what has no code.
    """
    from torch_tpu.compiler import inspection

    return inspection.inspect(function)
