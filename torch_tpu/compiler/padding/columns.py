"""Rules that the op table's columns tell (ops/ops.h)."""

from typing import Any

import torch
from torch import fx

from torch_tpu.compiler.padding import dims as d
from torch_tpu.compiler.padding.context import Apply, Args, Context, aten
from torch_tpu.compiler.padding.dims import Dim, RefusedError


def tensors(cx: Context, node: fx.Node) -> list[fx.Node]:
    """The operands that are tensors."""
    return [one for one in node.all_input_nodes if isinstance(cx.value(one), torch.Tensor)]


def broadcast(cx: Context, node: fx.Node) -> tuple[Dim, ...]:
    """The dims of the results, to which all operands are broadcast."""
    exact = cx.exact_dims(node)
    exact = exact[0] if isinstance(exact, list) else exact
    found: list[set[Dim]] = [set() for _ in exact]
    free = [True] * len(exact)
    for one in tensors(cx, node):
        own = cx.dims_at(one)
        for i, dim in enumerate(own, len(exact) - len(own)):
            if dim != d.ONE and not isinstance(dim, d.Free):
                found[i].add(dim)
                free[i] = False
    for dims, dim in zip(found, exact, strict=True):
        cx.alike(node, *([one] for one in dims))
        if any(d.size_of(one) != d.size_of(dim) for one in dims):
            raise RefusedError(f"{node.target} makes another size of one that varies")
    return tuple(
        dims.pop() if dims else d.Free(dim) if equal else dim
        for dims, dim, equal in zip(found, exact, free, strict=True)
    )


def pointwise(cx: Context, node: fx.Node, _: Args) -> fx.Node:
    """What makes each element of the result of those at its place."""
    return cx.run(node, results_like(cx, node, broadcast(cx, node)))


def reduced_dims(listed: Any, rank: int, empty_is_none: bool = False) -> list[int]:
    """Those that an argument lists: None is all, and so is an empty list, if it is not of none."""
    if listed is None or (listed == [] and not empty_is_none):
        return list(range(rank))
    return sorted({one % max(rank, 1) for one in ([listed] if isinstance(listed, int) else listed)})


def without(dims: tuple[Dim, ...], gone: list[int], keep: bool) -> tuple[Dim, ...]:
    """What a reduction leaves of dims."""
    if keep:
        return tuple(d.ONE if i in gone else dim for i, dim in enumerate(dims))
    return tuple(dim for i, dim in enumerate(dims) if i not in gone)


def results_like(cx: Context, node: fx.Node, dims: tuple[Dim, ...]) -> Any:
    """The same dims for each of a node's results."""
    value = cx.value(node)
    return [dims] * len(value) if isinstance(value, tuple | list) else dims


def result_rank(cx: Context, node: fx.Node) -> int:
    """The number of dims of a node's first result."""
    value = cx.value(node)
    rank: int = (value[0] if isinstance(value, tuple | list) else value).dim()
    return rank


def _reduction(reducer: str, listed: int, empty_is_none: bool) -> Apply:
    def apply(cx: Context, node: fx.Node, a: Args) -> fx.Node:
        own = cx.dims_at(a.self_)
        names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
        given = getattr(a, names[listed]) if listed > 0 else None
        dims = reduced_dims(given, len(own), empty_is_none)
        kept = without(own, dims, result_rank(cx, node) == len(own))
        return cx.run(
            node, results_like(cx, node, kept), **{names[0]: cx.cleaned(a.self_, reducer, dims)}
        )

    return apply


def _listed(reducer: str, argument: int) -> Apply:
    """A result like the first operand, along dims of which padding is left out."""

    def apply(cx: Context, node: fx.Node, a: Args) -> fx.Node:
        names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
        first = getattr(a, names[0])
        own = cx.dims_at(first)
        dims = reduced_dims(getattr(a, names[argument]), len(own))
        return cx.run(node, own, **{names[0]: cx.cleaned(first, reducer, dims)})

    return apply


# -- Patterns: "ij,jk->ik" --

Code = str | int  # a letter; a place in "...", from the end


