"""Branches and loops of a captured graph: their bodies are captured, then they are recorded."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_tpu import _C

IF, WHILE, SCAN = range(3)  # tt_region_kind

Tensors = list[torch.Tensor]


class WritesError(Exception):
    """A body writes tensors from outside in place: these, by their numbers."""

    def __init__(self, which: set[int]) -> None:
        super().__init__()
        self.which = which


def capturing() -> bool:
    """Whether a graph is being captured on the current device."""
    return _C.is_initialized() and _C.is_capturing(_C.current_device())


def held(x: torch.Tensor) -> torch.Tensor:
    """A copy in a storage of its own, in which it lies densely; numbers on the host are moved."""
    if x.device.type == "cpu" and x.dim() == 0:
        x = x.to(torch.device("tpu", _C.current_device()))
    return x.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def like_strides(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """It, with the strides of another tensor of its sizes, unless elements of that overlap."""
    if x.stride() == other.stride() or torch._debug_has_internal_overlap(other) != 0:
        return x
    return torch.empty_strided(other.size(), other.stride(), dtype=x.dtype, device=x.device).copy_(
        x
    )


class Recorder:
    """Captures the bodies of a region and then records it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._region = _C.Region()

    def body(
        self,
        run: Callable[..., Sequence[Any]],
        like: Tensors,
        outside: Sequence[Any] = (),
        pure: bool = False,
    ) -> list[Any]:
        """Captures what a function does with tensors like these; the shapes of its results.

        Its results are tensors, but for those that are None. Raises WritesError where it writes
        tensors from `outside`, and NotImplementedError where one that is pure writes its arguments.
        """
        stand_ins = self._region.begin(like)
        try:
            results = list(run(*stand_ins))
            which = self._written(outside)
            if which:
                raise WritesError(which)
            if pure and self._written(stand_ins):
                raise NotImplementedError(f"{self._name}: a condition that writes in place")
            for one in results:
                if one is not None and not isinstance(one, torch.Tensor):
                    raise NotImplementedError(f"{self._name}: a result that is a number")
            self._region.end([held(one) for one in results if one is not None])
        except BaseException:
            self._region.abandon()
            raise
        return results

    def _written(self, tensors: Sequence[Any]) -> set[int]:
        """Which of these the body has written so far."""
        ours = {
            i: one
            for i, one in enumerate(tensors)
            if isinstance(one, torch.Tensor) and one.device.type == "tpu"
        }
        wrote = self._region.wrote(list(ours.values()))
        return {i for i, yes in zip(ours, wrote, strict=True) if yes}

    def record(
        self, kind: int, operands: Tensors, shapes: list[Any], carried: int = 0, length: int = 0
    ) -> tuple[Any, ...]:
        """The results, laid out like those of the last body; stacks lie densely."""
        made = iter(self._region.record(kind, self._name, operands, carried, length))
        results: list[Any] = []
        for i, shape in enumerate(shapes):
            one = None if shape is None else next(made)
            stack = kind == SCAN and i >= carried
            results.append(one if one is None or stack else like_strides(one, shape))
        return tuple(results)


def loop(
    name: str, step: Callable[..., Sequence[Any]], init: Sequence[Any], xs: Sequence[Any]
) -> tuple[Any, ...]:
    """A scan: what is carried at its end, then the stacks of its other results."""
    carried, stacks = ([held(one) for one in values] for values in (init, xs))
    recorder = Recorder(name)
    shapes = recorder.body(step, carried + [held(one[0]) for one in stacks])
    return recorder.record(SCAN, carried + stacks, shapes, len(carried), stacks[0].shape[0])


def with_writes(
    outside: Sequence[Any], record: Callable[[list[int]], tuple[Sequence[Any], Tensors]]
) -> tuple[Any, ...]:
    """Records a region whose bodies may write tensors from outside in place; its results.

    Those that they write are values of the region, too, and are written when it has ended. `record`
    takes their numbers and returns the results, and these values.
    """
    written: set[int] = set()
    while True:
        try:
            results, values = record(sorted(written))
        except WritesError as error:
            if error.which <= written:
                raise NotImplementedError("a branch or loop writes a tensor in place") from None
            written |= error.which
            _refuse_shared(outside, written)
            continue
        for i, value in zip(sorted(written), values, strict=True):
            outside[i].copy_(value)
        return tuple(results)


def _refuse_shared(outside: Sequence[Any], written: set[int]) -> None:
    storages = [
        one.untyped_storage()._cdata if isinstance(one, torch.Tensor) else None for one in outside
    ]
    if any(storages.count(storages[i]) > 1 for i in written):
        raise NotImplementedError(
            "a branch or loop writes a tensor in place that shares its memory with another"
        )
