"""What PyTorch's CPU kernels would make of an operator's arguments.

The glue asks for each key that is new, so that results lie as the CPU's and errors are the CPU's.
"""

from typing import Any

from torch import Tensor

from torch_tpu._agreement import checks, results
from torch_tpu._agreement.operators import Results, Trial, asks_meta, operator, tensors_of

__all__ = ["asks_meta", "domain", "raise_as_cpu", "specialise"]

DONE, MISSING, REFUSED = range(3)
"""As `Meta` in glue/agreement/agreement.h: what becomes of a question to a Meta kernel.

There may be none, or it refuses arguments that the CPU accepts: results whose sizes depend on data.
"""


def _ask_meta(trial: Trial, twins: list[Any]) -> tuple[int, Results, list[Tensor]]:
    """PyTorch's own shape function: what becomes of it, the results, and the out= arguments.

    Raises what the CPU raises where that refuses the arguments, too.
    """
    op = trial.op
    stated = results.state(op, twins)
    if stated is not None:
        return DONE, list(stated), []
    if checks.unfit_part(op, twins):
        trial.raise_as_cpu()
        return REFUSED, [], []
    if not op.has_meta:
        return MISSING, [], []
    outs = tensors_of([twins[i] for i in op.outs])
    if "FillsTarget" in op.known.kinds and results.fills(op, twins):
        return DONE, [], outs
    sizes = [one.shape for one in outs]
    try:
        fresh = op.call_meta(twins)
    except (NotImplementedError, AttributeError):
        # Shape functions in Python that forget that a tensor may be None know nothing of such
        # arguments.
        return MISSING, [], []
    except Exception:
        if not trial.raise_as_cpu():
            raise
        return (MISSING if results.casts(op, twins) else REFUSED), [], []
    if outs:
        return DONE, fresh, results.lay_targets(op, twins, sizes, outs)
    results.correct(op, twins, fresh)
    return DONE, fresh, []


def specialise(
    name: str, row: str, args: list[Any], twins: list[Any]
) -> tuple[int, Results, list[Tensor]]:
    """Returns what becomes of the Meta kernel's answer, the fresh results, and out= arguments.

    name: the overload. row: the row of the op table that serves it. args: in the schema's order.
    twins: the same without data. Results and out= arguments are without data, too. Raises what the
    CPU would raise.
    """
    op = operator(name, row)
    trial = Trial(op, args)
    checks.check_overlap(trial)
    if unfit := results.unfit(op, twins):
        return DONE, [], unfit
    meta, fresh, outs = _ask_meta(trial, twins)
    functional = meta == MISSING and op.outs and op.functional
    if meta != REFUSED and not functional:
        checks.check_values(trial, twins, fresh)
    return meta, fresh, outs


def raise_as_cpu(name: str, row: str, args: list[Any]) -> bool:
    """Raises what the CPU would raise for the arguments.

    Returns false if they are too large to try, true if the CPU has no objection.
    """
    return Trial(operator(name, row), args).raise_as_cpu()


def domain(name: str, row: str) -> tuple[int, bool, bool, bool, float, float]:
    """As checks.domain."""
    return checks.domain(operator(name, row))
