"""Floating-point operations of a program, whatever plugin runs it.

Of matrix products and convolutions, as the core prints them (core/hlo/print.c): two for each
multiplication, as PyTorch's flop counter has it. What is within a loop counts as often as the loop
runs where it counts up to a constant, as loops over blocks and scans do; once in others.
"""

import re
from dataclasses import dataclass, field
from math import prod

TENSOR = r"tensor<((?:\d+x)*)[^>]*?>+"
TYPES = rf".* : \({TENSOR}, {TENSOR}\) -> {TENSOR}"
PRODUCT = re.compile(rf'"stablehlo\.(dot_general|convolution)"\([^)]*\) (\{{.*\}}){TYPES}')
ORDERED = re.compile(r'\{operator = "aten::convolution\w*", orders = array<i64: 1, (\d+),')
CONTRACTED = re.compile(r"lhs_contracting_dimensions = \[([\d, ]*)\]")
FEATURES = re.compile(r"kernel_output_feature_dimension = (\d+)")
NAME = re.compile(r"%\w+(?:#\d+)?")
DEFINED = re.compile(r'(%\d+)(?::\d+)? = "stablehlo\.(\w+)"\(([^)]*)\)')
INTEGER = re.compile(r"dense<(-?\d+)> : tensor<i\d+>")
RETURNED = re.compile(r'"stablehlo\.return"\(([^)]*)\)')


@dataclass
class _Region:
    """An operator's regions, one after the other: of a loop its condition, then its body."""

    loop: bool = False
    inits: list[str] = field(default_factory=list)
    parts: list[list[str]] = field(default_factory=lambda: [[]])  # arguments of each
    returned: list[list[str]] = field(default_factory=list)
    flops: int = 0


def count(stablehlo: str) -> int:
    """Those of a program's text."""
    stack = [_Region()]
    defined: dict[str, tuple[str, list[str], str]] = {}  # operator, operands, its line
    for line in stablehlo.splitlines():
        if match := DEFINED.match(line):
            defined[match[1]] = (match[2], NAME.findall(match[3]), line)
        if match := PRODUCT.search(line):
            stack[-1].flops += _dot(match) if match[1] == "dot_general" else _convolution(match)
        elif match := ORDERED.search(line):  # its products (core/ops/conv/host.h)
            stack[-1].flops += 2 * int(match[1])
        if line.endswith("({"):
            name, operands, _ = defined.get(line.split(" ", 1)[0].split(":")[0], ("", [], ""))
            stack.append(_Region(name == "while", operands))
        elif line.startswith("^bb0("):
            stack[-1].parts[-1] = NAME.findall(line)
        elif line.startswith("}, {"):
            stack[-1].parts.append([])
        elif match := RETURNED.match(line):
            stack[-1].returned.append(NAME.findall(match[1]))
        elif line.startswith("})"):
            done = stack.pop()
            stack[-1].flops += done.flops * (_times(done, defined) if done.loop else 1)
    return stack[0].flops


def _times(loop: _Region, defined: dict[str, tuple[str, list[str], str]]) -> int:
    """How often a loop runs that counts in steps of one up to a constant; 1 for others."""

    def number(name: str) -> int | None:
        found = INTEGER.search(defined.get(name, ("", [], ""))[2])
        return int(found[1]) if found else None

    name, operands, line = defined.get(loop.returned[0][0], ("", [], ""))
    if name != "compare" or "direction LT" not in line or operands[0] not in loop.parts[0]:
        return 1
    at = loop.parts[0].index(operands[0])
    first, end = number(loop.inits[at]), number(operands[1])
    step, added, _ = defined.get(loop.returned[1][at], ("", [], ""))
    by_one = step == "add" and added[0] == loop.parts[1][at] and number(added[1]) == 1
    return max(end - first, 0) if by_one and first is not None and end is not None else 1


def _dims(match: re.Match[str], number: int) -> list[int]:
    """Of the left and the right operand, and of the result."""
    return [int(size) for size in match[3 + number].split("x") if size]


def _dot(match: re.Match[str]) -> int:
    left, result = _dims(match, 0), _dims(match, 2)
    found = CONTRACTED.search(match[2])
    places = re.findall(r"\d+", found[1]) if found else []
    return 2 * prod(result) * prod(left[int(place)] for place in places)


def _convolution(match: re.Match[str]) -> int:
    kernel, result = _dims(match, 1), _dims(match, 2)
    found = FEATURES.search(match[2])
    features = kernel[int(found[1])] if found else 1
    return 2 * prod(result) * prod(kernel) // max(features, 1)
