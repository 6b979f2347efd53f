"""What the CPU refuses and Meta kernels let pass."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.storage import _dtype_to_storage_type_map

from torch_tpu._agreement.operators import (
    COMPUTES_WITH_ALL,
    COMPUTES_WITH_FIRST,
    MOST_BYTES,
    Operator,
    Results,
    Trial,
    tensors_of,
)

# -- Numbers --

DOMAINS = {
    "Held": (True, False, False, -math.inf, math.inf),
    "Ordered": (False, True, True, -math.inf, math.inf),
    "NonNegative": (False, False, False, 0.0, math.inf),
    "Positive": (False, False, True, 0.0, math.inf),
    "Probability": (False, False, False, 0.0, 1.0),
    "ProperProbability": (False, False, True, 0.0, 1.0),
}
"""Whether the dtype must hold the number; else whether two are a range; else whether an interval is
open, and its ends."""


def domain(op: Operator) -> tuple[int, bool, bool, bool, float, float]:
    """Returns which argument is to be looked at in each call, or -1, and its entry of DOMAINS.

    Numbers that shape no program are operands of the running one, and in no key.
    """
    for kind, entry in DOMAINS.items():
        if kind in op.known.kinds:
            return op.argument, *entry
    return -1, False, False, False, 0.0, 0.0


# -- Memory --

TWICE = (
    "unsupported operation: more than one element of the written-to tensor refers to a single "
    "memory location. Please clone() the tensor before performing the operation."
)
PARTLY = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to "
    "a single memory location. Please clone() the tensor before performing the operation."
)


def _is_dense(one: Tensor) -> bool:
    """Whether its elements lie side by side, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(one.stride(), one.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class _Extent(NamedTuple):
    """A tensor whose elements lie side by side, and the bytes of its storage that it sees."""

    tensor: Tensor
    first: int
    end: int

    def meets(self, other: "_Extent", partly: bool) -> bool:
        """Whether the tensors share some elements; if partly, and are not the same view."""
        if partly and self.tensor is other.tensor:
            return False
        if partly and self[1:] == other[1:]:
            return self.tensor.stride() != other.tensor.stride()
        return self.first < other.end and other.first < self.end


def _extents(tensors: list[Tensor]) -> dict[int, list[_Extent]]:
    """By storage; of other tensors PyTorch's iterator does not tell what they share, either."""
    found: dict[int, list[_Extent]] = {}
    for one in tensors:
        if one.numel() and _is_dense(one):
            first = int(one.storage_offset()) * one.itemsize
            extent = _Extent(one, first, first + one.nbytes)
            found.setdefault(one.untyped_storage()._cdata, []).append(extent)
    return found


def overlap(trial: Trial) -> str:
    """What is wrong where a write goes through a view that sees an element twice, or meets a read.

    Empty where neither is so. What writes where an index says must not read the same view, either.
    """
    written, partly = trial.of(trial.op.written), trial.op.kind != "index"
    reads = _extents(trial.of(trial.op.read) if written else [])
    for storage, targets in _extents(written).items():
        for read in reads.get(storage, ()):
            if any(target.meets(read, partly) for target in targets):
                return PARTLY
    return TWICE if any(torch._debug_has_internal_overlap(one) == 1 for one in written) else ""


def check_overlap(trial: Trial) -> None:
    """Asks the CPU where there is an overlap.

    Of what is too large to be tried there, the operators that PyTorch iterates element by element
    are refused.
    """
    found = overlap(trial)
    if not found or trial.raise_as_cpu():
        return
    if trial.op.kind == "pointwise" or "ApartFromSource" in trial.op.known.kinds:
        raise RuntimeError(found)


def check_apart(trial: Trial) -> None:
    """Asks the CPU where a decomposition might write what it has still to read, or twice."""
    tensors = [one for one in trial.args if isinstance(one, Tensor)]
    outs = [one for one in trial.of(trial.op.outs) if any(one is other for other in tensors)]
    aliases = sum(
        torch._C._is_alias_of(out, one)  # type: ignore[attr-defined]
        for out in outs
        for one in tensors
    )
    if aliases > len(outs) or overlap(trial):
        trial.raise_as_cpu()


def _unusual_target(trial: Trial, twins: list[Any]) -> bool:
    """Whether an out= tensor is one that the CPU may refuse, though its shape and device are right.

    Raises if what an in-place operator computes is of a kind that its target cannot hold; not all
    Meta kernels see to that.
    """
    op, out = trial.op, bool(trial.op.outs)
    if not op.written:
        return False
    if not out and all(_has_fractions(one.dtype) for one in trial.of(op.written)):
        return False
    unusual = False
    if out and op.kind != "pointwise":  # see check_overlap
        storages = {one.untyped_storage()._cdata for one in trial.tensors}
        unusual = len(storages) < len(trial.tensors) or any(
            torch._debug_has_internal_overlap(one) for one in trial.of(op.outs)
        )
    for computed, own in _written_dtypes(op, twins):
        if not out:
            check_cast(op.name, computed, own)
        unusual = unusual or (out and computed != own)
    return unusual


def _written_dtypes(op: Operator, twins: list[Any]) -> list[tuple[torch.dtype, torch.dtype]]:
    """For each tensor that is written, the dtype of what is computed, and the tensor's own.

    The former is what the functional overload's Meta kernel says. Empty if there is no such kernel.
    """
    if op.functional is None or not op.functional.has_meta:
        return []
    written = tensors_of([twins[i] for i in op.written])
    try:
        results = op.functional.call_meta(twins[: len(twins) - len(op.outs)])
    except Exception:
        return []  # the operator's own Meta kernel, and the CPU, have had their say
    if len(results) != len(written):
        return []
    return [
        (one.dtype, own.dtype) for one, own in zip(results, written, strict=True) if one is not None
    ]


def check_cast(name: str, computed: torch.dtype, own: torch.dtype) -> None:
    """Raises if what is computed is of a kind that its target cannot hold."""
    if not torch.can_cast(computed, own):
        raise RuntimeError(
            f"{name}: result type {_word(computed)} can't be cast to the desired output type "
            f"{_word(own)}"
        )


def _has_fractions(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _word(dtype: torch.dtype) -> str:
    """As PyTorch's own messages call it."""
    return str(_dtype_to_storage_type_map().get(dtype, dtype)).removesuffix("Storage")


# -- Dtypes --

CHOOSY = frozenset(
    (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.complex64,
        torch.complex128,
    )
)
"""Dtypes for which operators have kernels on the CPU or not, as it happens.

Real numbers in one floating point are taken nearly everywhere, and what is rare on the CPU is not
worth refusing.
"""

ON_CUDA = {
    "BoolOnCuda": (torch.bool,),
    "ComplexOnCuda": (torch.complex32, torch.complex64, torch.complex128),
    "HalvesOnCuda": (torch.complex32,),
}
"""Dtypes that CUDA accepts, and the CPU does not, which then is not asked."""

_accepted: set[tuple[object, ...]] = set()
"""Operators and dtypes that the CPU takes; of what is empty it takes more."""


def _choices(op: Operator, args: list[Any]) -> tuple[object, ...] | None:
    """The operator and the dtypes of its operands, of lists without repetitions.

    None where the CPU takes what the Meta kernel does. Bounded: there are few dtypes.
    """
    if op.kind not in COMPUTES_WITH_ALL and not _computes_in_integers(op, args):
        return None
    if _on_cuda(op, args):
        return None
    asks = False
    found: list[object] = [op.name]
    floating = None
    for value in args:
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Tensor):
                dtype = one.dtype
                asks = asks or dtype in CHOOSY
                if dtype != found[-1]:
                    found.append(dtype)
                if dtype.is_floating_point:
                    asks = asks or (floating is not None and floating != dtype)
                    floating = dtype
        if isinstance(value, int | float | complex | torch.dtype):
            asks = asks or isinstance(value, bool | complex) or value in CHOOSY
            if type(value) is not found[-1]:
                found.append(type(value))
    return tuple(found) if asks else None


def _computes_in_integers(op: Operator, args: list[Any]) -> bool:
    """Whether the first operand, or the dtype that is named without one, is of CHOOSY."""
    if op.kind not in COMPUTES_WITH_FIRST:
        return False
    dtypes = [one.dtype for one in tensors_of(args)]
    dtypes += [value for value in args if isinstance(value, torch.dtype)]
    return dtypes[:1] != [] and dtypes[0] in CHOOSY


def _on_cuda(op: Operator, args: list[Any]) -> bool:
    """Whether an operand is of a dtype that CUDA alone accepts."""
    dtypes = {one.dtype for one in tensors_of(args)}
    return any(dtypes & set(ON_CUDA[kind]) for kind in op.known.kinds & ON_CUDA.keys())


def _mixes_floats(trial: Trial) -> bool:
    """Whether floating-point operands differ in dtype where the CPU's kernels mostly want one."""
    if trial.op.kind not in ("loss", "norm", "matmul") or not trial.op.for_cpu:
        return False
    return len({one.dtype for one in trial.tensors if one.dtype.is_floating_point}) > 1


def _writes_other_dtype(trial: Trial) -> bool:
    """Whether values are written that have another dtype than what they are written into."""
    if "OneDtype" not in trial.op.known.kinds:
        return False
    into, values = trial.args[0], trial.args[2]
    return bool(into.dtype != values.dtype)


def _numbers_classes_otherwise(trial: Trial) -> bool:
    """Whether classes are numbered in other integers than int64."""
    if "ClassNumbers" not in trial.op.known.kinds:
        return False
    return any(not _has_fractions(one.dtype) and one.dtype != torch.int64 for one in trial.tensors)


def _loses_imaginary(trial: Trial, results: Results) -> bool:
    """Whether a complex number is given where real numbers come out."""
    op = trial.op
    number = any(type(value) is complex for value in trial.args)
    if not number and not any(one.is_complex() for one in trial.tensors):
        return False
    complex_ = any(one.is_complex() for one in trial.of(op.read))
    target = any(not one.is_complex() for one in trial.of(op.written))
    real = any(one is not None and not one.is_complex() for one in results)
    return (number and (real or target)) or (complex_ and target)


# -- Shapes --


def _widens_product(op: Operator, args: list[Any]) -> bool:
    """Whether what is added to a product of matrices, or of matrix and vector, is larger."""
    if "NarrowSummand" not in op.known.kinds:
        return False
    summand, a, b = args[:3]
    return not expands(summand.shape, (a.shape[0], *b.shape[1:]))


_PARTS: dict[str, Callable[..., Tensor]] = {
    "slice": torch.ops.aten.slice.Tensor,
    "select": torch.ops.aten.select.int,
    "diagonal": torch.ops.aten.diagonal.default,
}


def unfit_part(op: Operator, twins: list[Any]) -> bool:
    """Whether a part of a tensor is replaced by what has other sizes.

    Meta kernels in Python mind neither that nor where the part is.
    """
    name, _, form = op.row.rpartition("_")
    if form not in ("scatter", "backward") or name not in _PARTS:
        return False
    first, second, *where = twins[: len(twins) - len(op.outs)]
    whole, part = (first, second) if form == "scatter" else (first.new_empty(second), first)
    try:
        return bool(_PARTS[name](whole, *where).shape != part.shape)
    except Exception:
        return True


def expands(sizes: torch.Size, to: tuple[int, ...]) -> bool:
    """Tells if a tensor of these sizes can be expanded."""
    pairs = zip(reversed(sizes), reversed(to), strict=False)
    return len(sizes) <= len(to) and all(one in (1, wide) for one, wide in pairs)


def _bounds_of_floats(trial: Trial) -> bool:
    """Whether whole numbers are drawn between bounds for a tensor of floating point."""
    kinds = trial.op.known.kinds
    return "WholeNumbers" in kinds and _has_fractions(trial.tensors[0].dtype)


def _reduces_nothing(trial: Trial) -> bool:
    return trial.op.kind in ("reduce", "loss") and any(one.numel() == 0 for one in trial.tensors)


def check_values(trial: Trial, twins: list[Any], results: Results) -> None:
    """Raises what the CPU would raise, for a new key whose results are known."""
    op, args = trial.op, trial.args
    dense = [one for one in tensors_of(results) if one.layout == torch.strided]
    if sum(one.nbytes for one in dense) > MOST_BYTES:
        return
    choices = _choices(op, args)
    known = choices is None or choices in _accepted
    if (
        not known
        or _unusual_target(trial, twins)
        or _reduces_nothing(trial)
        or _bounds_of_floats(trial)
        or _widens_product(op, args)
        or _mixes_floats(trial)
        or _writes_other_dtype(trial)
        or _numbers_classes_otherwise(trial)
        or _loses_imaginary(trial, results)
    ):
        trial.raise_as_cpu()
    if choices is not None and all(one.numel() for one in trial.tensors):
        _accepted.add(choices)
