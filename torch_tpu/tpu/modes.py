"""How eager operators run, and what has been counted while they did."""

import enum
import warnings
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from torch_tpu import _C, _explain

Kind = TypeVar("Kind", bound=enum.Enum)
Function = TypeVar("Function", bound=Callable[..., Any])


def _member(kind: type[Kind], value: Kind | str | int, what: str) -> Kind:
    if not isinstance(value, str):
        return kind(value)
    try:
        return kind[value.upper()]
    except KeyError:
        names = ", ".join(member.name.lower() for member in kind)
        raise ValueError(f"unknown {what} {value!r}: expected one of {names}") from None


class EagerMode(enum.Enum):
    """How eager operators are launched.

    DEBUG launches one operator, checks its indices, and waits, so that an error comes at its own
    line. STRICT launches each operator at once and does not wait. FUSED lets operators gather and
    compiles them together. The other three names are the same modes under their older names.
    """

    DEBUG = 0
    STRICT = 1
    FUSED = 2
    DEFER_NEVER_AND_LAUNCH_BLOCKING = 0
    DEFER_NEVER = 1
    DEFER_AND_FUSE = 2

    @classmethod
    def of(cls, mode: "EagerMode | str | int") -> "EagerMode":
        """Returns the mode that is named. Raises ValueError for an unknown one."""
        return _member(cls, mode, "eager mode")


class HostFallback(enum.Enum):
    """What operators without a device path do: see `set_host_fallback`."""

    WARN = 0
    SILENT = 1
    ERROR = 2

    @classmethod
    def of(cls, mode: str) -> "HostFallback":
        """Returns the one that is named. Raises ValueError for an unknown one."""
        if mode not in ("warn", "silent", "error"):
            raise ValueError(f"host fallback is 'warn', 'silent' or 'error', not {mode!r}")
        return cls[mode.upper()]


class SyncDebugMode(enum.Enum):
    """What a wait of the host for a tensor's value does: see `set_sync_debug_mode`."""

    DEFAULT = 0
    WARN = 1
    ERROR = 2


class Setting(enum.Enum):
    """What a process or a block can choose, in the order of `Setting` in glue/device/policy.h."""

    MODE = 0
    PRECISION = 1
    HOST_FALLBACK = 2
    KNOWN_ONLY = 3
    SPMD_SAFE = 4
    WAITS = 5

    def now(self) -> int:
        """What counts for this thread."""
        return _C.setting_now(self.value)

    def set(self, value: int) -> None:
        """Chooses for the process."""
        _C.set_for_process(self.value, value)


class _Block(ContextDecorator):
    """A `with` block that chooses something for its own thread.

    Autograd's threads take the choice from the thread that called backward; other threads do not.
    """

    def __init__(self, setting: Setting, value: int) -> None:
        self._choice = [value if one is setting else None for one in Setting]
        self._blocks: list[_C.Block] = []
        self._is_used = False

    def __enter__(self) -> None:
        self._is_used = True
        self._blocks.append(_C.Block(self._choice))

    def __call__(self, function: Function) -> Function:
        self._is_used = True
        return super().__call__(function)

    def __del__(self) -> None:
        if not getattr(self, "_is_used", True):  # where its own arguments were refused
            call = f"torch.tpu.{type(self).__name__}(...)"
            warnings.warn(
                f"{call} does nothing by itself: write `with {call}:`",
                RuntimeWarning,
                stacklevel=2,
            )

    def __exit__(self, *exception: object) -> None:
        self._blocks.pop().leave()


class set_eager_mode(_Block):  # noqa: N801 (used as `with torch.tpu.set_eager_mode(..)`)
    """Context manager and decorator that runs a block, on its own thread, in a mode.

    `torch.tpu.eager_mode = ...` chooses for the process.
    """

    def __init__(self, mode: EagerMode | str | int) -> None:
        self.mode = EagerMode.of(mode)
        super().__init__(Setting.MODE, self.mode.value)


