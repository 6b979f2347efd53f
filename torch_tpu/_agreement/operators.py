"""One overload that runs on the device, and how the same is asked of other devices' kernels."""

import functools
import threading
from typing import Any

import torch
from torch import Tensor

from torch_tpu import _C
from torch_tpu._agreement import table

Results = list[Tensor | None]
MOST_BYTES = 1 << 28
"""What is larger is not tried on the host."""
COMPUTES_WITH_ALL = ("pointwise", "reduce", "foreach", "optim")
"""The classes of rows whose operands are all numbers to compute with, and none is an index."""

COMPUTES_WITH_FIRST = ("pool", "loss", "conv", "norm", "random")
"""The classes of rows that compute with their first operand, and may take indices, too."""

_INDICES = "List[Optional[Tensor]]"
_WRAPPED = {"self", "other", "x", "n"}
"""What Scalar overloads call the numbers that the CPU's kernels make tensors of."""

_has = torch._C._dispatch_has_kernel_for_dispatch_key
_has_computed = torch._C._dispatch_has_computed_kernel_for_dispatch_key


class _Asking(threading.local):
    now = False


_asking = _Asking()


def asks_meta() -> bool:
    """Tells if this thread asks Meta kernels about tensors that lie as the CPU's."""
    return _asking.now


@functools.cache
def _classes() -> dict[str, str]:
    return {name: kind for name, kind, *_ in _C.op_rows()}


def tensors_of(args: list[Any]) -> list[Tensor]:
    """Returns the tensors among arguments, and those in lists."""
    found = []
    for value in args:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [one for one in value if isinstance(one, Tensor)]
    return found


def _alias(schema: Any, returned: Any) -> int:
    """Which argument is returned, or -1."""
    for i, one in enumerate(schema.arguments):
        both = one.alias_info and returned.alias_info
        if both and one.alias_info.before_set == returned.alias_info.before_set:
            return i
    return -1


def overload(name: str) -> Any:
    """Returns the overload of a qualified name, such as "aten::add_.Tensor"."""
    namespace, _, short = name.partition("::")
    operator, _, rest = short.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), rest or "default")


class Operator:
    """What is known of an overload.

    name: its qualified name, such as "aten::add_.Tensor". row: the one that serves it, or "".
    """

    def __init__(self, name: str, row: str) -> None:
        short = name.partition("::")[2]
        operator = short.partition(".")[0]
        self.name, self.row = name, row
        self.kind = _classes().get(row, "")
        self.known = table.known(short, row)
        self._function = overload(name)
        schema = self._function._schema
        self._returns = [one.alias_info is None for one in schema.returns]
        self.fresh_count = sum(self._returns)
        self.names = names = [one.name for one in schema.arguments]
        self.aliases = [_alias(schema, one) for one in schema.returns]
        self.indices = next(
            (i for i, one in enumerate(schema.arguments) if str(one.type) == _INDICES), -1
        )
        self.argument = names.index(self.known.argument) if self.known.argument in names else -1
        self._keywords = [one.name for one in schema.arguments if one.kwarg_only]
        self._positional = len(names) - len(self._keywords)
        self.outs = [i for i, one in enumerate(schema.arguments) if one.is_out]
        self.written = [
            i
            for i, one in enumerate(schema.arguments)
            if one.alias_info and one.alias_info.is_write
        ]
        self.read = [i for i in range(len(names)) if i not in self.written]
        # PyTorch takes numbers for tensors in the arguments of a few operators.
        self._only_tensors = [
            i
            for i, one in enumerate(schema.arguments)
            if str(one.type) == "Tensor" and not torch._C._should_allow_numbers_as_tensors(operator)
        ]
        self.wrapped = [
            i
            for i, one in enumerate(schema.arguments)
            if str(one.type) == "Tensor" or (str(one.type) == "number" and one.name in _WRAPPED)
        ]
        # The composite kernels of *_overrideable operators only throw, on any device.
        overrideable = operator.endswith("_overrideable")
        self._on_host = self._function
        if "Convolved" in self.known.kinds:
            self._on_host = torch.ops.aten.convolution.default
        # What our own operators do on the host is done for the device (collectives, say).
        self.on_cpu = self._on_host is not self._function or (
            not overrideable and not name.startswith("torch_tpu::") and _has_computed(name, "CPU")
        )
        self.for_cpu = _has(name, "CPU")
        self.has_meta = _has(name, "Meta") or (not overrideable and _has_computed(name, "Meta"))

    @functools.cached_property
    def functional(self) -> "Operator | None":
        """The row's own overload, if it is another."""
        own = self.row if "::" in self.row else f"aten::{self.row}"
        return operator(own, self.row) if self.row and own != self.name else None

    def call(self, args: list[Any]) -> Any:
        """Calls it with arguments in the schema's order."""
        return self.apply(self._function, args)

    def call_on_host(self, args: list[Any]) -> Any:
        """Calls what serves it on the CPU with arguments that are there."""
        return self.apply(self._on_host, args)

    def apply(self, function: Any, args: list[Any]) -> Any:
        """Calls what takes the same arguments, in which a tensor may be a number."""
        at = self._positional
        for i in self._only_tensors:
            if isinstance(args[i], int | float | complex):
                args = [*args[:i], torch.tensor(args[i]), *args[i + 1 :]]
        if not self._keywords:
            return function(*args)
        return function(*args[:at], **dict(zip(self._keywords, args[at:], strict=True)))

    def call_meta(self, twins: list[Any]) -> Results:
        """What the Meta kernel returns, without the arguments among it; lists are flattened."""
        twins = self._as_meta_takes(twins)
        if self.kind == "foreach" and not self.outs:
            few, places = _distinct_elements(twins)
            found = self._call_meta(few)
            return found if len(found) != len({*places}) else [found[k] for k in places]
        return self._call_meta(twins)

    def _as_meta_takes(self, twins: list[Any]) -> list[Any]:
        if "NoDimsAreAll" in self.known.kinds:
            return [
                None if i == self.argument and one == [] else one for i, one in enumerate(twins)
            ]
        if "WholeFactor" in self.known.kinds and not twins[0].dtype.is_floating_point:
            whole = isinstance(twins[self.argument], float)
            return [
                int(one) if whole and i == self.argument else one for i, one in enumerate(twins)
            ]
        if "ClassNumbers" in self.known.kinds:
            return [
                one.long() if isinstance(one, Tensor) and one.dtype == torch.uint8 else one
                for one in twins
            ]
        return twins

    def _call_meta(self, twins: list[Any]) -> Results:
        before, _asking.now = _asking.now, "AsOnCuda" not in self.known.kinds
        try:
            value = self.call(twins)
        finally:
            _asking.now = before
        found: Results = []
        for one, fresh in zip(
            (value,) if len(self._returns) == 1 else value or (), self._returns, strict=True
        ):
            if fresh and isinstance(one, list | tuple):
                found += one
            elif fresh:
                found.append(one if isinstance(one, Tensor) else None)
        return found


