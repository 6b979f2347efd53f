"""Graphs whose sizes vary: one program serves all sizes up to a bound (docs/compile.md)."""

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx
from torch.nn import functional
from torch.utils._sympy.printers import PythonPrinter

from torch_tpu import _C
from torch_tpu.compiler import buckets
from torch_tpu.compiler.padding import Dim, Padding
from torch_tpu.compiler.padding.dims import expr_of
from torch_tpu.tpu.modes import EagerMode, Setting, set_eager_mode

MOST_SIZES = 1024  # that are remembered, of one graph


def _function_of(exprs: Sequence[Any], symbols: Sequence[sympy.Symbol]) -> Callable[..., Any]:
    """A function of the symbols' values, of what is expressed with them."""
    printer = PythonPrinter()
    printed = [printer.doprint(one) if isinstance(one, sympy.Expr) else "None" for one in exprs]
    names = ", ".join(str(one) for one in symbols)
    text = f"lambda {names}: ({''.join(one + ', ' for one in printed)})"
    made: Callable[..., Any] = eval(text, {"math": math, "min": min, "max": max, "torch": torch})
    return made


@dataclass
class Pair:
    """What a forward graph and its backward know of each other."""

    visible: int | None = None  # results of the forward that are seen; None: all
    saved: dict[str, tuple[Dim, ...]] = field(default_factory=dict)  # dims of the others, by name
    shown: dict[tuple[Dim, ...], tuple[Dim, ...]] = field(default_factory=dict)  # by their sizes
    varying: set[sympy.Symbol] = field(default_factory=set)  # sizes, not other numbers
    why: str = ""  # each size is a program of its own, of both
    first: bool = False  # the first size that is seen is a bound, as it may be the only one


class Room(NamedTuple):
    """What one bound of the sizes needs: example arguments of a program, by their places."""

    bounds: tuple[int, ...]  # of the symbols
    numbers: list[Any]  # of the placeholders that are numbers; None for tensors
    examples: dict[int, torch.Tensor]  # of those with padding
    wide: dict[int, tuple[int, ...]]  # their dims' factors
    extra: tuple[int, ...]  # the bounds that are arguments behind all others