class set_host_fallback(_Block):  # noqa: N801
    """Context manager and decorator: what operators without a device path do in a thread's block.

    mode: "warn" (once an operator), "silent", or "error", which raises NotImplementedError.
    `torch.tpu.host_fallback = ...` chooses for the process.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode
        super().__init__(Setting.HOST_FALLBACK, HostFallback.of(mode).value)


class Precision(enum.Enum):
    """How exactly a device multiplies f32 numbers in matrix products and convolutions.

    DEFAULT is the fastest, on a TPU one pass with bf16 factors; HIGH takes three such passes;
    HIGHEST is all of f32. CPUs and GPUs may compute all of them in full. Products of other dtypes
    are not concerned, nor is what other operators multiply inside.
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def of(cls, precision: "Precision | str | int") -> "Precision":
        """Returns the precision that is named. Raises ValueError for an unknown one."""
        return _member(cls, precision, "precision")


class precision(_Block):  # noqa: N801
    """Context manager and decorator that multiplies with a precision in a thread's block.

    Elsewhere PyTorch's own settings hold: `torch.set_float32_matmul_precision`, where "highest",
    the default, is HIGHEST, "high" HIGH and "medium" DEFAULT; or, where that says "highest",
    `torch.backends.fp32_precision`, where "tf32" is HIGH.
    """

    def __init__(self, precision: Precision | str | int) -> None:
        self.precision = Precision.of(precision)
        super().__init__(Setting.PRECISION, self.precision.value)


class no_recompile(_Block):  # noqa: N801 (used as `with torch.tpu.no_recompile():`)
    """Context manager and decorator in which a thread compiles nothing.

    An operator that needs a program that neither this process nor a cache folder has raises
    RuntimeError, which says why; nothing is lost, and after the block it can be tried again. In
    Fused mode operators are compiled together, so the error comes where a chunk of them ends: at a
    later operator, or where a value is read.
    """

    def __init__(self) -> None:
        super().__init__(Setting.KNOWN_ONLY, 1)


def get_precision() -> Precision:
    """Returns how exactly products are computed now."""
    return Precision(_C.precision())


def metrics() -> dict[str, int | float | dict[str, int]]:
    """Returns what was counted since the start, or since reset_metrics.

    Operators by path: `ops_row`, `ops_decomposed`, `ops_host`, and `host_operators` by name.
    `chunks` of operators, `chunk_ops` in them, `chunk_sizes`, and `cuts`: what ended them;
    `tiers`: operators launched alone, in `pieces` of chunks, or in whole `chunks`; `replays`:
    chunks run again operator by operator, since they or their inputs had failed. Programs
    asked for: `programs` that were new to the process, `program_hits` that were not. `cache`:
    programs by where they were found: in `memory` (launches of one that was launched before), on
    `disk`, in the `shared` folder, or nowhere, so that they were `compiled`; it took
    `compile_seconds` to compile, and `load_seconds` to load what a folder had. `launches`; `reads`
    and `writes` by the host; `synchronisations` by the line that waited; `bytes_held` now.
    `graphs_by_operator`: how often graphs of torch.compile were run operator by operator, by the
    reason (docs/compile.md).
    """
    return _explain.metrics()


def reset_metrics() -> None:
    """Starts all counters anew."""
    _explain.reset_metrics()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Chooses for the process what happens where the host waits for a tensor's value.

    debug_mode: "default" (0) nothing, "warn" (1) a warning, "error" (2) a RuntimeError, each with
    the script's line. `item()`, `cpu()`, printing, and sizes that depend on data wait so;
    `synchronize()` does what its name says, and is not meant. `torch.tpu.explain()` counts waits.
    Raises ValueError for anything else.
    """
    Setting.WAITS.set(_member(SyncDebugMode, debug_mode, "debug mode").value)


def get_sync_debug_mode() -> int:
    """Returns what `set_sync_debug_mode` chose, as a number."""
    return Setting.WAITS.now()