def _codes(pattern: str, rank: int) -> list[Code]:
    if pattern.endswith("!"):
        before = pattern[:-1][:rank]
        return [*before, *"!" * (rank - len(before))]
    before, dots, after = pattern.partition("...")
    rest = rank - len(before) - len(after)
    if rest < 0 or (not dots and rest):
        raise RefusedError("an operand has another rank than its rule")
    return [*before, *reversed(range(rest)), *after] if dots else list(before)


def _is_fixed(code: Code) -> bool:
    """Whether it is of dims that may not vary, which may have another size in each tensor."""
    return isinstance(code, str) and (code.isupper() or code == "!")


class _Match:
    """What a pattern's codes stand for."""

    def __init__(self, rule: str) -> None:
        operands, _, results = rule.partition("->")
        self.operands, self.results = operands.split(","), results.split(",")
        self.dims: dict[Code, Dim] = {}

    def codes(self, i: int, rank: int) -> list[Code]:
        """Of the dims of argument i."""
        pattern = self.operands[i] if i < len(self.operands) else "!"
        if pattern == "*":
            return _codes(self.results[0], max(rank, len(self.results[0])))[-rank:] if rank else []
        return _codes(pattern, rank)

    def note(self, cx: Context, node: fx.Node, codes: list[Code], dims: tuple[Dim, ...]) -> None:
        for code, dim in zip(codes, dims, strict=True):
            if dim == d.ONE:
                continue
            fixed = _is_fixed(code)
            if fixed and d.varies(dim):
                raise RefusedError("a dim whose size varies is one that may not")
            known = self.dims.get(code, dim)
            if isinstance(known, d.Free):
                known = dim
            if not fixed and not isinstance(dim, d.Free):
                cx.alike(node, [known], [dim])
            self.dims[code] = known

    def as_others(self, cx: Context, node: fx.Node, codes: list[Code]) -> fx.Node:
        """An operand whose padding lies as that of the others, in the new graph."""
        own = cx.dims_at(node)
        dims = tuple(
            self.dims[code] if isinstance(dim, d.Free) and code in self.dims else dim
            for code, dim in zip(codes, own, strict=True)
        )
        if dims == own:
            return cx.of(node)  # type: ignore[no-any-return]
        return cx.emit(aten.alias.default, cx.of(node), dims=dims)

    def is_summed(self, code: Code) -> bool:
        """Whether a result lacks it."""
        name = "..." if isinstance(code, int) else code
        return code != "!" and not all(name in one for one in self.results)

    def result(self, k: int, exact: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The dims of result k."""
        if k >= len(self.results):
            return exact
        codes = _codes(self.results[k], len(exact))
        return tuple(
            dim if _is_fixed(code) else self.dims.get(code, dim)
            for code, dim in zip(codes, exact, strict=True)
        )


def pattern(text: str) -> Apply:
    """The rule of a pattern; padding of what is summed is zero."""

    def apply(cx: Context, node: fx.Node, a: Args) -> fx.Node:
        match = _Match(text)
        operands = {}
        for i, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
            one = getattr(a, argument.name)
            if isinstance(one, fx.Node) and isinstance(cx.value(one), torch.Tensor):
                codes = match.codes(i, len(cx.dims_at(one)))
                match.note(cx, node, codes, cx.dims_at(one))
                operands[argument.name] = one, codes
        changed = {}
        for name, (one, codes) in operands.items():
            summed = [k for k, code in enumerate(codes) if match.is_summed(code)]
            changed[name] = cx.cleaned(match.as_others(cx, one, codes), 0, summed)
        exact = cx.exact_dims(node)
        dims = (
            [match.result(k, one) for k, one in enumerate(exact)]
            if isinstance(exact, list)
            else match.result(0, exact)
        )
        return cx.run(node, dims, **changed)

    return apply


def rule_of(
    kind: str, text: str | None, reducer: str, listed: int, empty_is_none: bool
) -> Apply | None:
    """What a row of the op table says: None, that it has no rule.

    Its class, its pattern, a reducer, which argument lists the dims that are reduced, and whether
    an empty list is of none.
    """
    if text is None:
        if kind == "pointwise":
            return pointwise
        reduces = kind == "reduce" and listed >= 0
        return _reduction(reducer, listed, empty_is_none) if reduces else None
    if text == "":
        return pointwise
    if text.startswith("%"):
        return _listed(reducer, int(text[1:]))
    return pattern(text) if "->" in text and reducer == "sum" else None
