"""The backend "tpu" of `torch.compile`, which is the default where tensors are on `tpu`."""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from torch_tpu import _C, _patches
from torch_tpu.compiler import functions
from torch_tpu.compiler import options as xla

DEVICE = "tpu"
FORMAT = 9  # of what AOTAutograd's cache keeps of ours (cached.py)
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def tpu(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that Dynamo has traced: one program forward, one backward.

    `mode`: every graph is one launch in all of them; those of "max-autotune" let XLA time kernels
    on GPUs to choose the fastest, which takes seconds. `options`: "repeat", whether
    layers that repeat are compiled once: "auto", where that costs no run time; True, wherever two
    follow one another; False; and those of the plugin's compiler, which begin with "xla_". Raises
    ValueError for others, and for values that the plugin does not take.
    """
    if mode not in (None, *MODES):
        raise ValueError(f"torch.compile(mode={mode!r}): it is one of {', '.join(MODES)}")
    options = dict(options or {})
    repeat = options.pop("repeat", "auto")
    if repeat not in functions.REPEATS:
        raise ValueError(
            f"torch.compile(options={{'repeat': {repeat!r}}}): it is 'auto', True or False"
        )
    strange = [name for name in options if not name.startswith(xla.PREFIX)]
    if strange:
        raise ValueError(f"torch.compile(options=...): backend 'tpu' has no {', '.join(strange)}")
    if mode and mode.startswith("max-autotune"):
        options = xla.THOROUGH.get(_C.platform(), {}) | options
    lines = xla.lines(options)
    from torch._functorch import config

    from torch_tpu.compiler import layers, sources, streams

    sources.recall()
    with_streams = streams.taken(graph)
    once = repeat is not False and layers.outlined(graph)
    # The cache keeps a forward graph together with its backward, and its keys say how we made them.
    together = config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True)
    compiler_config: Any = torch.compiler.config
    tag = f"{compiler_config.cache_key_tag} tpu={FORMAT} repeat={repeat} {lines}"
    tagged = compiler_config.patch(cache_key_tag=tag)
    tracing = _patches.layers_traced_once() if once else contextlib.nullcontext()
    with together, tagged, tracing, _patches.no_code_generators(), _nothing_old_collected():
        return with_streams(_traced(graph, inputs, repeat, lines))


def default(graph: fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Callable[..., Any]:
    """What `torch.compile` without a backend does: graphs on other devices are left to Inductor."""
    if _is_ours(graph, inputs):
        return tpu(graph, inputs, **settings)
    inductor = torch._TorchCompileInductorWrapper(
        settings.get("mode"), settings.get("options"), None
    )
    compiled: Callable[..., Any] = inductor(graph, inputs)
    return compiled


def install() -> None:
    """Makes it the backend that `torch.compile` takes where none, or Inductor, is named."""
    from torch._dynamo.backends import registry

    from torch_tpu.compiler import artifacts, control, fakes  # noqa: F401 # artifacts: a new kind

    control.install()
    fakes.install()
    _patches.inductor_for_others(_is_ours, tpu)
    own = getattr(registry, "get_default_backend", None)  # before PyTorch 2.13 it is Inductor
    if own is not None and own() == "inductor":
        # Behind a backend that has a name Dynamo drops its weak references to the arguments, with
        # which `swap_tensors` would refuse them.
        registry.register_backend(default, name="tpu_or_inductor", tags=("experimental",))
        registry.set_default_backend(default)


def _traced(
    graph: fx.GraphModule, inputs: Sequence[Any], repeat: bool | str, options: str
) -> Callable[..., Any]:
    """What `torch._dynamo.backends.common.aot_autograd` does, without importing Inductor."""
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._guards import TracingContext

    if any(isinstance(one, list | tuple | dict) for one in inputs):  # of compiled autograd
        nested = torch._dynamo.utils.flatten_graph_inputs
        return nested(graph, inputs, lambda flat, own: _traced(flat, own, repeat, options))

    from torch_tpu.compiler import layers
    from torch_tpu.compiler.bucketed import Pair
    from torch_tpu.compiler.cached import Cached

    counters = torch._dynamo.utils.counters["aot_autograd"]
    pair = Pair(first=not torch._dynamo.config.assume_static_by_default)

    def forward(graph: fx.GraphModule, _: Any) -> Cached:
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            pair.visible = context.fw_metadata.num_forward
        made = Cached(layers.settled(graph), repeat, pair=pair, options=options)
        return made.begun(inputs)

    def backward(graph: fx.GraphModule, _: Any) -> Cached:
        return Cached(layers.settled(graph), repeat, None, pair, True, options)

    compiler = SerializableAOTDispatchCompiler(Cached, forward)
    counters["total"] += 1
    made: Callable[..., Any] = aot_module_simplified(
        graph,
        inputs,
        fw_compiler=compiler,
        bw_compiler=SerializableAOTDispatchCompiler(Cached, backward),
        inference_compiler=compiler,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    counters["ok"] += 1
    made = torch._dynamo.disable(made, reason="it is compiled")  # type: ignore[no-untyped-call]
    return made


@contextlib.contextmanager
def _nothing_old_collected() -> Iterator[None]:
    """Within it, Python's collector of cycles leaves alone what was made before.

    To go through all of PyTorch takes it 0.4 s, and so many objects are made here that it would.
    """
    if gc.get_freeze_count():  # somebody keeps something from it already
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.freeze()  # The counts begin anew: Dynamo's guards come next, and would be too much.
        gc.unfreeze()


def _is_ours(graph: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    return any(device.type == DEVICE for device in _devices(graph, inputs))


def _devices(graph: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[torch.device]:
    """Those of a graph's tensors, as far as Dynamo knows them."""
    values = list(inputs)
    for node in graph.graph.nodes:
        values.append(node.meta.get("example_value"))
        if node.op == "call_function" and node.kwargs.get("device") is not None:
            yield torch.device(node.kwargs["device"])
    values += [*graph.parameters(), *graph.buffers()]
    for value in values:
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, torch.Tensor):
                yield one.device
