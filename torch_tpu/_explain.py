"""What was counted, and why programs were compiled."""

from collections import Counter

import torch

from torch_tpu import _C

KEPT = _C.JOURNAL_KEPT  # sentences


def explain(last: int = KEPT) -> str:
    """Returns sentences, oldest first, on what was new to the process and why.

    Each names the operator or the chunk of operators, its line, and in what it differs from the
    nearest one that was known: an operand's dtype, shape or view, an argument that shapes the
    program, or which results are needed afterwards. TORCH_TPU_LOG=compile prints the same as it
    happens.

    last: how many; the last 1,024 are kept.
    """
    if last < 0:
        raise ValueError(f"expected a number of sentences, but got {last}")
    count = _C.journal_count()
    lines = [_C.journal_line(i) for i in range(max(0, count - min(last, KEPT)), count)]
    return "\n".join(line.decode(errors="replace") for line in lines if line is not None)


graphs_by_operator: Counter[str] = Counter()
"""How often graphs of torch.compile were run operator by operator, by the reason."""


def metrics() -> dict[str, int | float | dict[str, int]]:
    """Returns what `torch.tpu.metrics` explains."""
    from torch_tpu import _host

    counts = {name.lower(): count for name, count in _C.counters()}

    def group(prefix: str) -> dict[str, int]:
        names = [name for name in counts if name.startswith(prefix)]
        return {name.removeprefix(prefix): counts.pop(name) for name in names}

    cuts, tiers = group("cuts_"), group("tier_")
    sizes = [
        (f"{1 << i}-{(2 << i) - 1}" if i else "1", _C.chunks(i)) for i in range(_C.CHUNK_SIZES)
    ]
    devices = _C.device_count() if _C.is_initialized() else 0
    return {
        "calls": 0,
        **counts,
        "cuts": cuts,
        "tiers": tiers,
        "compile_seconds": counts["compile_ns"] / 1e9,
        "load_seconds": counts["load_ns"] / 1e9,
        # All but a program's first launch find it in memory.
        "cache": {
            "memory": max(0, counts["launches"] - counts["programs_launched"]),
            "disk": counts["disk_hits"],
            "shared": counts["disk_shared_hits"],
            "compiled": counts["compiles"],
        },
        "bytes_held": sum(torch.accelerator.memory_reserved(i) for i in range(devices)),
        "chunk_sizes": {size: count for size, count in sizes if count},
        "synchronisations": dict(_C.waits()),
        "host_operators": _host.counts(),
        "graphs_by_operator": dict(graphs_by_operator),
    }


def reset_metrics() -> None:
    """Starts all counters anew."""
    from torch_tpu import _host

    _C.reset_metrics()
    _host.reset_counts()
    graphs_by_operator.clear()
