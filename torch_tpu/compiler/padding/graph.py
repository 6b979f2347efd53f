"""A graph whose sizes vary as one that serves all of them up to a bound.

Its tensors have room for the bound. The numbers that count come as an argument, in a tensor; where
an operator would mix what counts with padding, the padding is replaced by what changes nothing
(rules in the files beside this one, of which most are columns of the op table). Where no rule
says how, RefusedError does, and each size is a program of its own.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch import fx
from torch.fx.operator_schemas import normalize_function

from torch_tpu import _C
from torch_tpu._agreement.operators import tensors_of
from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.dims import Dim, RefusedError
from torch_tpu.compiler.padding.expand import expanded

aten = torch.ops.aten

REDUCERS = ("sum", "prod", "max", "min", "and", "or")  # as core/hlo/hlo.h numbers them


class _UnequalError(Exception):
    """Two symbols would have to be equal."""


class Result(NamedTuple):
    """What becomes of a result of the padded graph."""

    kind: str  # "plain", "number", "argument", "saved", "shown"
    value: Any = None  # a number, or its expression
    place: int = -1  # of an argument
    dims: tuple[Dim, ...] = ()  # of a shown tensor
    order: tuple[int, ...] = ()  # of a shown tensor: how its dims lie, the outermost first
    rooms: Mapping[int, int] = {}  # of its dims, which of the graph's rooms it has


class Args:
    """An operator's arguments by the names of its schema; nodes are those of the original graph."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        name = "self" if name == "self_" else name
        if name.startswith("__") or name not in self._values:
            raise AttributeError(name)
        return self._values[name]


Apply = Callable[["Padding", fx.Node, Args], fx.Node]

rules: dict[str, Apply] = {}
# What makes a rule of an operator's row: its class, its pattern, a reducer, the argument that lists
# the dims that are reduced (ops/ops.h).
columns: list[Callable[[str, str | None, str, int], Apply | None]] = []


def rule(*names: str) -> Callable[[Apply], Apply]:
    """Registers a rule for operators, "sum" for all overloads or "sum.dim_IntList" for one."""

    def register(function: Apply) -> Apply:
        for name in names:
            rules[name] = function
        return function

    return register


def name_of(target: Any) -> str:
    """As rows of the op table are named: "sum.dim_IntList", "relu"."""
    name = target._schema.name.removeprefix("aten::")
    return f"{name}.{target._overloadname}" if target._overloadname != "default" else name