def _form(value: Any) -> tuple[object, ...]:
    if isinstance(value, Tensor):
        return value.dtype, value.device, value.shape, value.stride()
    return type(value), value


def _distinct_elements(args: list[Any]) -> tuple[list[Any], list[int]]:
    """Shorter lists, without the elements that are like earlier ones, and which serves for each.

    An optimizer's lists have many parameters of few shapes, and Meta kernels in Python are slow.
    Lists stay as they are, and serve for nothing, where elements are not all that counts.
    """
    lists = [value for value in args if isinstance(value, list | tuple)]
    wide = any(isinstance(value, Tensor) and value.dim() for value in args)
    if wide or len({len(one) for one in lists}) != 1:
        return args, []
    first: dict[tuple[object, ...], int] = {}
    forms = [tuple(map(_form, element)) for element in zip(*lists, strict=True)]
    places = [first.setdefault(form, len(first)) for form in forms]
    kept = [places.index(k) for k in range(len(first))]
    few = [[value[k] for k in kept] if isinstance(value, list | tuple) else value for value in args]
    return few, places


@functools.cache
def operator(name: str, row: str) -> Operator:
    """Returns what is known of an overload."""
    return Operator(name, row)


# -- The host --


def _with_masks(indices: list[Any], twins: list[Any]) -> list[Any]:
    for one, twin in zip(indices, twins, strict=True):
        if twin is not one and one.dtype in (torch.bool, torch.uint8):
            twin.copy_(one)
    return twins


def _host_twins(op: Operator, args: list[Any], fill: int) -> list[Any]:
    """The arguments on the host, full of one number.

    Those that share memory do so there as well, and each storage has room for all tensors: kernels
    that take a target for contiguous, though its elements coincide, then write nowhere else. Masks
    among indices keep their numbers, on which shapes depend.
    """
    room: dict[int, int] = {}
    storages: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors_of(args):
        if tensor.device.type != "tpu":
            continue
        own = tensor.untyped_storage()
        needed = int(tensor.storage_offset()) * tensor.itemsize + tensor.nbytes
        room[own._cdata] = max(room.get(own._cdata, 0), own.nbytes(), needed)

    def twin(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [twin(one) for one in value]
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, torch.Generator):
            return None
        if not isinstance(value, Tensor) or value.device.type != "tpu":
            return value
        own = value.untyped_storage()._cdata
        if own not in storages:
            full = (
                torch.full((-(-room[own] // value.itemsize),), fill, dtype=value.dtype)
                if fill
                else torch.zeros(room[own], dtype=torch.uint8)
            )
            storages[own] = full.untyped_storage()
        same = torch.empty(0, dtype=value.dtype)
        return same.set_(storages[own], value.storage_offset(), value.size(), value.stride())

    twins = [twin(value) for value in args]
    if op.indices >= 0:
        twins[op.indices] = _with_masks(args[op.indices], twins[op.indices])
    return twins


def _refusal(op: Operator, args: list[Any], fill: int) -> Exception | None:
    try:
        op.call_on_host(_host_twins(op, args, fill))
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return None  # it took the arguments: of matrices full of one number there is no result
    except Exception as error:
        return error
    return None


class Trial:
    """The arguments of one call, of which the CPU is asked but once."""

    def __init__(self, op: Operator, args: list[Any]) -> None:
        self.op, self.args = op, args
        self.tensors = [one for one in tensors_of(args) if one.device.type == "tpu"]
        self._agrees = False

    def of(self, places: list[int]) -> list[Tensor]:
        """The tensors among some of the arguments."""
        return tensors_of([self.args[i] for i in places])

    def raise_as_cpu(self) -> bool:
        """Runs the operator on host tensors of the same shapes, so that errors are the CPU's.

        What it raises counts if it does for zeros and for ones: else it was about the numbers (a
        pivot, a divisor). Returns false if the arguments are too large to try; true if the CPU has
        no objection.
        """
        op = self.op
        size = sum(max(one.nbytes, one.untyped_storage().nbytes()) for one in self.tensors)
        if self._agrees or size > MOST_BYTES or not op.on_cpu:
            return self._agrees
        fill = int(op.kind in COMPUTES_WITH_ALL)  # zeros are fit for indices, ones for divisors
        error = _refusal(op, self.args, fill)
        if error and _refusal(op, self.args, 1 - fill):
            raise error.with_traceback(None)
        self._agrees = True
        return True
