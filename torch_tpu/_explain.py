"""Why programs were compiled, and how to make sure that none are."""

from contextlib import ContextDecorator

from torch_tpu import _C

KEPT = 1024  # sentences that the core keeps


def explain(last: int = KEPT) -> str:
    """Returns sentences, oldest first, on what was new to the process and why.

    Each names the operator or the chunk of operators, its line, and in what it differs from the
    nearest one that was known: an operand's dtype, shape or view, an argument that shapes the
    program, or which results are needed afterwards. TORCH_TPU_LOG=compile prints the same as it
    happens.

    last: how many; the last 1,024 are kept.
    """
    if last < 0:
        raise ValueError(f"expected a number of sentences, but got {last}")
    return "\n".join(_C.explain(last))


class no_recompile(ContextDecorator):  # noqa: N801 (used as `with torch.tpu.no_recompile():`)
    """Context manager and decorator in which nothing is compiled.

    An operator that needs a program that neither this process nor a cache folder has raises
    RuntimeError, which says why; nothing is lost, and after the block it can be tried again. In
    Fused mode operators are compiled together, so the error comes where a chunk of them ends: at a
    later operator, or where a value is read. It counts for all threads.
    """

    def __enter__(self) -> None:
        _C.forbid_programs(1)

    def __exit__(self, *exception: object) -> None:
        _C.forbid_programs(-1)