class Padding:
    """Rewrites a graph of ATen's operators, whose nodes say in `meta["val"]` what they are.

    `saved`: dims of inputs that another padded graph has left as they are, by name. `visible`: how
    many results are seen outside; what follows is handed to the backward graph as it is. `shown`:
    the dims that results of the other graph have, by their sizes: gradients lie like them.
    """

    def __init__(
        self,
        source: fx.GraphModule,
        saved: Mapping[str, tuple[Dim, ...]] | None = None,
        visible: int | None = None,
        shown: Mapping[tuple[Dim, ...], tuple[Dim, ...]] | None = None,
    ) -> None:
        self.source = source
        self.given = saved or {}
        self._like = shown or {}
        # Symbols that the graph's own guards do not know to be equal, and its operators want so.
        self.equal: dict[sympy.Symbol, sympy.Symbol] = {}
        self.device = self._find_device()
        self.placeholders = [one for one in source.graph.nodes if one.op == "placeholder"]
        while not self._is_made(visible):
            pass

    def _is_made(self, visible: int | None) -> bool:
        """Makes it; not, if it found another equation."""
        self.graph = fx.Graph()
        self.lengths: list[sympy.Expr] = []
        self.fractions: list[sympy.Expr] = []
        self.rooms: list[sympy.Expr] = []  # sizes of results that are to have a bound of their own
        self.saved: dict[str, tuple[Dim, ...]] = {}  # of results behind the visible ones
        self.shown: dict[tuple[Dim, ...], tuple[Dim, ...]] = {}  # of the visible ones
        self.results: list[Result] = []
        self._env: dict[fx.Node, Any] = {}
        self._dims: dict[fx.Node, Any] = {}  # of a node with several results a list
        self._numbers: dict[sympy.Expr, tuple[fx.Node, fx.Node]] = {}  # length, bound
        self._clean: dict[Any, fx.Node] = {}  # masks, and what was cleaned with them
        with d.equated(self.equal):
            self._known = self._known_symbols()
            try:
                self._make(visible)
            except _UnequalError as error:
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

    # -- Making it --

    def _make(self, visible: int | None) -> None:
        for node in self.placeholders:
            self._env[node] = self.graph.placeholder(node.name)
            if isinstance(self.value(node), torch.Tensor):
                dims = d.dims_of(node.meta["val"].shape)
                dims = self.given.get(node.name) or self._like.get(dims) or dims
                self._set_dims(self._env[node], dims)
        self._lengths = self.graph.placeholder("lengths")
        self._fractions = self.graph.placeholder("fractions")
        self._at = self._fractions  # bounds are placeholders, too, and rooms behind them
        self._last_room: fx.Node | None = None
        for node in self.source.graph.nodes:
            if node.op == "call_function":
                self._env[node] = self._convert(node)
            elif node.op == "get_attr":
                self._env[node] = self.graph.node_copy(node)
                self._set_dims(self._env[node], d.dims_of(node.meta["val"].shape))
            elif node.op not in ("placeholder", "output"):
                raise RefusedError(f"a graph calls {node.target}")
        self._finish(visible)

    def _convert(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
            return self.graph.node_copy(node, lambda one: self._env[one])
        if node.target is _getitem:
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
        return any(d.varies(dim) for dim in _flat(self.exact_dims(node)))

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
        new = self.graph.call_function(_getitem, (source, index))
        self._set_dims(new, self._dims[source][index])
        return new

    def _finish(self, visible: int | None) -> None:
        results: Any = self.source.graph.output_node().args[0]
        made = []
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
            if one.op == "placeholder":
                self.results.append(Result("argument", place=self.placeholders.index(one)))
            elif not padded:
                self.results.append(Result("plain"))
                made.append(new)
            elif visible is not None and i >= visible:
                self.results.append(Result("saved"))
                self.saved[one.name] = self.dims(new)
                made.append(new)
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

    # -- For rules --

    def alike(self, node: fx.Node, *dims: Sequence[Dim]) -> None:
        """Padding has to lie in the same way: refuses an operator where it does not."""
        for other in dims[1:]:
            for a, b in zip(dims[0], other, strict=True):
                if a != b:
                    found = d.equation(a, b)
                    if found:
                        raise _UnequalError(*found)
                    raise RefusedError(f"{node.target}: padding lies differently in its operands")

    def refuse_along(self, node: fx.Node, dims: Sequence[Dim], which: Iterable[int]) -> None:
        """Refuses an operator where these dims vary."""
        if any(d.varies(dims[i]) for i in which):
            raise RefusedError(f"{node.target} along a dim whose size varies")

    def value(self, node: Any) -> Any:
        """What a node of the original graph is."""
        if "val" not in node.meta:
            raise RefusedError(f"nothing is known of {node.name}")
        return node.meta["val"]

    def shape(self, node: fx.Node) -> tuple[Any, ...]:
        """The sizes of a node of the original graph."""
        return tuple(self.value(node).shape)

    def exact_dims(self, node: fx.Node) -> Any:
        """A node's dims where each begins with what counts."""
        value = node.meta.get("val")
        if isinstance(value, tuple | list):
            return [d.dims_of(one.shape) if isinstance(one, torch.Tensor) else () for one in value]
        return d.dims_of(value.shape) if isinstance(value, torch.Tensor) else ()

    def of(self, value: Any) -> Any:
        """An argument in the new graph."""
        return fx.map_arg(value, lambda one: self._env[one])

    def dims(self, node: fx.Node) -> tuple[Dim, ...]:
        """Those of a tensor of the new graph."""
        found: tuple[Dim, ...] = self._dims[node]
        return found

    def dims_at(self, node: fx.Node) -> tuple[Dim, ...]:
        """Those of a tensor of the original graph."""
        return self.dims(self._env[node])

    def is_padded(self, node: fx.Node) -> bool:
        """Whether a node of the original graph is a tensor with padding."""
        return any(d.varies(dim) for dim in self._all_dims(self._env[node]))

    def _all_dims(self, node: Any) -> Iterable[Dim]:
        return _flat(self._dims.get(node, ()))

    def _set_dims(self, node: fx.Node, dims: Any) -> None:
        for dim in _flat(dims):
            for factor in dim:
                self._check(factor)
        self._dims[node] = dims

    def _check(self, expr: sympy.Expr) -> None:
        if not expr.free_symbols <= self._known:
            raise RefusedError(f"a size, {expr}, depends on values")

    def emit(self, target: Any, *args: Any, dims: Any = (), **kwargs: Any) -> fx.Node:
        """A new operator, of nodes of the new graph."""
        node = self.graph.call_function(target, args, kwargs)
        self._dims[node] = dims
        return node

    def run(self, node: fx.Node, dims: Any, /, **changed: Any) -> fx.Node:
        """The operator itself, whose result has these dims; some arguments are others."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        positional = len(node.args)
        target: Any = node.target
        for i, argument in enumerate(target._schema.arguments):
            name = argument.name
            given = node.args[i] if i < positional else node.kwargs.get(name, _NOTHING)
            if name in changed:
                value = changed[name]
            elif given is _NOTHING:
                continue
            else:
                value = self._argument(node, argument, given)
                if str(argument.type) == "number" and isinstance(value, fx.Node):
                    target = _with_tensor(target)
            by_place = i < positional or (not kwargs and i == len(args))
            if by_place and not argument.kwarg_only:
                args.append(value)
                continue
            kwargs[name] = value
        new = self.graph.call_function(target, tuple(args), kwargs)
        self._set_dims(new, dims)
        return new

    def _argument(self, node: fx.Node, argument: Any, given: Any) -> Any:
        """Sizes are as at the bound; numbers to compute with are what counts."""
        value = given.meta.get("val") if isinstance(given, fx.Node) else None
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self.of(given)
        kind = str(argument.real_type)
        if "SymInt" in kind or kind == "int":
            return self.of(given)
        if kind in ("Tensor", "number"):
            return self.number(value, self.value(node).dtype)
        raise RefusedError(f"{node.target} computes with a number that depends on a size")

    def number(self, value: Any, dtype: torch.dtype) -> Any:
        """A number that depends on sizes, as an operand of what makes a result of that dtype."""
        if isinstance(value, torch.SymInt):
            return self.length(d.expr_of(value))
        if not isinstance(value, torch.SymFloat):
            raise RefusedError("a truth that depends on a size is an operand")
        expr = d.expr_of(value)
        if expr not in self.fractions:
            self._check(expr)
            self.fractions.append(expr)
        at = self.fractions.index(expr)
        one = self.emit(aten.select.int, self._fractions, 0, at)
        known = dtype if dtype.is_floating_point or dtype.is_complex else torch.float32
        return self.emit(aten._to_copy.default, one, dtype=known)

    def length(self, expr: sympy.Expr) -> fx.Node:
        """A number that depends on sizes, in a tensor of no dims (int64)."""
        return self._number(expr)[0]

    def bound(self, expr: sympy.Expr) -> Any:
        """The number at the bound: static, as a size of the program is."""
        return int(expr) if expr.is_Integer else self._number(expr)[1]

    def _number(self, expr: sympy.Expr) -> tuple[fx.Node, fx.Node]:
        expr = sympy.expand(expr)
        if expr not in self._numbers:
            self._check(expr)
            at = len(self.lengths)
            self.lengths.append(expr)
            with self.graph.inserting_after(self._at):
                self._at = self.graph.placeholder(f"bound_{at}")
            self._numbers[expr] = self.emit(aten.select.int, self._lengths, 0, at), self._at
        return self._numbers[expr]

    def cleaned(self, node: Any, fill: str | float, which: Iterable[int] | None = None) -> Any:
        """A tensor with `fill` for its padding, along some dims; anything else is as it is.

        `fill` is a number, or of a node of the original graph a reducer's name: what changes
        nothing there.
        """
        if not isinstance(node, fx.Node):
            return node
        if isinstance(fill, str):
            fill = _neutral(fill, self.value(node).dtype)
        node = self._env.get(node, node)
        dims = self.dims(node)
        at = range(len(dims)) if which is None else which
        places = tuple(i for i in sorted({one % len(dims) for one in at}) if d.varies(dims[i]))
        if not places:
            return node
        key = node, fill, places
        if key not in self._clean:
            mask: fx.Node | None = None
            for i in places:
                shape = [-1] + [1] * (len(dims) - 1 - i)
                one = self.emit(aten.view.default, self._padding(dims[i]), shape)
                mask = one if mask is None else self.emit(aten.logical_or.default, mask, one)
            plain = tuple(tuple(dim) if i in places else dim for i, dim in enumerate(dims))
            self._clean[key] = self.emit(aten.masked_fill.Scalar, node, mask, fill, dims=plain)
        return self._clean[key]

    def _padding(self, dim: Dim) -> fx.Node:
        """Of each element of a dim, whether it is padding."""
        key = "padding", dim
        if key in self._clean:
            return self._clean[key]
        numbers = self.iota(d.size_of(dim))
        inner = sympy.Integer(1)
        mask: fx.Node | None = None
        for i, factor in reversed(list(enumerate(dim))):
            digit = numbers
            if inner != 1:
                digit = self.emit(
                    aten.div.Tensor_mode, digit, self.bound(inner), rounding_mode="floor"
                )
            if i > 0:
                digit = self.emit(aten.remainder.Scalar, digit, self.bound(factor))
            if factor.free_symbols:
                one = self.emit(aten.ge.Tensor, digit, self.length(factor))
                mask = one if mask is None else self.emit(aten.logical_or.default, mask, one)
            inner = sympy.expand(inner * factor)
        assert mask is not None
        self._clean[key] = mask
        return mask

    def iota(self, size: sympy.Expr) -> fx.Node:
        """0, 1, .. (int64), as many as the size has at the bound."""
        return self.emit(
            aten.arange.default,
            self.bound(size),
            device=self.device,
            dims=((size,),),
        )

    def _column(self, name: str) -> Apply | None:
        """The rule that the op table's columns give an operator."""
        row = _C.op_along(name)
        if row is None:
            return None
        kind, pattern, reducer, listed = row
        for column in columns:
            found = column(kind, pattern, REDUCERS[reducer], listed)
            if found is not None:
                return found
        return None

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


def _with_tensor(target: Any) -> Any:
    """The overload that takes a tensor where this one takes a number."""
    name = target._overloadname.replace("Scalar", "Tensor")
    found = getattr(target.overloadpacket, name, None)
    if found is None or found is target:
        raise RefusedError(f"{target} computes with a number that depends on a size")
    return found


_getitem = operator.getitem
_NOTHING = object()


def _flat(dims: Any) -> Iterator[Dim]:
    """The dims of all results."""
    return (dim for one in dims for dim in one) if isinstance(dims, list) else iter(dims)


def _neutral(reducer: str, dtype: torch.dtype) -> float:
    if reducer in ("sum", "or"):
        return 0
    if reducer in ("prod", "and"):
        return 1
    if dtype == torch.bool:
        return int(reducer == "min")
    if dtype.is_floating_point:
        return math.inf if reducer == "min" else -math.inf
    limits = torch.iinfo(dtype)
    return limits.max if reducer == "min" else limits.min


def _order(value: torch.Tensor) -> tuple[int, ...]:
    """A tensor's dims as they lie, the outermost first, where all sizes that vary are large."""
    large = {one: 10007 for step in value.stride() for one in d.expr_of(step).free_symbols}
    steps = [-int(d.expr_of(step).subs(large)) for step in value.stride()]
    return tuple(sorted(range(len(steps)), key=steps.__getitem__))
