"""What a function does with its arguments, written down once, on tensors that hold nothing."""

import contextlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch._dynamo.eval_frame import OptimizedModule, innermost_fn
from torch._export.utils import _compiling_state_context
from torch.utils import _pytree as pytree

from torch_tpu import _C, tpu
from torch_tpu.export.printed import Printed

DEVICE = "tpu"


class Draw(NamedTuple):
    """Where four of a program's words, a place in the stream of random numbers, lie."""

    at: int  # the first of them
    block: int  # the place is so many blocks behind the one where the program's draws begin


@dataclass
class Recording:
    """A function as one program, and where that has its parameters from."""

    printed: Printed  # its parameters are those of `takes`, then the words, if any
    inputs: dict[str, torch.Tensor]  # arguments, by name
    weights: dict[str, torch.Tensor]  # parameters and buffers that it uses; other tensors
    takes: list[str]  # names of inputs and weights
    gives: dict[str, tuple[int | None, torch.Tensor]]  # which result; None: zeros; what it is like
    writes: dict[str, int]  # of an input or a weight, the result that is its new value
    words: list[int]
    draws: list[Draw]
    blocks: int  # of random numbers that a run draws
    note: dict[str, Any] = field(default_factory=dict)  # what `load` needs: see Signature


def record(function: Any, args: Iterable[Any], kwargs: dict[str, Any] | None) -> Recording:
    """Runs a function once, with nothing computed, and returns what it does.

    function: a module, a function, or a torch.export.ExportedProgram. args, kwargs: tensors on any
    device, in whatever containers, whose shapes and dtypes the program is for; other values are
    part of it. Raises TypeError for what a program cannot take or give, and RuntimeError, which
    names the line, where the function asks for a tensor's value.
    """
    module, call = _callable(function)
    signature = Signature(function if module is None else module, tuple(args), dict(kwargs or {}))
    weights = _weights(module, signature.tensors)
    stand = [_like(name, one) for name, one in (*signature.tensors.items(), *weights.items())]
    captured = _C.Function()
    with tpu.set_eager_mode(tpu.EagerMode.STRICT):
        stand_ins = captured.begin(stand)
        try:
            count = len(signature.tensors)
            replaced = dict(zip(map(id, weights.values()), stand_ins[count:], strict=True))
            with _compiling_state_context():  # `torch.compiler.is_exporting()` is true
                result = call(replaced, *signature.filled(stand_ins[:count]))
            given = _results(result, signature.note)
            fresh = [_fresh(name, one) for name, one in given.items()]
            del result, given, replaced
        except BaseException:
            captured.abandon()
            raise
        names = list(signature.outputs)
        captured.end(fresh, text_only=True)
    return _assemble(captured.describe(), signature, weights, dict(zip(names, fresh, strict=True)))


# -- Arguments --


class Signature:
    """The arguments of a call, by name, and how a later call's are found again (`note`)."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.note: dict[str, Any] = {"positional": _positional(function, len(args)), "fixed": {}}
        self._paths, self._spec = _flatten(self.note["positional"], args, kwargs)
        self.tensors: dict[str, torch.Tensor] = {}
        for name, one in self._paths.items():
            if isinstance(one, torch.Tensor):
                self.tensors[name] = one
            else:
                self.note["fixed"][name] = repr(one)

    @property
    def outputs(self) -> list[str]:
        """Names of the results, once they are known."""
        return [name for name in self.note["results"] if name is not None]

    def filled(self, tensors: list[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with other tensors."""
        found = dict(zip(self.tensors, tensors, strict=True))
        leaves = [found.get(name, one) for name, one in self._paths.items()]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return args, kwargs


