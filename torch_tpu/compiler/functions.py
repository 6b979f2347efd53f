"""Graphs as programs: captured for each signature of their arguments, then one launch a call."""

import functools
import itertools
import operator
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torch_tpu import _C, tpu
from torch_tpu._explain import graphs_by_operator
from torch_tpu.compiler import artifacts, checks, control, layouts, logs, mixed, origin
from torch_tpu.compiler.bucketed import Bucketed, Pair, Sizes
from torch_tpu.compiler.padding import Padding, RefusedError

MOST = 64  # signatures of one graph; further ones run eagerly

REPEATS = {False: _C.Repeats.WHOLE, "auto": _C.Repeats.AUTO, True: _C.Repeats.DIVIDED}
_VIEWS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
_numbers = itertools.count()

_all: weakref.WeakSet["Compiled"] = weakref.WeakSet()


def compiled() -> list["Compiled"]:
    """The graphs that are compiled at present, the oldest first."""
    return sorted(_all, key=lambda one: one.number)


class Compiled:
    """A graph of ATen's operators that AOTAutograd made, called with a list of its arguments.

    What a program cannot be made of (an operator that reads a number back) is run operator by
    operator; `why` then says the reason. `repeat` says whether layers that repeat are compiled once
    (docs/compile.md); `taken` are checks that were taken out of the graph before; `options` are the
    first lines of its programs' texts (options.py).
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        repeat: bool | str = "auto",
        taken: list[checks.Check | checks.Replaced] | None = None,
        pair: Pair | None = None,
        is_backward: bool = False,
        options: str = "",
    ) -> None:
        layouts.keep(graph)
        self.whole = graph
        self.repeat = repeat
        self.options = options
        self.why = checks.unfit(graph)
        self._checks = checks.take(graph) if taken is None else taken
        self._division: mixed.Division | None = None
        try:
            if not self.why and mixed.is_mixed(graph):
                self._division = mixed.Division(graph)
        except mixed.UnsupportedError as reason:
            self.why = str(reason)
        self.graph = self._division.device if self._division else graph
        self._boxed_call = True  # the list of arguments is ours, to be emptied
        self.number = next(_numbers)
        self.origin = origin.current()
        self.pair = pair or Pair()
        self.is_backward = is_backward
        self._bucketed = self._find_buckets()
        self._programs: dict[Any, _Program] = {}
        _all.add(self)

    def __call__(self, args: list[Any]) -> Any:
        """Runs it: one launch, where a program can be made of it."""
        values = list(args)
        args.clear()
        with torch.no_grad():
            division = self._division
            results = division(values, self._run) if division else self._run(values)
            return checks.make(self._checks, values, results) if self._checks else results

    def _run(self, values: list[Any]) -> Any:
        tensors = [one for one in values if isinstance(one, torch.Tensor)]
        if not tensors or _C.is_capturing(tpu.current_device()):
            return self.graph(*values)
        if self.why:
            return self._run_by_operator(values)
        if self._bucketed and not self.pair.why:
            sizes = self._bucketed.sizes_of(values)
            made = self._run_padded(self._bucketed, values, sizes) if sizes else None
            if made is not None:
                return made
        program = self._program(self.graph, values, tensors)
        return program(tensors) if program else self._run_by_operator(values)

    def _run_by_operator(self, values: list[Any]) -> Any:
        graphs_by_operator[self.why or f"it has {MOST} programs already"] += 1
        return self.graph(*values)

    def _find_buckets(self) -> Bucketed | None:
        """What serves all sizes up to a bound; None: none vary, or the pair says why not."""
        if self.why or self.pair.why or not any(map(_varies, self.graph.graph.nodes)):
            return None
        try:
            if self._division:
                raise RefusedError("tensors are on the host as well")
            if any(isinstance(one, checks.Replaced) for one in self._checks):
                raise RefusedError("an argument gets another storage")
            pair = self.pair
            if self.is_backward:
                padding = Padding(self.graph, pair.saved, None, pair.shown, pair.varying)
                return Bucketed(padding, pair)
            padding = Padding(self.graph, visible=pair.visible)
        except RefusedError as reason:
            self.pair.why = str(reason)
            _C.journal_keep("each size is a program", f"of graph {self.number}: {reason}")
            return None
        pair.saved, pair.shown, pair.varying = padding.saved, padding.shown, padding.varying
        return Bucketed(padding, pair)

    def _run_padded(self, bucketed: Bucketed, values: list[Any], sizes: Sizes) -> Any:
        """The results; None: there is no program, and each size has to be one."""
        like, given = bucketed.arguments(values, sizes)
        tensors = [one for one in like if isinstance(one, torch.Tensor)]
        program = self._program(bucketed.module, like, tensors)
        if program is None:
            if bucketed.has_padding(values):
                raise RuntimeError(f"a backward graph of sizes that vary cannot be run: {self.why}")
            self.pair.why, self.why = self.why or f"there are {MOST} programs", ""
            return None
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        made = program(tensors, sizes.lengths)
        return bucketed.results(made, values, sizes)

    @property
    def exact(self) -> str:
        """Why each of the sizes that vary is a program of its own; "": they share programs."""
        return self.pair.why

    @property
    def pads(self) -> bool:
        """Whether its programs serve all sizes up to a bound."""
        return self._bucketed is not None and not self.pair.why

    @property
    def programs(self) -> int:
        """How many programs were made of it: one for each signature of its arguments."""
        return len(self._programs)

    @property
    def operators(self) -> int:
        """How many calls of the op table its largest program has."""
        return max((one.operators for one in self._programs.values()), default=0)

    @property
    def captured(self) -> list[_C.Function]:
        """Its programs, as the glue has them."""
        return [one.function for one in self._programs.values()]

    def _program(
        self, graph: fx.GraphModule, values: list[Any], tensors: list[torch.Tensor]
    ) -> "_Program | None":
        numbers = tuple(None if isinstance(one, torch.Tensor) else one for one in values)
        try:
            key = (numbers, _C.signature(tensors), _C.precision())
        except RuntimeError as error:
            self.why = str(error)
            return None
        found = self._programs.get(key)
        if found is not None or len(self._programs) >= MOST:
            return found
        try:
            made = _Program(graph, values, tensors, self.repeat, self.options)
        except RuntimeError as error:
            self.why = str(error).partition("\n")[0]
            return None
        self._programs[key] = made
        return made


def _varies(node: fx.Node) -> bool:
    """Whether an argument of a graph has sizes that vary, or is one."""
    value = node.meta.get("val") if node.op == "placeholder" else None
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(one, torch.SymInt) for one in sizes)


def _turned(value: torch.Tensor, conj: bool, neg: bool) -> torch.Tensor:
    """A tensor, conjugated or negated, in the same memory; turned again, it is as it lies there.

    It is none of autograd's views, and so none to AOTAutograd where it is an argument.
    """
    with torch._C._ExcludeDispatchKeyGuard(_VIEWS):
        value = value.conj() if conj else value
        return torch._neg_view(value) if neg else value


_capturing = threading.RLock()
"""Held by the thread that captures."""


@functools.cache
def _capture_stream(device: torch.device) -> tpu.Stream:
    """Where graphs are captured, so that other threads compute on their own streams meanwhile."""
    return tpu.Stream(device)


class _Program:
    """A graph with arguments of one signature, captured."""

    def __init__(
        self,
        graph: fx.GraphModule,
        values: list[Any],
        tensors: list[torch.Tensor],
        repeat: bool | str,
        options: str,
    ) -> None:
        self.function = _C.Function()
        with _capturing, tpu.stream(_capture_stream(tensors[0].device)):
            stand_ins = iter(self.function.begin(tensors))
            args = [next(stand_ins) if isinstance(one, torch.Tensor) else one for one in values]
            try:
                made = graph(*args)
                leaves, self._spec = pytree.tree_flatten(made)
                self._listed = isinstance(made, tuple | list) and all(
                    map(operator.is_, leaves, made)
                )
                self._turns = [
                    (i, one.is_conj(), one.is_neg())
                    for i, one in enumerate(leaves)
                    if isinstance(one, torch.Tensor) and (one.is_conj() or one.is_neg())
                ]
                for i, conj, neg in self._turns:
                    leaves[i] = _turned(leaves[i], conj, neg)
                control.check_results(graph, leaves)
            except BaseException:
                self.function.abandon()
                raise
            self._places = [isinstance(one, torch.Tensor) for one in leaves]
            self._others = [None if isinstance(one, torch.Tensor) else one for one in leaves]
            tensors_made = [one for one in leaves if isinstance(one, torch.Tensor)]
            self.function.end(tensors_made, REPEATS[repeat], options=options)
        artifacts.record()
        logs.show(self.function)

    def __call__(
        self, tensors: list[torch.Tensor], lengths: Sequence[tuple[int, int, int]] = ()
    ) -> Any:
        results: list[Any] = self.function(tensors, lengths)
        if not all(self._places):
            found = iter(results)
            pairs = zip(self._places, self._others, strict=True)
            results = [next(found) if is_tensor else other for is_tensor, other in pairs]
        for i, conj, neg in self._turns:
            results[i] = _turned(results[i], conj, neg)
        return tuple(results) if self._listed else pytree.tree_unflatten(results, self._spec)

    @property
    def operators(self) -> int:
        """How many calls of the op table it has."""
        return self.function.sizes()[0]
