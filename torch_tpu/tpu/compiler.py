"""`torch.tpu.compiler`: tools for what `torch.compile` makes of graphs on `tpu`."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_tpu.compiler.inspection import Report

__all__ = ["buckets", "inspect"]


def buckets(*sizes: int | None) -> AbstractContextManager[None]:
    """Chooses the bounds that programs for sizes that vary are compiled for, in this process.

    `sizes`: the bounds; a size above all of them is a program of its own. Without any, they are the
    powers of two from 8 on, above 512 also what lies half-way between them; with `dynamic=True`,
    also the first size that is seen, so that what never changes has no padding. With None, each
    size is a program. What is returned may be used in a `with` statement, after which all is as
    before. Raises ValueError for what is no whole number from 2 on.
    """
    from torch_tpu.compiler import buckets

    return buckets.choose(*sizes)


def inspect(function: Any = None) -> "Report":
    """Tells what torch.compile made of a function or module, or, without one, of all.

    Returns a report (`torch_tpu.compiler.inspection.Report`) for `print`, `.json()` and
    `.html(path)`. Raises TypeError for what has no code.
    """
    from torch_tpu.compiler import inspection

    return inspection.inspect(function)
