"""What rules for operators work with: the new graph, its dims, masks of its padding."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.dims import Dim, RefusedError

aten = torch.ops.aten

# Arguments that are sizes: what they are at the bound is right for what counts, too.
SIZES = {"size", "sizes", "shape", "input_sizes", "output_size", "split_size", "split_sizes"}
SIZES |= {"repeats", "pad", "N", "C", "HxW", "num_weights", "max_q", "max_k"}


class UnequalError(Exception):
    """Two symbols would have to be equal."""


class Args:
    """An operator's arguments by the names of its schema; nodes are those of the original graph."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        name = "self" if name == "self_" else name
        if name.startswith("__") or name not in self._values:
            raise AttributeError(name)
        return self._values[name]


Apply = Callable[["Context", fx.Node, Args], fx.Node]

rules: dict[str, Apply] = {}


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


class Context:
    """A graph that is being made of another one, whose nodes say in `meta["val"]` what they are.

    Methods tell nodes of the original graph from those of the new one by their words: `value`,
    `shape`, `exact_dims`, `dims_at` are asked of the former, `dims` of the latter.
    """

    def __init__(self, device: torch.device, known: set[sympy.Symbol]) -> None:
        self.device = device
        self.graph = fx.Graph()
        self.lengths: list[sympy.Expr] = []
        self.fractions: list[sympy.Expr] = []
        self._known = known  # numbers and sizes that the graph is called with
        self.varying: set[sympy.Symbol] = set()  # the sizes among them
        self._env: dict[fx.Node, Any] = {}
        self._dims: dict[fx.Node, Any] = {}  # of a node with several results a list
        self._numbers: dict[sympy.Expr, tuple[fx.Node, fx.Node]] = {}  # length, bound
        self._clean: dict[Any, fx.Node] = {}  # masks, and what was cleaned with them

    def _take_numbers(self) -> None:
        """What counts is an argument behind the others; bounds are, too, which come to be."""
        self._lengths = self.graph.placeholder("lengths")
        self._fractions = self.graph.placeholder("fractions")
        self._at = self._fractions

    def alike(self, node: fx.Node, *dims: Sequence[Dim]) -> None:
        """Padding has to lie in the same way: refuses an operator where it does not."""
        for other in dims[1:]:
            for a, b in zip(dims[0], other, strict=True):
                if a != b:
                    found = d.equation(a, b)
                    if found:
                        raise UnequalError(*found)
                    raise RefusedError(f"{node.target}: padding lies differently in its operands")

    def refuse_along(self, node: fx.Node, dims: Sequence[Dim], which: Iterable[int]) -> None:
        """Refuses an operator where these dims vary."""
        if any(d.varies(dims[i]) for i in which):
            raise RefusedError(f"{node.target} along a dim whose size varies")

    def refuse_unless_prefix(
        self, node: fx.Node, dims: Sequence[Dim], which: Iterable[int]
    ) -> None:
        """Refuses an operator where what counts of these dims does not come first."""
        if not all(d.is_prefix(dims[i]) for i in which):
            raise RefusedError(f"{node.target} of a dim that does not begin with what counts")

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
        return flat(self._dims.get(node, ()))

    def _set_dims(self, node: fx.Node, dims: Any) -> None:
        for dim in flat(dims):
            for factor in dim:
                self._check(factor)
                if not d.grows(factor):
                    raise RefusedError(f"a size, {factor}, may shrink where others grow")
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
        if isinstance(given, list | tuple):
            return self._size(node, argument.name, given)
        value = given.meta.get("val") if isinstance(given, fx.Node) else None
        if not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self.of(given)
        kind = str(argument.real_type)
        if "SymInt" in kind or kind == "int":
            return self._size(node, argument.name, given)
        if kind in ("Tensor", "number"):
            return self.number(node, given)
        raise RefusedError(f"{node.target} computes with a number that depends on a size")

    def _size(self, node: fx.Node, name: str, given: Any) -> Any:
        """Sizes are what they are at the bound; what else depends on them has a rule of its own."""
        for one in given if isinstance(given, list | tuple) else [given]:
            value = one.meta.get("val") if isinstance(one, fx.Node) else None
            known = name in SIZES or not isinstance(value, torch.SymInt)
            if not known and d.expr_of(value).free_symbols & self.varying:
                raise RefusedError(f"{node.target}: its {name} depends on a size that varies")
        return self.of(given)

    def number(self, node: fx.Node, given: fx.Node) -> fx.Node:
        """An operator's argument, a number that depends on sizes, as a tensor of no dims."""
        value, dtype = self.value(given), self.value(node).dtype
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
            masks = [self.along(self._padding(dims[i]), i, len(dims)) for i in places]
            plain = tuple(tuple(dim) if i in places else dim for i, dim in enumerate(dims))
            self._clean[key] = self.emit(
                aten.masked_fill.Scalar, node, self._any(masks), fill, dims=plain
            )
        return self._clean[key]

    def zeroed(self, a: Args, *names: str, which: Iterable[int] | None = None) -> dict[str, Any]:
        """Arguments by their names, with zeros for their padding."""
        return {name: self.cleaned(getattr(a, name), 0, which) for name in names}

    def _any(self, masks: Iterable[fx.Node]) -> fx.Node:
        return functools.reduce(lambda a, b: self.emit(aten.logical_or.default, a, b), masks)

    def _padding(self, dim: Dim) -> fx.Node:
        """Of each element of a dim, whether it is padding."""
        key = "padding", dim
        if key in self._clean:
            return self._clean[key]
        numbers = self.iota(d.size_of(dim))
        inner = sympy.Integer(1)
        masks = []
        for i, factor in reversed(list(enumerate(dim))):
            digit = numbers
            if inner != 1:
                digit = self.emit(
                    aten.div.Tensor_mode, digit, self.bound(inner), rounding_mode="floor"
                )
            if i > 0:
                digit = self.emit(aten.remainder.Scalar, digit, self.bound(factor))
            if factor.free_symbols:
                masks.append(self.emit(aten.ge.Tensor, digit, self.length(factor)))
            inner = sympy.expand(inner * factor)
        self._clean[key] = self._any(masks)
        return self._clean[key]

    def along(self, row: fx.Node, at: int, rank: int) -> fx.Node:
        """A tensor of one dim as that dim of one with so many."""
        return self.emit(aten.view.default, row, [-1] + [1] * (rank - 1 - at))

    def counted(self, size: sympy.Expr, start: Any, step: Any) -> fx.Node:
        """start, start + step, .. (int64), as many as the size has at the bound.

        `start` is an expression or a number.
        """
        made = self.iota(size)
        if step != 1:
            made = self.emit(aten.mul.Tensor, made, step)
        start = sympy.sympify(start)
        if start == 0:
            return made
        first = int(start) if start.is_Integer else self.length(start)
        return self.emit(aten.add.Tensor, made, first)

    def iota(self, size: sympy.Expr) -> fx.Node:
        """0, 1, .. (int64), as many as the size has at the bound."""
        return self.emit(
            aten.arange.default,
            self.bound(size),
            device=self.device,
            dims=((size,),),
        )


def _with_tensor(target: Any) -> Any:
    """The overload that takes a tensor where this one takes a number."""
    name = target._overloadname.replace("Scalar", "Tensor")
    found = getattr(target.overloadpacket, name, None)
    if found is None or found is target:
        raise RefusedError(f"{target} computes with a number that depends on a size")
    return found


_NOTHING = object()


def flat(dims: Any) -> Iterator[Dim]:
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
