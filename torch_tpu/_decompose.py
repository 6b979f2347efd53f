"""Finds the decomposition of an operator; imported by the glue on first need."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch._decomp
from torch import Tensor

from torch_tpu import _C, _agreement, _decompositions
from torch_tpu._agreement import checks
from torch_tpu._agreement.operators import Trial, operator, tensors_of

Function = Callable[..., Any]


class _Running(threading.local):
    """The decompositions that a thread is in."""

    def __init__(self) -> None:
        self.names: set[str] = set()


_running = _Running()


def lookup(name: str) -> Function | None:
    """Returns the decomposition of an overload, which takes a list of its arguments; or None.

    name: a qualified overload name, such as "aten::addcmul" or "aten::add.Tensor".
    """
    function = _overload(name)
    if function is None:
        return None
    own = direct(function)
    twin = None if own else _functional_twin(function)
    found = own if twin is None else _through(function, twin, direct(twin))
    return None if found is None else _checked(name, found)


def _checked(name: str, compute: Function) -> Function:
    """A decomposition whose errors are the CPU's.

    One that arrives at its own operator again does not lead anywhere, and has no answer.
    """
    op = operator(name, "")

    def call(args: list[Any]) -> Any:
        if name in _running.names:
            return NotImplemented
        trial = Trial(op, args)
        checks.check_apart(trial)
        _running.names.add(name)
        try:
            return op.apply(compute, args)
        except NotImplementedError:
            raise
        except (RuntimeError, IndexError, ValueError, TypeError):
            trial.raise_as_cpu()  # it may have been called wrongly
            raise
        finally:
            _running.names.discard(name)

    return call


@functools.cache
def through(name: str, functional: str) -> Function:
    """Returns a function that writes an overload's targets with what another one computes.

    It takes a list of the arguments.
    """
    twin = _overload(functional)
    return functools.partial(operator(name, "").apply, _through(_overload(name), twin, twin))


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return getattr(packet, overload or "default", None)


def direct(function: Any) -> Function | None:
    """Returns an overload's own decomposition, ours before PyTorch's."""
    found = _decompositions.table().get(function.name())
    found = found or torch._decomp.decomposition_table.get(function)
    if found is None and function._can_decompose():
        found = function.decompose
    return found


def _inputs(function: Any) -> list[tuple[str, str]]:
    """Returns the arguments that are not only written to, by name and type."""
    arguments = function._schema.arguments
    return [(one.name, str(one.type)) for one in arguments if not one.is_out]


def _functional_twin(function: Any) -> Any:
    """What takes the same arguments as an out= or in-place form, and has a decomposition."""
    has_out = any(one.is_out for one in function._schema.arguments)
    namespace, _, operator = function._schema.name.partition("::")
    if not has_out and not operator.endswith("_"):
        return None
    name = operator if has_out else operator[:-1]
    twins = getattr(getattr(torch.ops, namespace if has_out else "aten"), name, None)
    for overload in twins.overloads() if twins is not None else ():
        twin = getattr(twins, overload)
        if twin is function or any(one.is_out for one in twin._schema.arguments):
            continue
        if _inputs(twin) == _inputs(function) and direct(twin) is not None:
            return twin
    return None


def _through(function: Any, twin: Any, compute: Any) -> Function:
    """Copies to the targets of what writes what its functional twin returns.

    compute: the twin, or its decomposition. Of targets of another dtype the CPU is asked.
    """
    name = function.name()
    op = operator(name, "")
    names = [one.name for one in function._schema.arguments]
    outs, aliases = [names[i] for i in op.outs], [names[i] for i in op.aliases]
    others = [names[i] for i in op.written if i not in op.outs]
    if twin._schema.is_mutable:  # it writes the others itself
        others = []

    def call(*args: Any, **keywords: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | keywords
        results = compute(*args, **{key: keywords[key] for key in keywords if key not in outs})
        if results is NotImplemented:
            return NotImplemented
        computed = tensors_of(list(results) if isinstance(results, list | tuple) else [results])
        targets = tensors_of([given[key] for key in (*outs, *others)])
        fitted = len(tensors_of([given[key] for key in outs]))
        pairs = list(zip(targets, computed, strict=True))
        agreed = any(target.dtype != result.dtype for target, result in pairs[:fitted]) and (
            _agreement.raise_as_cpu(name, "", [given.get(key) for key in names])
        )
        for i, (target, result) in enumerate(pairs):
            _check_device(name, target, result)
            if not agreed:
                checks.check_cast(name, result.dtype, target.dtype)
            if i < fitted:
                _C.fit_output(target, result)
            target.copy_(result)
        returned = tuple(given[alias] for alias in aliases)
        return returned[0] if len(returned) == 1 else returned

    return call


def _check_device(name: str, target: Tensor, result: Tensor) -> None:
    if target.device != result.device:
        raise RuntimeError(
            f"{name}: expected an out= tensor on {result.device}, but it is on {target.device}"
        )
