"""Programs in PyTorch's logs: for `TORCH_LOGS=output_code`, and for tlparse (`TORCH_TRACE`)."""

import logging
from typing import Any

from torch._logging._internal import getArtifactLogger, trace_log, trace_structured

SOURCES = ("compiled", "disk", "shared disk")

# Below "torch", whose handlers these logs have.
_log = getArtifactLogger("torch.tpu.compiler", "output_code")


def source_of(facts: dict[str, Any]) -> str:
    """Where a program came from, of what `_C.Function.tell` says."""
    return "memory" if facts["known"] else SOURCES[facts["source"]]


def show(function: Any) -> None:
    """Shows a captured function's StableHLO where somebody looks; then waits for the compiler."""
    if trace_log.handlers or _log.isEnabledFor(logging.DEBUG):
        for facts in function.tell():
            _show(facts["text"], source_of(facts), facts["compile_ns"] / 1e6)


def _show(text: str, source: str, took: float) -> None:
    _log.debug("StableHLO (from: %s, %.1f ms)\n%s", source, took, text)
    about = {"name": "tpu_stablehlo", "encoding": "string", "from": source, "ms": took}
    trace_structured("artifact", metadata_fn=lambda: about, payload_fn=lambda: text)
