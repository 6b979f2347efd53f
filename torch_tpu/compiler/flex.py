"""`flex_attention` in captured graphs: PyTorch's own, of a block of the query's rows at a time.

Long rows of scores are never in memory all at once: a loop goes over the blocks, and gradients of
what all rows share are its sums. `core/ops/attention/blocks.c` does the same for
`scaled_dot_product_attention`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._C import DispatchKey
from torch._higher_order_ops.flex_attention import (
    _permute_strides,
    flex_attention,
    sdpa_dense,
    sdpa_dense_backward,
)
from torch.amp.autocast_mode import _cast

from torch_tpu.compiler import regions

AUTOCAST: DispatchKey = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
FEW_BYTES, BLOCK_BYTES = 32 << 20, 8 << 20  # of scores: of all at once, of a block
FEWEST_ROWS, MOST_ROWS = 16, 1024

Modification = Callable[..., Any]
Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor, tuple[torch.Tensor | None, ...]]
DENSE: Callable[..., Results] = sdpa_dense
DENSE_BACKWARD: Callable[..., Gradients] = sdpa_dense_backward


def with_autocast(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """What the operator does where autocast is on."""
    cast: Any = _cast((query, key, value), "tpu", torch.get_autocast_dtype("tpu"))
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(AUTOCAST)):
        return flex_attention(*cast, *args, **kwargs)


def rows_of_block(query: torch.Tensor, key: torch.Tensor) -> int:
    """How many rows of [batch, heads, rows, features] a block has; 0: all are taken at once."""
    batch, heads, rows = query.shape[:3]
    bytes_of_row = 4 * batch * heads * key.shape[2]
    if not regions.capturing() or bytes_of_row * rows <= FEW_BYTES:
        return 0
    most = max(FEWEST_ROWS, min(MOST_ROWS, BLOCK_BYTES // bytes_of_row))
    return next((n for n in range(most, FEWEST_ROWS - 1, -1) if rows % n == 0), 0)


def _moved(modification: Modification, at: int, first: torch.Tensor) -> Modification:
    """It, for rows that begin at `first`; argument `at` is a row's number."""

    def moved(*args: Any) -> Any:
        return modification(*args[:at], args[at] + first, *args[at + 1 :])

    return moved


def _cut(x: torch.Tensor, rows: int) -> torch.Tensor:
    """[batch, heads, rows, ..] -> [blocks, batch, heads, rows of a block, ..]"""
    blocks: torch.Tensor = x.unflatten(2, (-1, rows))
    return blocks.movedim(2, 0)


def _join(blocks: torch.Tensor) -> torch.Tensor:
    return blocks.movedim(0, 2).flatten(2, 3)


def _starts(query: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.arange(0, query.shape[2], rows, device=query.device)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Modification,
    block_mask: tuple[Any, ...],
    *args: Any,
) -> Results:
    """The operator's results: attention, logsumexp and largest scores of rows.

    Arguments are those of `torch._higher_order_ops.flex_attention.sdpa_dense`.
    """
    rows = rows_of_block(query, key)
    if not rows:
        return DENSE(query, key, value, score_mod, block_mask, *args)

    def block(part: torch.Tensor, first: torch.Tensor) -> Sequence[torch.Tensor]:
        mask = (*block_mask[:-1], _moved(block_mask[-1], 2, first))
        return DENSE(part, key, value, _moved(score_mod, 3, first), mask, *args)

    blocks = regions.loop("flex_attention", block, [], [_cut(query, rows), _starts(query, rows)])
    out, logsumexp, largest = map(_join, blocks)
    return _permute_strides(out, query.stride()), logsumexp, largest


@torch.no_grad()
def backward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any) -> Gradients:
    """Gradients of query, key and value, and of those of the score's tensors that want one.

    Arguments are those of `torch._higher_order_ops.flex_attention.sdpa_dense_backward`.
    """
    rows = rows_of_block(query, key)
    *of_rows, score_mod, joint, block_mask, scale, options, buffers, of_mask = args
    buffers = _that_learn(joint, buffers)
    if not rows:
        more = (score_mod, joint, block_mask, scale, options, buffers, of_mask)
        return DENSE_BACKWARD(query, key, value, *of_rows, *more)
    shared = [key, value, *(one for one in buffers if _learns(one))]
    sums = [torch.zeros_like(one, dtype=_wide(one)) for one in shared]

    def block(*values: torch.Tensor) -> Sequence[torch.Tensor]:
        so_far, (first, part, *given) = values[: len(sums)], values[len(sums) :]
        taken = iter(given)
        parts = [None if one is None else next(taken) for one in of_rows]
        mask = (*block_mask[:-1], _moved(block_mask[-1], 2, first))
        mods = _moved(score_mod, 3, first), joint and _moved(joint, 3, first)
        grad, *grads, captured = DENSE_BACKWARD(
            part, key, value, *parts, *mods, mask, scale, options, buffers, of_mask
        )
        grads += [one for one in captured if one is not None]
        return [*(sum + one for sum, one in zip(so_far, grads, strict=True)), grad]

    cut = [_cut(one, rows) for one in (query, *of_rows) if one is not None]
    *sums, blocks = regions.loop(
        "flex_attention_backward", block, sums, [_starts(query, rows), *cut]
    )
    total = iter(one.to(like.dtype) for one, like in zip(sums, shared, strict=True))
    grads = [regions.like_strides(next(total), one) for one in (key, value)]
    captured = tuple(next(total) if _learns(one) else None for one in buffers)
    return _permute_strides(_join(blocks), query.stride()), grads[0], grads[1], captured


def _that_learn(joint: Any, buffers: tuple[Any, ...]) -> tuple[Any, ...]:
    """The score's tensors, those that want a gradient saying so.

    In a graph that AOTAutograd made no tensor says so; there the joint graph tells.
    """
    if not isinstance(joint, fx.GraphModule):
        return buffers
    gradients: Any = joint.graph.output_node().args[0]
    return tuple(
        one if grad is None or one.requires_grad else one.detach().requires_grad_()
        for one, grad in zip(buffers, gradients[5:], strict=True)
    )


def _learns(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.requires_grad


def _wide(one: torch.Tensor) -> torch.dtype:
    return one.dtype if one.dtype == torch.float64 else torch.float32