@dataclass(frozen=True)
class Shown:
    """How a result lies in one of a program's, which has padding: as factors of its dims."""

    place: int  # among the program's results
    counts: tuple[tuple[int, ...], ...]  # of each dim's factors, the outermost first
    wide: tuple[tuple[int, ...], ...]  # the same with padding

    @functools.cached_property
    def length(self) -> tuple[int, int] | None:
        """A dim, and how many of its first elements count, if no other has padding."""
        padded = [i for i, one in enumerate(self.counts) if one != self.wide[i]]
        if len(padded) != 1 or self.counts[padded[0]][1:] != self.wide[padded[0]][1:]:
            return None
        return padded[0], math.prod(self.counts[padded[0]])

    def of(self, made: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
        """The result, of the program's, whose dims lie in this order."""
        if self.length is None and self.counts != self.wide:
            made = made.view([one for dim in self.wide for one in dim])
            for i, count in enumerate(one for dim in self.counts for one in dim):
                made = made.narrow(i, 0, count)
            made = made.reshape([math.prod(one) for one in self.counts]).contiguous()
        return made.permute([order.index(i) for i in range(len(order))])


@dataclass(frozen=True)
class Sizes:
    """What a call with certain sizes needs."""

    room: Room
    counts: tuple[torch.Tensor, torch.Tensor]  # whole numbers and fractions, on the device
    numbers: tuple[Any, ...]  # those of the results that are numbers
    exact: dict[int, tuple[int, ...]]  # of arguments that get padding, their dims' factors
    rooms: tuple[int, ...]  # of results
    shown: list[Shown]
    views: dict[int, tuple[int, ...]]  # sizes, strides and offset of results that are views

    @functools.cached_property
    def lengths(self) -> list[tuple[int, int, int]]:
        """Of the program's results those with padding: which, the dim, and how much counts."""
        return [(one.place, *one.length) for one in self.shown if one.length]


class Bucketed:
    """A graph that serves all sizes up to a bound: `module`, whose arguments and results differ."""

    def __init__(self, padding: Padding, pair: Pair) -> None:
        self.padding = padding
        self._pair = pair
        self.module = fx.GraphModule(padding.source, padding.graph)
        self.module.graph.eliminate_dead_code()
        self.module.recompile()
        self._shapes: dict[int, Callable[..., tuple[int, ...]]] = {}
        self._given: dict[sympy.Symbol, tuple[int, int]] = {}
        self._find_symbols()
        self._witnesses = self._find_witnesses()
        symbols = self._symbols = sorted(self._given, key=str)
        at = {one: i for i, one in enumerate(symbols)}
        self._equal = [(at[a], at[b]) for a, b in padding.equal.items()]
        self._most = {one: self._upper(one) for one in symbols}
        for i, node in enumerate(padding.placeholders):
            if node.name not in padding.given and padding.is_padded(node):
                factors = [one for dim in padding.dims_at(node) for one in dim]
                self._shapes[i] = _function_of(factors, symbols)
        self._lengths = _function_of(padding.lengths, symbols)
        self._fractions = _function_of(padding.fractions, symbols)
        self._rooms_of = _function_of(padding.rooms, symbols)
        self._results = _function_of([one.value for one in padding.results], symbols)
        self._factors = {
            i: _function_of([n for k in one.order for n in one.dims[k]], symbols)
            for i, one in enumerate(padding.results)
            if one.kind == "shown"
        }
        self._views = {
            i: _function_of(one.value, symbols)
            for i, one in enumerate(padding.results)
            if one.kind == "view"
        }
        self._first: dict[sympy.Symbol, int] = {}
        self._sizes: dict[Any, Sizes] = {}
        self._rooms: dict[tuple[int, ...], Room] = {}

    def _find_symbols(self) -> None:
        """Where the sizes are found among the arguments: a number, or a tensor's dim."""
        self._ints: dict[int, sympy.Expr] = {}
        for i, node in enumerate(self.padding.placeholders):
            value = node.meta["val"]
            if isinstance(value, torch.SymInt):
                self._ints[i] = expr_of(value)
                if self._ints[i].is_Symbol:
                    self._given[self._ints[i]] = i, -1
        for i, node in enumerate(self.padding.placeholders):
            value = node.meta["val"]
            if isinstance(value, torch.Tensor) and node.name not in self.padding.given:
                for k, one in enumerate(map(expr_of, value.shape)):
                    if one.is_Symbol:
                        self._given.setdefault(one, (i, k))

    def _upper(self, symbol: sympy.Symbol) -> int | None:
        """The largest value that the graph was traced for."""
        env = self.padding.shape_env
        limit = env.var_to_range[symbol].upper if env and symbol in env.var_to_range else None
        return int(limit) if limit is not None and limit.is_Integer and limit < 2**31 else None

    def _find_witnesses(self) -> dict[sympy.Symbol, tuple[int, int, Callable[..., Any]]]:
        """Dims of arguments that have padding already, which tell the bounds: a symbol each."""
        found: dict[sympy.Symbol, tuple[int, int, Callable[..., Any]]] = {}
        for i, node in enumerate(self.padding.placeholders):
            if node.name not in self.padding.given:
                continue
            for k, expr in enumerate(map(expr_of, node.meta["val"].shape)):
                if len(expr.free_symbols) == 1:
                    (symbol,) = expr.free_symbols
                    found.setdefault(symbol, (i, k, _function_of([expr], [symbol])))
        return found

    def _here(self, values: Sequence[Any]) -> tuple[int, ...]:
        """What the symbols are in a call."""
        places = (self._given[one] for one in self._symbols)
        return tuple(values[i] if k < 0 else values[i].shape[k] for i, k in places)

    def sizes_of(self, values: Sequence[Any]) -> Sizes | None:
        """What a call with these arguments needs; None: its sizes are a program of their own."""
        here = self._here(values)
        if any(here[a] != here[b] for a, b in self._equal):
            return None
        found_bounds = [
            self._bound(one, n, values) for one, n in zip(self._symbols, here, strict=True)
        ]
        bounds = tuple(b or n for b, n in zip(found_bounds, here, strict=True))
        if self._witnesses:
            pass  # what has padding already is taken as it is
        elif None in found_bounds or Setting.MODE.now() == EagerMode.DEBUG.value:
            return None
        found = self._sizes.get((here, bounds))
        if found is None:
            if len(self._sizes) >= MOST_SIZES:
                self._sizes.clear()
            found = self._sizes[here, bounds] = self._make_sizes(here, bounds)
        return found

    def has_padding(self, values: Sequence[Any]) -> bool:
        """Whether another graph has left arguments with padding."""
        at = {
            one: values[i] if k < 0 else values[i].shape[k] for one, (i, k) in self._given.items()
        }
        return any(
            function(at[symbol])[0] != values[i].shape[k]
            for symbol, (i, k, function) in self._witnesses.items()
        )

    def _bound(self, symbol: sympy.Symbol, size: int, values: Sequence[Any]) -> int | None:
        """What a size is given room for, or was given by the graph that left an argument."""
        if self.padding.equal.get(symbol, symbol) not in self.padding.varying:
            return size
        if symbol not in self._witnesses:
            if (
                self._pair.first
                and not buckets.are_named()
                and self._first.setdefault(symbol, size) == size
            ):
                return size
            return buckets.bound_of(size, self._most[symbol])
        i, k, function = self._witnesses[symbol]
        wide = values[i].shape[k]
        if function(size)[0] == wide:
            return size
        low, high = size, 2 * size
        while function(high)[0] < wide:
            high *= 2
        return low + bisect.bisect_left(range(low, high), wide, key=lambda n: function(n)[0])

    def _make_sizes(self, here: tuple[int, ...], bounds: tuple[int, ...]) -> Sizes:
        room = self._rooms.get(bounds)
        if room is None:
            if len(self._rooms) >= MOST_SIZES:
                self._rooms.clear()
            room = self._rooms[bounds] = self._make_room(bounds)
        whole, fractions = self._lengths(*here) or (0,), self._fractions(*here) or (0.0,)
        device = self.padding.device
        counts = (
            torch.tensor(whole, dtype=torch.int64).to(device),
            torch.tensor(fractions, dtype=torch.float64).to(device),
        )
        exact = {i: factors(*here) for i, factors in self._shapes.items()}
        unpadded = self._pair.first and here == bounds
        rooms = tuple(n if unpadded else buckets.bound_of(n) or n for n in self._rooms_of(*here))
        shown = self._shown(here, bounds, rooms)
        views = {i: layout(*here) for i, layout in self._views.items()}
        return Sizes(room, counts, self._results(*here), exact, rooms, shown, views)

    def _make_room(self, bounds: tuple[int, ...]) -> Room:
        at = dict(zip(self._symbols, bounds, strict=True))
        numbers = [
            int(self._ints[i].subs(at)) if i in self._ints else None
            for i in range(len(self.padding.placeholders))
        ]
        examples: dict[int, torch.Tensor] = {}
        factors: dict[int, tuple[int, ...]] = {}
        for i, function in self._shapes.items():
            node = self.padding.placeholders[i]
            wide = iter(factors.setdefault(i, function(*bounds)))
            shape = [math.prod(next(wide) for _ in dim) for dim in self.padding.dims_at(node)]
            dtype = node.meta["val"].dtype
            examples[i] = torch.empty(shape, dtype=dtype, device=self.padding.device)
        return Room(bounds, numbers, examples, factors, tuple(self._lengths(*bounds)))

    def arguments(self, values: Sequence[Any], sizes: Sizes) -> tuple[list[Any], list[Any]]:
        """Arguments like those that the program is captured with, and those to launch it with."""
        like: list[Any] = []
        given: list[Any] = []
        for i, value in enumerate(values):
            example = sizes.room.examples.get(i)
            if example is not None:
                like.append(example)
                given.append(padded(value, example, sizes.exact[i], sizes.room.wide[i]))
            else:
                is_number = sizes.room.numbers[i] is not None
                like.append(sizes.room.numbers[i] if is_number else value)
                given.append(value)
        like += [*sizes.counts, *sizes.room.extra, *sizes.rooms]
        given += [*sizes.counts, *sizes.room.extra, *sizes.rooms]
        return like, given

    def results(self, made: Sequence[Any], values: Sequence[Any], sizes: Sizes) -> list[Any]:
        """The graph's results, of the program's."""
        found = iter(made)
        cuts = iter(sizes.shown)
        all_: list[Any] = []
        for result, number in zip(self.padding.results, sizes.numbers, strict=True):
            if result.kind == "number":
                all_.append(number if isinstance(result.value, sympy.Expr) else result.value)
            elif result.kind == "argument":
                all_.append(values[result.place])
            elif result.kind == "view":
                all_.append(None)
            else:
                one = next(found)
                all_.append(next(cuts).of(one, result.order) if result.kind == "shown" else one)
        bases = [*values, *all_]
        for i, layout in sizes.views.items():
            rank = len(layout) // 2
            base = bases[self.padding.results[i].place]
            place = base.storage_offset() + layout[-1]  # arguments lie anywhere in their storages
            all_[i] = base.as_strided(layout[:rank], layout[rank:-1], place)
        return all_

    def _shown(
        self, here: tuple[int, ...], bounds: tuple[int, ...], rooms: tuple[int, ...]
    ) -> list[Shown]:
        """How the results that are seen lie in those of the program."""
        made, place = [], 0
        for i, result in enumerate(self.padding.results):
            if result.kind == "shown":
                counts, wide = iter(self._factors[i](*here)), iter(self._factors[i](*bounds))
                each, room = [], []
                for k in result.order:
                    each.append(tuple(next(counts) for _ in result.dims[k]))
                    bound = tuple(next(wide) for _ in result.dims[k])
                    room.append((rooms[result.rooms[k]],) if k in result.rooms else bound)
                made.append(Shown(place, tuple(each), tuple(room)))
            place += result.kind not in ("number", "argument", "view")
        return made


def filler(_: torch.dtype) -> float:
    """What padding of arguments is; nothing may depend on it."""
    return 0


def padded(
    value: torch.Tensor, like: torch.Tensor, exact: tuple[int, ...], wide: tuple[int, ...]
) -> torch.Tensor:
    """A tensor with padding, as much as `like` has, or itself where it has that already.

    `exact` and `wide` are the factors of its dims, without and with padding.
    """
    if value.shape == like.shape:
        return value if _C.is_canonical(value) else value.contiguous().clone()
    if len(exact) == value.dim() and _C.padded_sizes(value) == list(like.shape):
        return value
    more = []
    for size, room in zip(reversed(exact), reversed(wide), strict=True):
        more += [0, room - size]
    parts = value.detach().cpu().reshape(exact)
    made = functional.pad(parts, more, value=filler(value.dtype))
    with set_eager_mode(EagerMode.DEBUG):  # which gives uploads no room for more
        return made.reshape(like.shape).contiguous().to(like.device)
