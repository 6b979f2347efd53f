"""A graph whose sizes vary as one that serves all of them up to a bound.

Its tensors have room for the bound. The numbers that count come as an argument, in a tensor; where
an operator would mix what counts with padding, the padding is replaced by what changes nothing
(rules in the files beside this one, of which most are columns of the op table). Where no rule
says how, RefusedError does, and each size is a program of its own.
"""

import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx
from torch.fx.operator_schemas import normalize_function

from torch_tpu import _C
from torch_tpu._agreement.operators import tensors_of
from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.columns import rule_of
from torch_tpu.compiler.padding.context import (
    Apply,
    Args,
    Context,
    UnequalError,
    aten,
    flat,
    name_of,
    rules,
)
from torch_tpu.compiler.padding.dims import Dim, RefusedError
from torch_tpu.compiler.padding.expand import expanded

REDUCERS = ("sum", "prod", "max", "min", "and", "or")  # as core/hlo/hlo.h numbers them


class Result(NamedTuple):
    """What becomes of a result of the padded graph."""

    kind: str  # "plain", "number", "argument", "view", "saved", "shown"
    value: Any = None  # a number, its expression, or of a view sizes, strides and what is before it
    place: int = -1  # of an argument, or of what is viewed: an argument or, behind them, a result
    dims: tuple[Dim, ...] = ()  # of a shown tensor
    order: tuple[int, ...] = ()  # of a shown tensor: how its dims lie, the outermost first
    rooms: Mapping[int, int] = {}  # of its dims, which of the graph's rooms it has


