"""Streams of a graph: its program is launched on one, and the others wait for it.

Within a program only its data say what comes first. So that events and streams mean the same to
whoever waits for them, the launch waits for what the graph's streams and events hold by then; the
streams wait for the launch, and what the graph does with streams and events is done behind it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index as get

from torch_tpu.compiler import layouts

ops = torch.ops.streams
MARKS = (ops.fork, ops.join, ops.record_stream)  # of what the data say, or the engine knows
_PLACES = {  # where they have a stream among their arguments
    "record_event": (1,),
    "wait_event": (1,),
    "wait_stream": (0, 1),
    "synchronize_stream": (0,),
    "synchronize_event": (),
    "synchronize_device": (),
}
# PyTorch before 2.13 has only some of them.
PLACES = {getattr(ops, name): at for name, at in _PLACES.items() if hasattr(ops, name)}


def taken(graph: fx.GraphModule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Takes them out of a graph of Dynamo's; returns what adds them to what is made of it."""
    calls: list[tuple[Any, tuple[Any, ...]]] = []
    streams: set[Any] = set()
    for part in layouts.parts(graph):
        for node in part.graph.nodes:
            streams.add(node.meta.get("custom", {}).pop("stream", None))
            if node.target in PLACES:
                calls.append((node.target, node.args))
            if node.target in PLACES or node.target in MARKS:
                part.graph.erase_node(node)
    streams.discard(None)
    for target, args in calls:
        streams.update(args[at] for at in PLACES[target])
    if not streams and not calls:
        return lambda made: made
    graph.recompile()
    events = [args[0] for target, args in calls if target is ops.wait_event]

    def around(made: Callable[..., Any]) -> Callable[..., Any]:
        def launched(*args: Any) -> Any:
            current = torch.accelerator.current_stream()
            for event in events:
                get(event).wait(current)
            for stream in streams:
                current.wait_stream(get(stream))
            results = made(*args)
            for stream in streams:
                get(stream).wait_stream(current)
            for target, given in calls:
                target(*given)
            return results

        return launched

    return around
