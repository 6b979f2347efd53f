"""StableHLO that other runtimes run: what was recorded, behind a `main` that says what it takes."""

from collections.abc import Iterable
from typing import Any, Literal

import torch

from torch_tpu.export.program import Port, Program
from torch_tpu.export.recording import MLIR, Recording, record

RANDOM = "random"


def stablehlo(
    function: Any,
    args: Iterable[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    weights: Literal["inside", "beside"] = "inside",
    seed: int | None = None,
) -> Program:
    """Returns a function as a portable StableHLO program.

    function: a module, a function, or a torch.export.ExportedProgram, on any device. args, kwargs:
    tensors with the shapes and dtypes that the program is for; values that are no tensors become
    part of it, as do all choices that the function makes by them.

    `main` takes the tensors of args and kwargs in their order, then, with weights="beside", the
    module's parameters and buffers that it uses, and tensors that the function refers to, in the
    order of `Program.inputs`; with "inside" these are constants of the program. It returns the
    tensors of the result, then the new value of each input and weight that the function writes.

    A function that draws random numbers gets `random` as its last input, 32-bit words of the seed
    and the place in its stream; with a `seed` there is no such input, and each run draws the
    numbers that a run on `tpu` draws after `torch.manual_seed(seed)`.

    Raises what `recording.record` does, NotImplementedError for what only LAPACK computes (`eig`),
    and RuntimeError where it writes tensors that are neither arguments nor weights.
    """
    if weights not in ("inside", "beside"):
        raise ValueError(f'weights={weights!r}: it is "inside" or "beside"')
    return program_of(record(function, args, kwargs), weights == "beside", seed)


def program_of(recording: Recording, beside: bool, seed: int | None) -> Program:
    """Writes a recording's `main`."""
    names = list(recording.inputs)
    inputs = [_port("input", name, one) for name, one in recording.inputs.items()]
    if beside:
        inputs += [_port("weight", name, one) for name, one in recording.weights.items()]
        names += list(recording.weights)
    if recording.draws and seed is None:
        inputs.append(Port("random", RANDOM, torch.uint32, (4,)))
    outputs = [_port("output", name, one) for name, (_, one) in recording.gives.items()]
    values = {**recording.inputs, **recording.weights}
    taken = {one.name for one in outputs}
    for name in recording.writes:
        new = name
        while new in taken:
            new += "_"
        taken.add(new)
        outputs.append(_port("output", new, values[name], name))
    text = _Main(recording, inputs, outputs, seed).text()
    kept = {name: recording.weights[name] for name in names if name in recording.weights}
    note = recording.note
    return Program(text, tuple(inputs), tuple(outputs), kept, recording.blocks, note)


def _port(kind: str, name: str, one: torch.Tensor, new_value_of: str = "") -> Port:
    return Port(kind, name, one.dtype, tuple(one.shape), new_value_of)


def _type(dtype: torch.dtype, shape: Iterable[int]) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{MLIR[dtype]}>"


def _hex(one: torch.Tensor) -> str:
    flat = one.detach().cpu().contiguous().resolve_conj().resolve_neg().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes().hex().upper()


class _Main:
    """Writes `main`, which calls what was recorded, as @program."""

    def __init__(
        self, recording: Recording, inputs: list[Port], outputs: list[Port], seed: int | None
    ) -> None:
        self.recording, self.inputs, self.outputs, self.seed = recording, inputs, outputs, seed
        self.lines: list[str] = []
        self.values: dict[str, str] = {}  # of names, in SSA
        self.random = ""  # the last parameter, where there are random numbers

    def text(self) -> str:
        """The whole module."""
        printed = self.recording.printed
        main = self._main(printed.params, printed.results)
        program = f"func.func private @program({printed.signature} {{\n{printed.body}\n}}\n"
        return f"module @export {{\n{main}{program}}}\n"

    def _main(self, taken: list[str], given: list[str]) -> str:
        params = []
        for i, one in enumerate(self.inputs):
            self.random = f"%arg{i}"
            if one.kind != "random":
                self.values[one.name] = self.random
            params.append(f'%arg{i}: {_type(one.dtype, one.shape)} loc("{one.name}")')
        arguments = [self._value(name) for name in self.recording.takes]
        if self.recording.words:
            arguments.append(self._words())
        self.lines.append(
            f'%call:{len(given)} = "func.call"({", ".join(arguments)}) {{callee = @program}} : '
            f"({', '.join(taken)}) -> ({', '.join(given)})"
        )
        results = [self._result(one) for one in self.outputs]
        types = ", ".join(_type(one.dtype, one.shape) for one in self.outputs)
        self.lines.append(f'"func.return"({", ".join(results)}) : ({types}) -> ()')
        body = "\n".join(self.lines)
        return f"func.func public @main({', '.join(params)}) -> ({types}) {{\n{body}\n}}\n"

    def _emit(self, operation: str, type_of_result: str) -> str:
        name = f"%{len(self.lines)}"
        self.lines.append(f"{name} = {operation} -> {type_of_result}")
        return name

    def _dense(self, digits: str, type_of_result: str) -> str:
        value = f'dense<"0x{digits}">' if digits else "dense<>"
        operation = f'"stablehlo.constant"() {{value = {value} : {type_of_result}}} : ()'
        return self._emit(operation, type_of_result)

    def _constant(self, one: torch.Tensor) -> str:
        """MLIR packs the bits of booleans in ways that changed: they are made of bytes."""
        if one.dtype is not torch.bool:
            return self._dense(_hex(one), _type(one.dtype, one.shape))
        whole = _type(torch.uint8, one.shape)
        made = self._dense(_hex(one), whole)
        return self._emit(f'"stablehlo.convert"({made}) : ({whole})', _type(one.dtype, one.shape))

    def _value(self, name: str) -> str:
        if name not in self.values:
            self.values[name] = self._constant(self.recording.weights[name])
        return self.values[name]

    def _result(self, port: Port) -> str:
        if port.new_value_of:
            return f"%call#{self.recording.writes[port.new_value_of]}"
        place, _ = self.recording.gives[port.name]
        if place is not None:
            return f"%call#{place}"
        return self._constant(torch.zeros(port.shape, dtype=port.dtype))

    # -- Random numbers --

    def _words(self) -> str:
        """The program's words: its run-time numbers, and the places that its draws begin at."""
        words = list(self.recording.words)
        if self.seed is not None:
            for at, block in self.recording.draws:
                words[at : at + 4] = [*_halves(self.seed), *_halves(block)]
        if self.seed is not None or not self.recording.draws:
            return self._u32s(words)
        places, parts, done = self._places(), list[tuple[str, int]](), 0
        for i, (at, _) in enumerate(self.recording.draws):
            if at > done:
                parts.append((self._u32s(words[done:at]), at - done))
            parts.append((self._slice(places, 4 * len(self.recording.draws), 4 * i, 4), 4))
            done = at + 4
        if done < len(words):
            parts.append((self._u32s(words[done:]), len(words) - done))
        return self._join(parts)

    def _u32s(self, words: list[int]) -> str:
        made = torch.tensor([word & 0xFFFFFFFF for word in words], dtype=torch.int64)
        return self._constant(made.to(torch.uint32))

    def _slice(self, value: str, size: int, start: int, count: int) -> str:
        return self._emit(
            f'"stablehlo.slice"({value}) {{start_indices = array<i64: {start}>, limit_indices = '
            f"array<i64: {start + count}>, strides = array<i64: 1>}} : (tensor<{size}xui32>)",
            f"tensor<{count}xui32>",
        )

    def _join(self, parts: list[tuple[str, int]]) -> str:
        if len(parts) == 1:
            return parts[0][0]
        names = ", ".join(name for name, _ in parts)
        types = ", ".join(f"tensor<{size}xui32>" for _, size in parts)
        return self._emit(
            f'"stablehlo.concatenate"({names}) {{dimension = 0 : i64}} : ({types})',
            f"tensor<{sum(size for _, size in parts)}xui32>",
        )

    def _places(self) -> str:
        """Seed, and place plus block, of each draw: the 64-bit sum in halves, with a carry."""
        count = len(self.recording.draws)
        row, flags, table = (
            f"tensor<{count}xui32>",
            f"tensor<{count}xi1>",
            f"tensor<{count}x1xui32>",
        )
        seed_low, seed_high, low, high = (
            self._emit(
                f'"stablehlo.broadcast_in_dim"({self._slice(self.random, 4, i, 1)}) '
                "{broadcast_dimensions = array<i64: 0>} : (tensor<1xui32>)",
                row,
            )
            for i in range(4)
        )
        halves = [_halves(block) for _, block in self.recording.draws]
        low_blocks = self._u32s([low for low, _ in halves])
        high_blocks = self._u32s([high for _, high in halves])

        def add(a: str, b: str) -> str:
            return self._emit(f'"stablehlo.add"({a}, {b}) : ({row}, {row})', row)

        low_sum = add(low, low_blocks)
        less = self._emit(
            f'"stablehlo.compare"({low_sum}, {low_blocks}) {{comparison_direction = '
            f"#stablehlo<comparison_direction LT>}} : ({row}, {row})",
            flags,
        )
        carry = self._emit(f'"stablehlo.convert"({less}) : ({flags})', row)
        high_sum = add(add(high, high_blocks), carry)
        columns = [
            self._emit(f'"stablehlo.reshape"({one}) : ({row})', table)
            for one in (seed_low, seed_high, low_sum, high_sum)
        ]
        joined = self._emit(
            f'"stablehlo.concatenate"({", ".join(columns)}) {{dimension = 1 : i64}} : '
            f"({', '.join([table] * 4)})",
            f"tensor<{count}x4xui32>",
        )
        return self._emit(
            f'"stablehlo.reshape"({joined}) : (tensor<{count}x4xui32>)', f"tensor<{4 * count}xui32>"
        )


def _halves(number: int) -> tuple[int, int]:
    return number & 0xFFFFFFFF, number >> 32 & 0xFFFFFFFF
