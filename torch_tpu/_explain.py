"""Why programs were compiled."""

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
