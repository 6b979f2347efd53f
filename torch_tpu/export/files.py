"""Files that hold a compiled program: written, and read again as a function."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_tpu import _C, tpu
from torch_tpu.compiler import options as xla
from torch_tpu.export import recording
from torch_tpu.export.program import Port, Program
from torch_tpu.export.stablehlo import program_of

KINDS = ("input", "weight", "random", "output")


def save(
    path: str | Path,
    function: Any,
    args: Iterable[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    options: dict[str, Any] | None = None,
) -> Program:
    """Compiles a function for the current plugin and writes it, with its weights, into one file.

    The arguments are those of `stablehlo`, or `function` is what that returned, with its weights
    beside. The file has the program as the plugin serialises it, if it does, under a key of the
    plugin, its platform and its options, and as StableHLO, of which it is compiled anew where the
    key is another. options: those of the plugin's compiler, whose names begin with "xla_", also for
    whoever compiles it anew; they are comments at the head of the text. Returns what was written.
    Raises what `stablehlo` and the compiler do, ValueError for options that the plugin does not
    take, and RuntimeError where the file cannot be written.
    """
    program = function
    if not isinstance(program, Program):
        program = program_of(recording.record(function, args, kwargs), True, None)
    if options:
        program = dataclasses.replace(program, text=xla.lines(options) + program.text)
    names = [one.name for one in program.inputs]
    ports: list[_C._Port] = []
    for one in (*program.inputs, *program.outputs):
        value = program.weights[one.name] if one.kind == "weight" else None
        held = None if value is None else value.detach().cpu().contiguous()
        writes = names.index(one.new_value_of) if one.new_value_of in names else -1
        kind = KINDS.index(one.kind)
        ports.append((kind, one.name, one.dtype, list(one.shape), writes, held))
    _C.export_save(str(path), program.text, ports, json.dumps(program.note), program.blocks)
    return program


def load(path: str | Path) -> "Loaded":
    """Reads a file that `save` wrote, for the current device.

    Raises RuntimeError, with a sentence, if the file is missing, damaged, or of another version.
    """
    return Loaded(path)


class Loaded:
    """A program of a file, called as the function that it was made of, with tensors on `tpu`.

    Inputs that the function writes are written; so are its weights. Random numbers are those of the
    device's default generator. Nothing is differentiated.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        file = _C.Exported(self.path)
        self._note: dict[str, Any] = json.loads(file.note() or b"{}")
        held = file.ports()
        ports = [_port(one, held) for one in held]
        self.inputs = tuple(port for port in ports if port.kind == "input")
        self.outputs = tuple(port for port in ports if port.kind == "output")
        self.weights: dict[str, torch.Tensor] = {
            name: value.to("tpu") for _, name, _, _, _, value in held if value is not None
        }
        self._names = [port.name for port in self.inputs]
        self._plain = self._note["positional"] == self._names and not self._note["fixed"]
        self._written = {port.new_value_of for port in self.outputs} & {*self._names}
        self.text = file.text().decode()
        self._function = _C.Function()
        self.source = "loaded" if self._function.adopt(file) else "compiled"
        self.device = torch.device("tpu", tpu.current_device())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launches it once.

        Raises TypeError or ValueError if the arguments are not those that it was made for.
        """
        given = self._named(args, kwargs)
        tensors = {port.name: _checked(port, given.get(port.name)) for port in self.inputs}
        with torch.no_grad():
            whole = {name: _whole(one, self.device) for name, one in tensors.items()}
            results = self._function([*whole.values(), *self.weights.values()])
            for name in self._written:
                if whole[name] is not tensors[name]:
                    tensors[name].copy_(whole[name])
        return self._structured(results)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """A call's tensors."""
        plain = self._plain and not kwargs and len(args) == len(self._names)
        if plain and all(isinstance(one, torch.Tensor) for one in args):
            return dict(zip(self._names, args, strict=True))
        given = recording.arguments(self._note, args, kwargs)
        for name in given:
            if name not in self._names:
                raise TypeError(f"{self.path} takes no {name}")
        return given

    def __repr__(self) -> str:
        takes = ", ".join(f"{port.name}: {port.dtype}{list(port.shape)}" for port in self.inputs)
        return f"<{self.path}, {self.source}: {takes}>"

    def _structured(self, results: list[torch.Tensor]) -> Any:
        found = iter(results)
        others = self._note["others"]
        leaves = [
            other if name is None else next(found)
            for name, other in zip(self._note["results"], others, strict=True)
        ]
        tree = self._note["tree"]
        return tuple(leaves) if tree is None else pytree.tree_unflatten(leaves, _spec(tree))


def _spec(tree: str) -> Any:
    return pytree.treespec_loads(tree)


def _port(one: "_C._Port", ports: "list[_C._Port]") -> Port:
    kind, name, dtype, shape, writes, _ = one
    return Port(KINDS[kind], name, dtype, tuple(shape), ports[writes][1] if writes >= 0 else "")


def _checked(port: Port, given: torch.Tensor | None) -> torch.Tensor:
    if given is None:
        raise TypeError(f"input {port.name} is missing")
    if given.dtype != port.dtype or tuple(given.shape) != port.shape:
        raise ValueError(
            f"input {port.name} is {given.dtype}{list(given.shape)}; the program is for "
            f"{port.dtype}{list(port.shape)}"
        )
    if given.device.type != "tpu":
        raise ValueError(f"input {port.name} is on {given.device}; move it to tpu")
    return given


def _whole(one: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Itself, if it is all of its storage, row by row; else a copy that is."""
    one = one.detach() if one.requires_grad else one
    if one.device == device and _C.is_canonical(one):
        return one
    return torch.empty(one.shape, dtype=one.dtype, device=device).copy_(one)
