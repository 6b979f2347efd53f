"""Floating-point operations of a program, whatever plugin runs it.

Of matrix products and convolutions, as the core prints them (core/hlo/print.c): two for each
multiplication, as PyTorch's flop counter has it. What is within a loop counts once.
"""

import re
from math import prod

TENSOR = r"tensor<((?:\d+x)*)[^>]*?>+"
TYPES = rf".* : \({TENSOR}, {TENSOR}\) -> {TENSOR}"
PRODUCT = re.compile(rf'"stablehlo\.(dot_general|convolution)"\([^)]*\) (\{{.*\}}){TYPES}')
CONTRACTED = re.compile(r"lhs_contracting_dimensions = \[([\d, ]*)\]")
FEATURES = re.compile(r"kernel_output_feature_dimension = (\d+)")


def count(stablehlo: str) -> int:
    """Those of a program's text."""
    return sum(
        _dot(match) if match[1] == "dot_general" else _convolution(match)
        for match in PRODUCT.finditer(stablehlo)
    )


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