def arguments(
    note: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """A call's tensors by name. Raises TypeError or ValueError where it is called otherwise."""
    positional = note["positional"]
    if len(args) > len(positional):
        raise TypeError(f"{len(args)} positional arguments, where the program has {positional}")
    paths, _ = _flatten(positional, args, kwargs)
    for name, value in paths.items():
        recorded = note["fixed"].get(name)
        if not isinstance(value, torch.Tensor) and recorded != repr(value):
            raise ValueError(f"argument {name} is {value!r}; the program is for {recorded}")
    return {name: one for name, one in paths.items() if isinstance(one, torch.Tensor)}


def _positional(function: Any, count: int) -> list[str]:
    """Names for so many positional arguments."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    names: list[str] = []
    try:
        for one in inspect.signature(target).parameters.values():
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
                names.append(one.name)
            elif one.kind == one.VAR_POSITIONAL:
                names += [f"{one.name}_{i}" for i in range(count - len(names))]
    except (TypeError, ValueError):
        names = []
    return (names + [f"argument_{i}" for i in range(len(names), count)])[:count]


def _flatten(
    positional: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], Any]:
    leaves, spec = pytree.tree_flatten_with_path((args, kwargs))
    paths: dict[str, Any] = {}
    for (_, root, *rest), leaf in leaves:
        first = positional[root.idx] if isinstance(root, pytree.SequenceKey) else _step(root)
        _add(paths, ".".join([str(first), *map(_step, rest)]), leaf)
    return paths, spec


def _step(key: Any) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _add(names: dict[str, Any], name: str, value: Any) -> str:
    """Adds a value under a name that a file can have, and which is not taken yet."""
    base = re.sub(r"[^A-Za-z0-9_.-]", "_", name).strip(".")[:180] or "unnamed"
    free, count = base, 0
    while free in names:
        count += 1
        free = f"{base}_{count}"
    names[free] = value
    return free


# -- Functions, modules, exported programs --


def _callable(function: Any) -> tuple[torch.nn.Module | None, Callable[..., Any]]:
    """The module, if it is one, and what calls it with other weights."""
    if isinstance(function, torch.export.ExportedProgram):
        function = _module_of(function)
    elif isinstance(function, OptimizedModule):
        function = function._orig_mod
    elif callable(function):
        function = innermost_fn(function)  # of what torch.compile returned
    if isinstance(function, torch.nn.Module):
        module = function

        def call(weights: dict[int, Any], args: Any, kwargs: Any) -> Any:
            with _weights_replaced(module, weights):
                return module(*args, **kwargs)

        return module, call
    if not callable(function):
        raise TypeError(f"a module, function or ExportedProgram is exported, not {function!r}")
    return None, lambda _, args, kwargs: function(*args, **kwargs)


def _module_of(exported: torch.export.ExportedProgram) -> torch.nn.Module:
    """Its module, which makes its tensors on `tpu`, on whatever device it was traced."""
    module = exported.module()
    for node in module.graph.nodes:
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": torch.device(DEVICE)}
        if node.target is torch.ops.aten.to.device:
            node.args = (node.args[0], torch.device(DEVICE), *node.args[2:])
    module.recompile()
    return module


@contextlib.contextmanager
def _weights_replaced(module: torch.nn.Module, by: dict[int, torch.Tensor]) -> Iterator[None]:
    """Gives a module other parameters and buffers for a while, wherever it holds them; by identity.

    torch.func.functional_call leaves what it was given in a module that is held twice.
    """
    held = [
        (part, table) for part in module.modules() for table in (part._parameters, part._buffers)
    ]
    before = [dict(table) for _, table in held]

    def fill(tables: list[dict[str, Any]]) -> None:
        for (part, table), values in zip(held, tables, strict=True):
            table.update(values)
            if isinstance(part, torch.nn.RNNBase):  # it keeps a list of them
                part._flat_weights = [getattr(part, name) for name in part._flat_weights_names]

    try:
        fill([{name: by.get(id(one), one) for name, one in table.items()} for table in before])
        yield
    finally:
        fill(before)


def _weights(module: torch.nn.Module | None, taken: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Its parameters and buffers, by names that differ from those that are taken."""
    found: dict[str, torch.Tensor] = {}
    names = dict(taken)
    for name, one in (
        [] if module is None else [*module.named_parameters(), *module.named_buffers()]
    ):
        found[_add(names, name, one)] = one
    return found


def _check(name: str, one: torch.Tensor) -> None:
    plain = one.layout == torch.strided and not one.is_nested and not one.is_quantized
    if not plain or one.dtype not in MLIR:
        raise TypeError(f"{name}: a program takes and gives no tensor of {one.dtype}, {one.layout}")


def _like(name: str, one: torch.Tensor) -> torch.Tensor:
    _check(name, one)
    return torch.empty(one.shape, dtype=one.dtype, device=DEVICE)


# -- Results --


def _results(result: Any, note: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a result, by name; what else it has goes into the note."""
    leaves, spec = pytree.tree_flatten_with_path(result)
    given: dict[str, torch.Tensor] = {}
    note["results"], note["others"] = [], []
    for path, leaf in leaves:
        is_tensor = isinstance(leaf, torch.Tensor)
        name = _add(given, ".".join(["output", *map(_step, path)]), leaf) if is_tensor else None
        note["results"].append(name)
        note["others"].append(None if is_tensor else leaf)
    try:
        json.dumps(note["others"])
    except TypeError as error:
        raise TypeError(
            f"the function returns what no program can: {error}; return tensors, numbers, strings"
        ) from None
    try:
        note["tree"] = pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError):
        note["tree"] = None
    return given


def _fresh(name: str, one: torch.Tensor) -> torch.Tensor:
    """A result by itself: not a view, nor what somebody else holds."""
    _check(name, one)
    if one.device.type != DEVICE:
        raise TypeError(f"{name} is on {one.device}: it depends on no argument on {DEVICE}")
    with torch.no_grad():
        return torch.empty(one.shape, dtype=one.dtype, device=DEVICE).copy_(one.detach())


# -- Putting it together --


def _assemble(
    facts: dict[str, Any],
    signature: Signature,
    weights: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
) -> Recording:
    printed = Printed(facts["text"])
    if len(facts["blocks"]) > 1:
        raise RuntimeError("the program draws from several generators; it may draw from one")
    arguments = [*signature.tensors, *weights]
    values = {**signature.tensors, **weights}
    takes = []
    for source in facts["inputs"]:
        constant = isinstance(source, torch.Tensor)
        takes.append(_add(values, "constant", source) if constant else arguments[source])
    writes, made = {}, {}
    for result, argument, place, outside in facts["outputs"]:
        if outside:
            raise RuntimeError("the function writes a tensor that is no argument and no weight")
        if argument >= 0:
            name = arguments[argument]
            if name not in takes or not printed.is_parameter(result, takes.index(name)):
                writes[name] = result
        elif place >= 0:
            made[place] = result
    used = {*takes, *writes}
    draws = [Draw(at, block) for at, _, block in facts["draws"] if printed.reads_words(at, 4)]
    return Recording(
        printed=printed,
        inputs=signature.tensors,
        weights={
            name: one for name, one in values.items() if name in used - set(signature.tensors)
        },
        takes=takes,
        gives={name: (made.get(i), one) for i, (name, one) in enumerate(outputs.items())},
        writes=writes,
        words=facts["words"],
        draws=draws,
        blocks=sum(facts["blocks"]) if draws else 0,
        note=signature.note,
    )


MLIR = {
    torch.bool: "i1",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "ui8",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
}
