"""Dims whose size varies: how what counts of them lies among padding.

A dim is a tuple of factors, the outermost first, whose product is its size. What counts are the
elements all of whose digits are below their factor's value; where a program serves all sizes up to
a bound, a digit runs to its factor's value at the bound, and the rest is padding. A factor that is
a number is part of the one before it, so `(n,)` and `(4*n,)` begin with what counts, and `(2, n)`
is two rows that do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min

Dim = tuple[sympy.Expr, ...]


class RefusedError(Exception):
    """Each size has to be a program of its own; says why."""


class Free(tuple[sympy.Expr, ...]):
    """A dim along which all elements are equal, padding too, which may lie anywhere then."""


ONE: Dim = (sympy.Integer(1),)
NOTHING: Dim = (sympy.Integer(0),)


_equal: ContextVar[Mapping[sympy.Symbol, sympy.Symbol]] = ContextVar("equal")


@contextmanager
def equated(symbols: Mapping[sympy.Symbol, sympy.Symbol]) -> Iterator[None]:
    """Within it, each of these symbols is taken for another one."""
    token = _equal.set(symbols)
    try:
        yield
    finally:
        _equal.reset(token)


def expr_of(size: Any) -> sympy.Expr:
    """A size, or another number that depends on sizes, as an expression of them."""
    if not isinstance(size, torch.SymInt | torch.SymFloat):
        return sympy.Integer(size)
    expr = size.node.expr.xreplace(dict(_equal.get({})))
    return sympy.expand(expr) if isinstance(size, torch.SymInt) else expr


def equation(one: Dim, other: Dim) -> tuple[sympy.Symbol, sympy.Symbol] | None:
    """Two symbols that must be equal if the dims are."""
    for a, b in zip(one, other, strict=False):
        difference = sympy.expand(a - b)
        symbols = sorted(difference.free_symbols, key=str)
        if len(one) == len(other) and len(symbols) == 2:
            first, second = symbols
            if difference.subs(second, first) == 0:
                return first, second
    return None


def joined(factors: Iterable[sympy.Expr]) -> Dim:
    """The dim that has these factors."""
    all_: list[sympy.Expr] = []
    for factor in factors:
        if factor == 1:
            continue
        if all_ and factor.is_Integer:
            all_[-1] = sympy.expand(all_[-1] * factor)
        else:
            all_.append(factor)
    return tuple(all_) or ONE


def dims_of(sizes: Iterable[Any]) -> tuple[Dim, ...]:
    """Dims that begin with what counts, of these sizes."""
    return tuple((expr_of(size),) for size in sizes)


def size_of(dim: Dim) -> sympy.Expr:
    """The product of its factors."""
    return sympy.expand(sympy.Mul(*dim))


def varies(dim: Dim) -> bool:
    """Whether it has padding."""
    return any(factor.free_symbols for factor in dim)


def is_prefix(dim: Dim) -> bool:
    """Whether it begins with what counts."""
    return len(dim) == 1 or not varies(dim)


def grows(expr: sympy.Expr) -> bool:
    """Whether a size is known never to shrink where those that it depends on grow."""
    if expr.is_Symbol or expr.is_Integer:
        return True
    if isinstance(expr, sympy.Add):
        return all(grows(one) for one in expr.args)
    if isinstance(expr, sympy.Mul):
        return all(grows(one) and not (one.is_Integer and one < 0) for one in expr.args)
    if isinstance(expr, sympy.Pow):
        return bool(expr.args[1].is_Integer and expr.args[1] > 0) and grows(expr.args[0])
    if isinstance(expr, FloorDiv | CleanDiv):
        return bool(expr.args[1].is_Integer and expr.args[1] > 0) and grows(expr.args[0])
    return isinstance(expr, Min | Max) and all(grows(one) for one in expr.args)


def regrouped(dims: Sequence[Dim], sizes: Sequence[Any]) -> tuple[Dim, ...] | None:
    """The dims of these sizes that a tensor with `dims` has when it is viewed so.

    None where a row of a new dim would mix what counts and padding in another way.
    """
    factors = [(one, isinstance(dim, Free)) for dim in dims for one in dim if one != 1]
    made: list[Dim] = []
    for size in sizes:
        taken = _taken(factors, expr_of(size))
        if taken is None:
            return None
        dim = joined(one for one, _ in taken)
        made.append(Free((size_of(dim),)) if taken and all(free for _, free in taken) else dim)
    return tuple(made) if not factors else None


def _taken(
    factors: list[tuple[sympy.Expr, bool]], wanted: sympy.Expr
) -> list[tuple[sympy.Expr, bool]] | None:
    """Takes factors from the front whose product is that; one may be split."""
    taken: list[tuple[sympy.Expr, bool]] = []
    while wanted != 1:
        if not factors:
            return None
        first, free = factors.pop(0)
        rest = sympy.cancel(wanted / first)
        if _is_size(rest):
            taken.append((first, free))
            wanted = rest
            continue
        inner = sympy.cancel(first / wanted)
        begins = inner.is_Integer and not (wanted.is_Integer and first.free_symbols)
        if not begins and not (free and _is_size(inner)):
            return None
        taken.append((wanted, free))
        factors.insert(0, (inner, free))
        break
    return taken


def _is_size(expr: sympy.Expr) -> bool:
    """Whether it can be a product of factors that are left: no fraction."""
    return sympy.fraction(sympy.together(expr))[1] == 1 and not (expr.is_Integer and expr < 1)
