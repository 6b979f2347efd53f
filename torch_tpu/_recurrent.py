"""Layers of recurrent networks as loops, where PyTorch's own kernels take them step by step.

`torch_tpu::recurrence` is a layer in one direction, behind the product of its whole input. What
does not suit it (projections, transforms of functions, tangents, a GRU under autocast) goes to
PyTorch's kernels, which also refuse what is refused.

Packed sequences, and those whose number of steps changes from call to call, run as many steps as
there is room for (`_C.bound_of`), and each row keeps its state where it has none: a program serves
all lengths up to that.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils._pytree import tree_map

from torch_tpu import _C
from torch_tpu._register import DENSE, register

KINDS = {"rnn_tanh": 0, "rnn_relu": 1, "lstm": 2, "gru": 3}
"""As tt_cell in core/ops/rnn/cell.h."""

LSTM, GRU = KINDS["lstm"], KINDS["gru"]
GATES = {LSTM: 4, GRU: 3}
"""For how many of a state's columns the products have some; for one else."""
SAVED = {LSTM: 5, GRU: 4}
"""For how many of a state's columns backward wants rows that forward saves."""

States = tuple[Tensor, Tensor | None]

_library = torch.library.Library("torch_tpu", "FRAGMENT")  # the operators live as long as this
_library.define(
    "recurrence(Tensor gates, Tensor weight, Tensor? bias, Tensor hidden, Tensor? cell, "
    "Tensor? lengths, int kind, bool reverse, bool saves) -> (Tensor, Tensor, Tensor, Tensor)"
)
_library.define(
    "recurrence_backward(Tensor? grad, Tensor? grad_hidden, Tensor? grad_cell, Tensor weight, "
    "Tensor hidden, Tensor? cell, Tensor states, Tensor? saved, Tensor? lengths, int kind, "
    "bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _recurrence_types(
    gates: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    hidden: Tensor,
    cell: Tensor | None,
    lengths: Tensor | None,
    kind: int,
    reverse: bool,
    saves: bool,
) -> tuple[Tensor, ...]:
    steps, n, _ = gates.shape
    columns = SAVED.get(kind, 0) * hidden.shape[1]
    return (
        gates.new_empty(steps, n, hidden.shape[1]),
        torch.empty_like(hidden),
        gates.new_empty(0) if cell is None else torch.empty_like(cell),
        gates.new_empty((steps, n, columns) if saves and columns else 0),
    )


def _backward_types(
    grad: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    weight: Tensor,
    hidden: Tensor,
    cell: Tensor | None,
    states: Tensor,
    *others: Any,
) -> tuple[Tensor, ...]:
    columns = weight.shape[0]
    return (
        states.new_empty(*states.shape[:2], columns),
        torch.empty_like(weight),
        weight.new_empty(columns),
        torch.empty_like(hidden),
        weight.new_empty(0) if cell is None else torch.empty_like(cell),
    )


_library.impl("recurrence", _recurrence_types, "Meta")
_library.impl("recurrence_backward", _backward_types, "Meta")


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.kind, ctx.reverse, _ = inputs
    states, _, _, saved = output
    ctx.save_for_backward(*tensors, states, saved)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, states, saved = ctx.saved_tensors
    _, weight, bias, hidden, cell, lengths = tensors
    if torch.is_grad_enabled():  # the gradient is to have gradients
        return _differentiable(tensors, ctx.kind, ctx.reverse, grads[:3])
    found = torch.ops.torch_tpu.recurrence_backward(
        *grads[:3], weight, hidden, cell, states, saved, lengths, ctx.kind, ctx.reverse
    )
    gates, of_weight, of_bias, of_hidden, of_cell = found
    return (
        gates,
        of_weight,
        None if bias is None else of_bias,
        of_hidden,
        None if cell is None else of_cell,
        *(None for _ in range(4)),
    )


torch.library.register_autograd(
    "torch_tpu::recurrence", _backward, setup_context=_save, lib=_library
)


