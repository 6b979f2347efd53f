"""Captured graphs, under the names of `torch.cuda`: what is recorded once is launched as one.

While a graph is captured nothing is computed: operators are written down, and tensors have types
and no values, so that reading one raises RuntimeError. At each replay the graph reads what the
tensors from before then hold, writes those that it wrote in place, and gives the others that it
made new values. Random numbers advance from replay to replay.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_tpu import _C
from torch_tpu.tpu.streams import StreamContext, synchronize


class Graph:
    """A graph of operators that `graph` captures and `replay` launches.

    keep_graph is taken for the sake of scripts written for CUDA; there is nothing more to keep.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = _C.Graph()

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        """Begins to capture what is recorded on the current device.

        What all threads record there is captured, since autograd's threads take part. The two
        arguments are CUDA's: memory needs no pools, and errors come in every mode. Raises
        RuntimeError if the device is captured already.
        """
        self._graph.begin()

    def capture_end(self) -> None:
        """Ends the capture, on the thread that began it; the graph is compiled from then on."""
        self._graph.end()

    def replay(self) -> None:
        """Launches the graph on the current stream, once.

        Raises RuntimeError if a tensor that it reads has another size or dtype than when it was
        captured.
        """
        self._graph.replay()

    def reset(self) -> None:
        """Forgets what was captured; another capture may begin."""
        self._graph.reset()

    def instantiate(self) -> None:
        """Does nothing: a graph is compiled when its capture ends."""

    def pool(self) -> tuple[int, int]:
        """Returns the memory pool's name, which is the same for all graphs."""
        return graph_pool_handle()

    def __repr__(self) -> str:
        steps, inputs, outputs = self._graph.sizes()
        if not self._graph.captured():
            return "<torch.tpu.Graph, not captured>"
        return f"<torch.tpu.Graph of {steps} operators, {inputs} inputs, {outputs} outputs>"


def graph_pool_handle() -> tuple[int, int]:
    """Returns a name for a memory pool. There is but one, and nobody need ask."""
    return (0, 0)


def is_current_stream_capturing() -> bool:
    """Whether the current device is being captured."""
    return _C.is_initialized() and _C.is_capturing(_C.current_device())


class graph:  # noqa: N801 (used as `with torch.tpu.graph(g):`)
    """Context manager that captures what its block records into a graph.

    Args: the graph; pool and capture_error_mode, as of `Graph.capture_begin`; the stream on which
    the block records, by default the current one. An exception in the block ends the capture and
    leaves the graph as it was.
    """

    def __init__(
        self,
        graph: Graph,
        pool: object = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
    ) -> None:
        self._captured = graph
        self._stream = StreamContext(stream)

    def __enter__(self) -> None:
        synchronize()
        self._stream.__enter__()
        try:
            self._captured.capture_begin()
        except BaseException:
            self._stream.__exit__()
            raise

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            if kind is None:
                self._captured.capture_end()
            else:
                self._captured._graph.abandon()
        finally:
            self._stream.__exit__()


# -- Callables --

_Flat = tuple[torch.Tensor, ...]


class _Graphed:
    """One callable, its forward and its backward captured for arguments of one kind."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], warmup: int) -> None:
        flat, self._tree = pytree.tree_flatten(args)
        if not all(isinstance(one, torch.Tensor) for one in flat):
            raise TypeError("make_graphed_callables: sample arguments must be tensors")
        self._arguments: _Flat = tuple(flat)
        module = function if isinstance(function, torch.nn.Module) else None
        self._parameters: _Flat = tuple(module.parameters()) if module else ()
        self._inputs: _Flat = self._arguments + self._parameters
        self._warm_up(function, args, warmup)
        self._forward = Graph()
        with graph(self._forward):
            outputs = function(*args)
        flat_outputs, self._out_tree = pytree.tree_flatten(outputs)
        self._outputs: _Flat = tuple(flat_outputs)
        self._backward, self._grad_outputs, self._grads = self._capture_backward()

    def _wanted(self) -> _Flat:
        return tuple(one for one in self._inputs if one.requires_grad)

    def _warm_up(self, function: Callable[..., Any], args: tuple[Any, ...], times: int) -> None:
        for _ in range(times):
            outputs = pytree.tree_leaves(function(*args))
            used = [one for one in outputs if one.requires_grad]
            if used and self._wanted():
                torch.autograd.grad(
                    used, self._wanted(), [torch.zeros_like(one) for one in used], allow_unused=True
                )

    def _capture_backward(
        self,
    ) -> tuple[Graph, tuple[torch.Tensor | None, ...], list[torch.Tensor | None]]:
        used = [one for one in self._outputs if one.requires_grad]
        given = tuple(torch.zeros_like(o) if o.requires_grad else None for o in self._outputs)
        backward = Graph()
        grads: Sequence[torch.Tensor | None] = ()
        if used and self._wanted():
            with graph(backward):
                grads = torch.autograd.grad(
                    used,
                    self._wanted(),
                    [one for one in given if one is not None],
                    allow_unused=True,
                )
        found = iter(grads)
        every = [next(found, None) if one.requires_grad else None for one in self._inputs]
        return backward, given, every

    def function(self) -> Callable[..., Any]:
        """Returns the callable: it takes arguments like the samples, and is differentiable."""
        graphed = self

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: torch.Tensor) -> _Flat:
                for held, given in zip(graphed._arguments, inputs, strict=False):
                    if held is not given:
                        held.detach().copy_(given.detach())
                graphed._forward.replay()
                return tuple(one.detach() for one in graphed._outputs)

            @staticmethod
            def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
                for held, given in zip(graphed._grad_outputs, grads, strict=True):
                    if held is not None and given is not None:
                        held.copy_(given)
                graphed._backward.replay()
                # Copies, since what autograd keeps as a parameter's gradient must not change.
                return tuple(
                    None if one is None else one.detach().clone() for one in graphed._grads
                )

        def call(*args: Any) -> Any:
            flat = pytree.tree_leaves(args)
            if len(flat) != len(graphed._arguments):
                raise TypeError(
                    f"this graphed callable takes {len(graphed._arguments)} tensors, "
                    f"but got {len(flat)}"
                )
            outputs = Replay.apply(*flat, *graphed._parameters)
            return pytree.tree_unflatten(list(outputs), graphed._out_tree)

        return call


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: object = None,
) -> Any:
    """Returns callables whose forward and backward are captured graphs.

    Args: a function or module, or a tuple of them; its sample arguments, a tuple of tensors, or a
    tuple of such tuples; how often each is run before it is captured. A module is returned itself,
    with a forward that replays while its training mode is what it was at the capture. Results are
    overwritten by the next call, as with `torch.cuda.make_graphed_callables`; the last two
    arguments are CUDA's. Raises TypeError for sample arguments that are not tensors.
    """
    if not isinstance(callables, tuple):
        return make_graphed_callables((callables,), (sample_args,), num_warmup_iters)[0]
    made = []
    for function, args in zip(callables, sample_args, strict=True):
        call = _Graphed(function, tuple(args), num_warmup_iters).function()
        made.append(_graft(function, call) if isinstance(function, torch.nn.Module) else call)
    return tuple(made)


def _graft(module: torch.nn.Module, call: Callable[..., Any]) -> torch.nn.Module:
    """Gives a module a forward that replays."""
    training, eager = module.training, module.forward

    def forward(*args: Any) -> Any:
        return call(*args) if module.training == training else eager(*args)

    module.forward = forward  # type: ignore[method-assign]
    return module
