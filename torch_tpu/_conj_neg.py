"""Operators on tensors whose conjugation or negation is still due.

PyTorch carries it out before most kernels, but leaves it to those that a library does it for on
other devices: matrix products above all.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from torch_tpu._agreement.operators import operator


@functools.cache
def resolved(name: str) -> Callable[..., Any]:
    """Returns a function that runs an overload on plain tensors in the place of those.

    It takes a list of the arguments.
    """
    op = operator(name, "")

    def call(args: list[Any]) -> Any:
        written: list[tuple[Tensor, Tensor]] = []  # a target, and what is written in its place

        def plain(value: Any, target: bool) -> Any:
            if isinstance(value, list | tuple):
                return [plain(one, target) for one in value]
            if not isinstance(value, Tensor) or not (value.is_conj() or value.is_neg()):
                return value
            stand_in = value.resolve_conj().resolve_neg()
            if target:
                written.append((value, stand_in))
            return stand_in

        results = op.call([plain(value, i in op.written) for i, value in enumerate(args)])
        for target, stand_in in written:
            if target.shape != stand_in.shape:
                target.resize_(stand_in.shape)
            target.copy_(stand_in)
        if not isinstance(results, tuple):
            results = (results,)
        own = [args[i] if i >= 0 else one for i, one in zip(op.aliases, results, strict=True)]
        return own[0] if len(own) == 1 else tuple(own)

    return call
