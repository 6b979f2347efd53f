"""`torch.tpu`: the device module, with the names that `torch.cuda` has made familiar.

Besides functions it has two settable properties: `torch.tpu.eager_mode` and
`torch.tpu.host_fallback`, and the read-only `torch.tpu.default_generators`.
"""

import sys
import types

import torch
from torch import AcceleratorError, OutOfMemoryError

from torch_tpu import _C
from torch_tpu._explain import explain
from torch_tpu.tpu import _utils, amp, compiler, distributed, graphs, memory, random, streams
from torch_tpu.tpu.devices import (
    TpuDeviceProperties,
    _get_device_index,
    _is_in_bad_fork,
    _lazy_init,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    set_plugin,
)
from torch_tpu.tpu.graphs import (
    Graph,
    graph,
    is_current_stream_capturing,
    make_graphed_callables,
)
from torch_tpu.tpu.memory import (
    empty_cache,
    ipc_collect,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from torch_tpu.tpu.modes import (
    EagerMode,
    HostFallback,
    Precision,
    Setting,
    get_precision,
    get_sync_debug_mode,
    metrics,
    no_recompile,
    precision,
    reset_metrics,
    set_eager_mode,
    set_host_fallback,
    set_sync_debug_mode,
)
from torch_tpu.tpu.random import (
    _get_generator,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_tpu.tpu.streams import (
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
    synchronize,
)
from torch_tpu.tpu.tensors import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)

__all__ = [
    "AcceleratorError",
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "EagerMode",
    "Event",
    "FloatTensor",
    "Graph",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "OutOfMemoryError",
    "Precision",
    "ShortTensor",
    "Stream",
    "StreamContext",
    "TpuDeviceProperties",
    "amp",
    "compiler",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "distributed",
    "empty_cache",
    "explain",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_precision",
    "get_rng_state",
    "get_rng_state_all",
    "get_sync_debug_mode",
    "graph",
    "graphs",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "metrics",
    "no_recompile",
    "precision",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_metrics",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_eager_mode",
    "set_host_fallback",
    "set_plugin",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "streams",
    "synchronize",
]


class _TpuModule(types.ModuleType):
    """Gives the module its properties."""

    @property
    def eager_mode(self) -> EagerMode:
        """How eager operators are launched; see EagerMode."""
        return EagerMode(Setting.MODE.now())

    @eager_mode.setter
    def eager_mode(self, mode: EagerMode | str | int) -> None:
        Setting.MODE.set(EagerMode.of(mode).value)

    @property
    def host_fallback(self) -> str:
        """What an operator without a device path does: "warn", "silent" or "error"."""
        return HostFallback(Setting.HOST_FALLBACK.now()).name.lower()

    @host_fallback.setter
    def host_fallback(self, mode: str) -> None:
        Setting.HOST_FALLBACK.set(HostFallback.of(mode).value)

    @property
    def default_generators(self) -> tuple[torch.Generator, ...]:
        """The default generator of each device."""
        return tuple(_C.default_generator(i) for i in range(device_count()))

    @property
    def _initialized(self) -> bool:
        """What `torch.utils.checkpoint` asks before it keeps the state of random numbers."""
        return is_initialized()


sys.modules[__name__].__class__ = _TpuModule
