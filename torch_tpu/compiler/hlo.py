"""Optimised HLO as text: a plugin gives a protocol buffer, whose fields are these numbers.

Only what a reader looks for is printed: names, shapes, operands, what is called. Field numbers are
those of XLA's hlo.proto and xla_data.proto.
"""

import struct
from collections.abc import Iterator
from typing import Any

Message = dict[int, list[Any]]

ELEMENTS = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 15: "c64", 16: "bf16", 17: "token", 18: "c128",
    19: "f8e5m2", 20: "f8e4m3fn", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz",
}  # fmt: skip
TUPLE = 13
SHOWN = 8  # elements of a constant


def text(module: bytes) -> str:
    """An HloModuleProtoWithConfig as text. Raises ValueError if it is none."""
    try:
        return "\n".join(_module(_message(_message(module)[1][0])))
    except (KeyError, IndexError, TypeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"the plugin's optimised program is not understood: {error}") from error


def _literal(data: bytes) -> str:
    """The elements of a small constant of a common type."""
    fields = _message(data)
    for number, form in {8: "f", 9: "d"}.items():
        if number in fields:
            raw = b"".join(fields[number])
            found = struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw)
            return ", ".join(f"{one:.9g}" for one in found) if len(found) <= SHOWN else ".."
    for number in (2, 4, 5, 6, 7):
        whole = _numbers(fields, number)
        if whole:
            signed = [one - (1 << 64) if one >> 63 else one for one in whole]
            return ", ".join(map(str, signed)) if len(whole) <= SHOWN else ".."
    return ".."


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _message(data: bytes) -> Message:
    """The fields of a message: numbers, and bytes of what is longer."""
    fields: Message = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: Any
        if tag & 7 == 0:
            value, at = _varint(data, at)
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = 8 if tag & 7 == 1 else 4
            value, at = data[at : at + size], at + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _numbers(fields: Message, number: int) -> list[int]:
    """A repeated integer, packed or not."""
    found: list[int] = []
    for value in fields.get(number, []):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            found.append(one)
    return found


def _text(fields: Message, number: int) -> str:
    found = fields.get(number)
    return found[0].decode() if found else ""


def _shape(data: bytes) -> str:
    fields = _message(data)
    element = fields.get(2, [0])[0]
    if element == TUPLE:
        return f"({', '.join(_shape(one) for one in fields.get(4, []))})"
    dims = ",".join(map(str, _numbers(fields, 3)))
    layout = ""
    if 5 in fields and dims:
        layout = ",".join(map(str, _numbers(_message(fields[5][0]), 1)))
    return f"{ELEMENTS.get(element, f'type{element}')}[{dims}]{f'{{{layout}}}' if layout else ''}"


def _module(module: Message) -> Iterator[str]:
    computations = [_message(one) for one in module.get(3, [])]
    names = {one[5][0]: _text(one, 1) for one in computations}
    entry = _text(module, 2)
    yield f"HloModule {_text(module, 1)}"
    for computation in computations:
        name = _text(computation, 1)
        yield ""
        yield f"{'ENTRY ' if name == entry else ''}%{name} {{"
        instructions = [_message(one) for one in computation.get(2, [])]
        known = {one[35][0]: _text(one, 1) for one in instructions}
        root = computation.get(6, [None])[0]
        for one in instructions:
            mark = "ROOT " if one[35][0] == root else ""
            yield f"  {mark}{_instruction(one, known, names)}"
        yield "}"


def _instruction(one: Message, known: dict[int, str], computations: dict[int, str]) -> str:
    opcode = _text(one, 2)
    inside = ", ".join(f"%{known[number]}" for number in _numbers(one, 36))
    if opcode == "parameter":
        inside = str(one.get(9, [0])[0])
    if opcode == "constant" and 8 in one:
        inside = _literal(one[8][0])
    line = f"%{_text(one, 1)} = {_shape(one[3][0])} {opcode}({inside})"
    dims = _numbers(one, 14)
    if dims and opcode != "constant":
        line += f", dimensions={{{','.join(map(str, dims))}}}"
    if target := _text(one, 28):
        line += f', custom_call_target="{target}"'
    if direction := _text(one, 63):
        line += f", direction={direction}"
    if kind := _text(one, 11):
        line += f", kind={kind}"
    called = [f"%{computations[number]}" for number in _numbers(one, 38)]
    return line + (f", calls={', '.join(called)}" if called else "")