def _step(kind: int, x: Tensor, y: Tensor, state: States) -> States:
    """One step by PyTorch's operators. x, y: products of the input and of the hidden state."""
    hidden, cell = state
    if kind == GRU:
        (r, u, n), (ry, uy, ny) = x.chunk(3, 1), y.chunk(3, 1)
        update = (u + uy).sigmoid()
        new = (n + (r + ry).sigmoid() * ny).tanh()
        return update * (hidden - new) + new, None
    gates = x + y
    if kind == LSTM and cell is not None:
        i, f, g, o = gates.chunk(4, 1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell
    return (gates.relu() if kind == KINDS["rnn_relu"] else gates.tanh()), None


def _differentiable(
    tensors: list[Any], kind: int, reverse: bool, grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Gradients of a layer in one direction that can be differentiated: step by step."""
    gates, weight, bias, hidden, cell, lengths = tensors
    state: States = (hidden, cell)
    states: list[Tensor] = [hidden] * len(gates)
    for at in reversed(range(len(gates))) if reverse else range(len(gates)):
        new = _step(kind, gates[at], functional.linear(state[0], weight, bias), state)
        if lengths is not None:
            new = _of_those((lengths > at)[:, None], new, state)
        states[at], state = new[0], new
    outputs = zip((torch.stack(states), *state), grads, strict=True)
    wanted = [(out, grad) for out, grad in outputs if out is not None and grad is not None]
    needed = [one is not None and one.requires_grad for one in tensors[:5]]
    inputs = [one for one, need in zip(tensors, needed, strict=False) if need]
    given = [out for out, _ in wanted], inputs, [grad for _, grad in wanted]
    found = iter(torch.autograd.grad(*given, create_graph=True, allow_unused=True))
    return (*(next(found) if need else None for need in needed), *(None for _ in range(4)))


def _of_those(has: Tensor, now: States, had: States) -> States:
    (hidden, cell), (hidden_before, cell_before) = now, had
    if cell is not None and cell_before is not None:
        cell = torch.where(has, cell, cell_before)
    return torch.where(has, hidden, hidden_before), cell


# -- PyTorch's operators --


class _Layers(NamedTuple):
    """What the arguments of one of PyTorch's operators say."""

    kind: int
    states: list[Tensor]
    """Hidden and, of an LSTM, cells: [layers * directions, n, size]."""
    weights: list[list[Tensor]]
    """Of each layer and direction: of input and hidden state, and then their biases, if any."""
    dropout: float
    directions: int

    def suit(self, x: Tensor) -> bool:
        """Whether loops take them; if not, PyTorch's kernel does, or says what is wrong."""
        tensors = [x, *self.states, *(one for each in self.weights for one in each)]
        plain = all(type(one) in (Tensor, torch.nn.Parameter) for one in tensors)
        return (
            plain
            and x.dtype.is_floating_point
            and x.numel() > 0
            and all(one.dtype == x.dtype and one.device == x.device for one in tensors)
            and not torch.is_autocast_enabled("tpu")
            and torch._C._functorch.maybe_current_level() is None
            and not any(forward_ad.unpack_dual(one).tangent is not None for one in tensors)
            and self._fit(x)
        )

    def _fit(self, x: Tensor) -> bool:
        *_, n, features = x.shape
        count, size = len(self.weights), self.states[0].shape[-1]
        columns = GATES.get(self.kind, 1) * size
        for k, each in enumerate(self.weights):
            if k >= self.directions:
                features = self.directions * size
            sizes = [(columns, features), (columns, size), *((columns,) for _ in each[2:])]
            if [one.shape for one in each] != sizes or len(each) not in (2, 4):
                return False
        return x.dim() == 3 and all(one.shape == (count, n, size) for one in self.states)

    def run(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
        """The last layer's states [steps, n, directions * size], and the last ones of each."""
        ends: list[list[Tensor]] = []
        for layer in range(0, len(self.weights), self.directions):
            if layer and self.dropout:
                x = functional.dropout(x, self.dropout)
            outs = []
            for k in range(layer, layer + self.directions):
                out, *end = self._run_direction(k, x, lengths, reverse=k > layer)
                outs.append(out)
                ends.append(end[: len(self.states)])
            x = torch.cat(outs, -1) if len(outs) > 1 else outs[0]
        return (x, *(torch.stack(one) for one in zip(*ends, strict=True)))

    def _run_direction(
        self, k: int, x: Tensor, lengths: Tensor | None, *, reverse: bool
    ) -> tuple[Tensor, ...]:
        of_input, of_hidden, *biases = self.weights[k]
        hidden, *cell = (one[k] for one in self.states)
        gates = functional.linear(x, of_input, *biases[:1])
        given = [gates, of_hidden, *biases[1:], hidden, *cell]
        saves = torch.is_grad_enabled() and any(one.requires_grad for one in given)
        bias = biases[1] if biases else None
        operands = gates, of_hidden, bias, hidden, cell[0] if cell else None
        found: tuple[Tensor, ...] = torch.ops.torch_tpu.recurrence(
            *operands, lengths, self.kind, reverse, saves
        )
        return found[:3]


def _layers(
    kind: int,
    states: list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> _Layers:
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != each * num_layers * directions:  # there are projections, say
        each = len(params)
    weights = [params[i : i + each] for i in range(0, len(params), each)]
    return _Layers(kind, states, weights, dropout if train else 0.0, directions)


HOST = torch.device("cpu")  # whatever the default device is

MOST_SIZES, FEW_STEPS = 4096, 3
"""How many layers' sizes are remembered, and how many numbers of steps of each are exact."""

_steps_seen: dict[tuple[object, ...], set[int]] = {}


def _changes(layers: _Layers, x: Tensor) -> bool:
    """Whether layers of these sizes were called with several numbers of steps."""
    if len(_steps_seen) >= MOST_SIZES:
        _steps_seen.clear()
    key = (layers.kind, x.shape[1:], layers.states[0].shape, len(layers.weights))
    seen = _steps_seen.setdefault(key, set())
    if len(seen) < FEW_STEPS:
        seen.add(len(x))
    return len(seen) == FEW_STEPS and _C.sees_room()


def _with_room(layers: _Layers, x: Tensor) -> tuple[Tensor, ...]:
    steps, n, _ = x.shape
    places = torch.arange(_C.bound_of(steps), device=x.device).clamp(max=steps - 1)
    lengths = torch.full((n,), steps, device=x.device)
    out, *ends = layers.run(x.index_select(0, places), lengths)
    numbers = torch.arange(steps, device=HOST)
    return out.index_select(0, numbers.to(x.device)), *ends


def _is_lowered(kind: int) -> bool:
    """Whether autocast has it compute in fewer bits: an LSTM, as the CPU's library does."""
    return kind == LSTM and torch.is_autocast_enabled("tpu")


def _lowered(kernel: Callable[..., Any], *args: Any) -> Any:
    dtype = torch.get_autocast_dtype("tpu")

    def lower(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        wide = value.dtype == torch.float64 or not value.dtype.is_floating_point
        return value if wide else value.to(dtype)

    with torch.autocast("tpu", enabled=False):
        return kernel(*tree_map(lower, args))


def _of_padded(name: str) -> Callable[..., Any]:
    kind, otherwise = KINDS[name], getattr(torch.ops.aten, name).input.decompose

    def kernel(x: Tensor, hx: Any, params: list[Tensor], *rest: Any) -> Any:
        if _is_lowered(kind):
            return _lowered(kernel, x, hx, params, *rest)
        *options, batch_first = rest
        layers = _layers(kind, [*hx] if kind == LSTM else [hx], params, *options)
        steps = x.transpose(0, 1) if batch_first and x.dim() == 3 else x
        torch._check(
            x.dim() != 3 or len(steps) > 0,
            lambda: "Expected sequence length to be larger than 0 in RNN",
        )
        if not layers.suit(steps):
            return otherwise(x, hx, params, *rest)
        several = _changes(layers, steps)
        out, *ends = _with_room(layers, steps) if several else layers.run(steps, None)
        return (out.transpose(0, 1) if batch_first else out, *ends)

    return kernel


class _Packing:
    """Where the rows of a packed sequence are among padded ones, [steps, n], on the host."""

    def __init__(self, batch_sizes: Tensor, steps: int) -> None:
        sizes = functional.pad(batch_sizes, (0, steps - len(batch_sizes)))[:, None]
        places = torch.arange(int(batch_sizes[0]), device=HOST)
        self.has = places < sizes
        """Which steps each of the n has."""
        self.of_packed = torch.where(self.has, sizes.cumsum(0) - sizes + places, 0)
        """Numbers of packed rows, 0 where there is none."""
        self.lengths = self.has.sum(0)

    def of_padded(self) -> Tensor:
        """Numbers of the padded rows, in the order of the packed ones."""
        return self.has.flatten().nonzero().flatten()


def _of_packed(name: str) -> Callable[..., Any]:
    kind, otherwise = KINDS[name], getattr(torch.ops.aten, name).data.decompose

    def kernel(data: Tensor, batch_sizes: Tensor, hx: Any, params: list[Tensor], *rest: Any) -> Any:
        if _is_lowered(kind):
            return _lowered(kernel, data, batch_sizes, hx, params, *rest)
        layers = _layers(kind, [*hx] if kind == LSTM else [hx], params, *rest)
        fits = data.dim() == 2 and data.numel() > 0 and batch_sizes.device.type == "cpu"
        if not fits or not layers.suit(data[:1].expand(1, int(batch_sizes[0]), -1)):
            return otherwise(data, batch_sizes, hx, params, *rest)
        steps = len(batch_sizes)
        packing = _Packing(batch_sizes, _C.bound_of(steps) if _C.sees_room() else steps)
        # Not i64: such uploads of other sizes are lengths, and neither of these sizes is one.
        padded = data[packing.of_packed.int().to(data.device)]
        out, *ends = layers.run(padded, packing.lengths.int().to(data.device))
        return (out.flatten(0, 1).index_select(0, packing.of_padded().to(data.device)), *ends)

    return kernel


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Picks the rows that the CPU's kernel picks among their numbers."""
    if lengths.device.type != "cpu":  # as the CPU's kernel says it
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D "
            f"{lengths.device} {lengths.dtype} tensor"
        )
    sizes = x.shape[:2]
    numbers = torch.arange(sizes.numel(), device=HOST).view(sizes)
    rows, batch_sizes = torch.ops.aten._pack_padded_sequence(numbers, lengths, batch_first)
    places = (rows // sizes[1]).to(x.device), (rows % sizes[1]).to(x.device)
    return x[places], batch_sizes


def _pad(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    otherwise: Any = torch.ops.aten._pad_packed_sequence.default.decompose
    steps = max(len(batch_sizes), total_length)
    if data.dim() == 0 or len(batch_sizes) == 0 or 0 < total_length < steps:
        found: tuple[Tensor, Tensor] = otherwise(
            data, batch_sizes, batch_first, padding_value, total_length
        )
        return found
    packing = _Packing(batch_sizes, steps)
    rows, has = packing.of_packed, packing.has
    if batch_first:
        rows, has = rows.t(), has.t()
    wide = has.to(data.device).view(*has.shape, *(1 for _ in data.shape[1:]))
    padding = torch.full((), padding_value, dtype=data.dtype, device=HOST)
    return torch.where(wide, data[rows.to(data.device)], padding), packing.lengths


_kernels = {f"{name}.input": _of_padded(name) for name in KINDS}
_kernels |= {f"{name}.data": _of_packed(name) for name in KINDS}
_kernels |= {"_pack_padded_sequence": _pack, "_pad_packed_sequence": _pad}
for _key in (DENSE, "AutogradPrivateUse1"):
    register(_key, _kernels)