class Padding(Context):
    """Rewrites a graph of ATen's operators, whose nodes say in `meta["val"]` what they are.

    `saved`: dims of inputs that another padded graph has left as they are, by name. `visible`: how
    many results are seen outside; what follows is handed to the backward graph as it is. `shown`:
    the dims that results of the other graph have, by their sizes: gradients lie like them.
    `varying`: symbols that are sizes there.
    """

    def __init__(
        self,
        source: fx.GraphModule,
        saved: Mapping[str, tuple[Dim, ...]] | None = None,
        visible: int | None = None,
        shown: Mapping[tuple[Dim, ...], tuple[Dim, ...]] | None = None,
        varying: Iterable[sympy.Symbol] = (),
    ) -> None:
        self.source = source
        self.given = saved or {}
        self._like = shown or {}
        self._sizes_there = set(varying)
        self.placeholders = [one for one in source.graph.nodes if one.op == "placeholder"]
        # Symbols that the graph's own guards do not know to be equal, and its operators want so.
        self.equal: dict[sympy.Symbol, sympy.Symbol] = {}
        while not self._is_made(visible):
            pass

    def _is_made(self, visible: int | None) -> bool:
        """Makes it; not, if it found another equation."""
        self.rooms: list[sympy.Expr] = []  # sizes of results that are to have a bound of their own
        self.saved: dict[str, tuple[Dim, ...]] = {}  # of results behind the visible ones
        self.shown: dict[tuple[Dim, ...], tuple[Dim, ...]] = {}  # of the visible ones
        self.results: list[Result] = []
        with d.equated(self.equal):
            super().__init__(self._find_device(), self._known_symbols())
            self.varying = self._sizes() | self._sizes_there
            if not self.varying:
                raise RefusedError("numbers vary, and no size of an argument")
            try:
                self._make(visible)
                if not self.varying <= self._sizes() | self._sizes_there:
                    raise RefusedError("a decomposition has to know a size")
            except UnequalError as error:
                first, second = error.args
                self.equal = {a: first if b == second else b for a, b in self.equal.items()}
                self.equal[second] = first
                return False
        return True

    def _known_symbols(self) -> set[sympy.Symbol]:
        """Sizes that the graph is called with."""
        known = set()
        for node in self.placeholders:
            value = node.meta.get("val")
            sizes = value.shape if isinstance(value, torch.Tensor) else [value]
            if node.name not in self.given:
                exprs = [d.expr_of(one) for one in sizes if isinstance(one, torch.SymInt)]
                known |= {one for one in exprs if one.is_Symbol}
        return known

    def _sizes(self) -> set[sympy.Symbol]:
        """Symbols that arguments have as sizes; others are numbers, which have no bound."""
        values = [node.meta.get("val") for node in self.placeholders]
        exprs = [d.expr_of(n) for one in values if isinstance(one, torch.Tensor) for n in one.shape]
        return {symbol for expr in exprs for symbol in expr.free_symbols}

    # -- Making it --

    def _make(self, visible: int | None) -> None:
        for node in self.placeholders:
            self._env[node] = self.graph.placeholder(node.name)
            if isinstance(self.value(node), torch.Tensor):
                dims = d.dims_of(node.meta["val"].shape)
                dims = self.given.get(node.name) or self._like.get(dims) or dims
                self._set_dims(self._env[node], dims)
        self._take_numbers()
        self._last_room: fx.Node | None = None  # rooms are placeholders behind the bounds
        for node in self.source.graph.nodes:
            if node.op == "call_function":
                self._env[node] = self._convert(node)
            elif node.op == "get_attr":
                value = node.meta.get("val")
                if not isinstance(value, torch.Tensor):  # a branch, or the body of a loop
                    raise RefusedError(
                        f"{next(iter(node.users)).target} has no rule for sizes that vary"
                    )
                self._env[node] = self.graph.node_copy(node)
                self._set_dims(self._env[node], d.dims_of(value.shape))
            elif node.op not in ("placeholder", "output"):
                raise RefusedError(f"a graph calls {node.target}")
        self._finish(visible)

    def _convert(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
            return self.graph.node_copy(node, lambda one: self._env[one])
        if node.target is operator.getitem:
            return self._get_item(node)
        if not isinstance(node.target, torch._ops.OpOverload):
            raise RefusedError(f"{node.target} has no rule for sizes that vary")
        name = name_of(node.target)
        if not self._is_concerned(node):
            new = self.graph.node_copy(node, lambda one: self._env[one])
            self._set_dims(new, self.exact_dims(node))
            return new
        found = rules.get(name) or rules.get(name.partition(".")[0]) or self._column(name)
        if found is None:
            return self._expand(node)
        return found(self, node, self._bind(node))

    def _expand(self, node: fx.Node) -> Any:
        """Does what its decomposition does, where it has no rule."""
        graph, given = expanded(node)
        inner = iter(given)
        for one in graph.graph.nodes:
            if one.op == "placeholder":
                self._env[one] = self._env[next(inner)]
            elif one.op == "output":
                made = [one and self._env[one] for one in one.args[0]]
            elif one.op == "call_function":
                self._env[one] = self._convert(one)
            else:
                raise RefusedError(f"{node.target} has a constant")
        return made if isinstance(node.meta["val"], tuple | list) else made[0]

    def _is_concerned(self, node: fx.Node) -> bool:
        """Whether padding, or a size that varies, takes part."""
        for one in node.all_input_nodes:
            value = one.meta.get("val")
            if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
                return True
            if any(d.varies(dim) for dim in self._all_dims(self._env[one])):
                return True
        return any(d.varies(dim) for dim in flat(self.exact_dims(node)))

    def _bind(self, node: fx.Node) -> Args:
        target: Any = node.target
        bound = normalize_function(
            target, node.args, node.kwargs, normalize_to_only_use_kwargs=True
        )
        if bound is None:
            raise RefusedError(f"{node.target}: its arguments do not fit its schema")
        given = dict(bound.kwargs)
        for argument in node.target._schema.arguments:  # type: ignore[union-attr]
            name = "input" if argument.name == "self" and "input" in given else argument.name
            given[argument.name] = given.get(name, argument.default_value)
        return Args(given)

    def _get_item(self, node: fx.Node) -> fx.Node:
        source, index = self._env[node.args[0]], node.args[1]  # type: ignore[index]
        if isinstance(source, list):
            return source[index]  # type: ignore[no-any-return, index]
        new = self.graph.call_function(operator.getitem, (source, index))
        self._set_dims(new, self._dims[source][index])
        return new

    def _finish(self, visible: int | None) -> None:
        results: Any = self.source.graph.output_node().args[0]
        made = []
        bases = [*self.placeholders, *results]
        for i, one in enumerate(results):
            value = self.value(one) if isinstance(one, fx.Node) else None
            if not isinstance(value, torch.Tensor):
                number = d.expr_of(value) if isinstance(value, torch.SymInt | int) else one
                if isinstance(one, fx.Node) and not isinstance(value, torch.SymInt | int):
                    raise RefusedError(f"a result is {one.target}, no tensor and no whole number")
                if isinstance(number, sympy.Expr):
                    self._check(number)
                self.results.append(Result("number", number))
                continue
            new = self._env[one]
            padded = any(d.varies(dim) for dim in self.dims(new))
            seen = visible is None or i < visible
            base = _viewed(one)
            viewed = base is not one and self.is_padded(base)
            argument = viewed and base.op == "placeholder"
            if one.op == "placeholder":
                self.results.append(Result("argument", place=self.placeholders.index(one)))
            elif viewed and seen and base in bases:
                behind = value.storage_offset() - self.value(base).storage_offset()
                layout = (*value.shape, *value.stride(), behind)
                place = bases.index(base)
                self.results.append(Result("view", tuple(map(d.expr_of, layout)), place))
            elif not padded and not argument:
                self.results.append(Result("plain"))
                made.append(new)
            elif not seen:
                self.results.append(Result("saved"))
                self.saved[one.name] = self.dims(new)
                made.append(self.emit(aten.clone.default, new) if argument else new)
            else:
                made.append(self._show(one, new))
        self.graph.output(made)

    def _show(self, node: fx.Node, new: fx.Node) -> fx.Node:
        """A result that is seen without its padding: it lies densely, as it would have."""
        value = self.value(node)
        assert isinstance(value, torch.Tensor)
        order = _order(value)
        self.shown[d.dims_of(value.shape)] = self.dims(new)
        rooms = {}
        for i, dim in enumerate(self.dims(new)):
            if d.varies(dim) and d.is_prefix(dim) and not dim[0].is_Symbol:
                rooms[i] = len(self.rooms)
                new = self._given_room(new, i)
        self.results.append(Result("shown", dims=self._dims[new], order=order, rooms=rooms))
        permuted = self.emit(aten.permute.default, new, list(order))
        return self.emit(aten.clone.default, permuted, memory_format=torch.contiguous_format)

    def _given_room(self, node: fx.Node, at: int) -> fx.Node:
        """A result with as much room along a dim as an argument of its size has."""
        dims = self.dims(node)
        size = d.size_of(dims[at])
        bound = self.bound(size)
        with self.graph.inserting_after(self._last_room or self._at):
            self._last_room = self.graph.placeholder(f"room_{len(self.rooms)}")
        self.rooms.append(size)
        more = self.emit(operator.sub, self._last_room, bound)
        pads = [0, 0] * (len(dims) - 1 - at) + [0, more]
        return self.emit(aten.constant_pad_nd.default, node, pads, dims=dims)

    def _column(self, name: str) -> Apply | None:
        """The rule that the op table's columns give an operator."""
        row = _C.op_along(name)
        if row is None:
            return None
        kind, pattern, reducer, listed, empty_is_none = row
        if kind == "random" and name != "native_dropout":
            return None  # the numbers that eager mode draws, which are those of exact sizes
        return rule_of(kind, pattern, REDUCERS[reducer], listed, empty_is_none)

    @property
    def shape_env(self) -> Any:
        """Where the ranges of sizes are known; None: nowhere."""
        for node in self.placeholders:
            value = node.meta.get("val")
            for size in value.shape if isinstance(value, torch.Tensor) else [value]:
                if isinstance(size, torch.SymInt):
                    return size.node.shape_env
        return None

    def _find_device(self) -> torch.device:
        for node in self.source.graph.nodes:
            for one in tensors_of([node.meta.get("val")]):
                if one.device.type != "cpu":
                    return one.device
        raise RefusedError("no tensor is on a device")


def _viewed(node: fx.Node) -> fx.Node:
    """What a node is a view of, or itself."""
    while True:
        maker: Any = node.args[0] if node.target is operator.getitem else node
        target = maker.target
        returned = target._schema.returns if isinstance(target, torch._ops.OpOverload) else ()
        info = returned[0].alias_info if returned else None
        if info is None or info.is_write:
            return node
        node = maker.args[0]


def _order(value: torch.Tensor) -> tuple[int, ...]:
    """A tensor's dims as they lie, the outermost first, where all sizes that vary are large."""
    large = {one: 10007 for step in value.stride() for one in d.expr_of(step).free_symbols}
    steps = [-int(d.expr_of(step).subs(large)) for step in value.stride()]
    return tuple(sorted(range(len(steps)), key=steps.__getitem__))
