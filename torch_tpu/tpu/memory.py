"""Device memory: what is in use, what was the most, what there is."""

from collections import OrderedDict

import torch

from torch_tpu.tpu.devices import Device, _get_device_index


def memory_stats(device: Device = None) -> "OrderedDict[str, int]":
    """Returns counters under the names of torch.cuda.memory_stats, in bytes or in buffers.

    Allocated are the bytes of tensors, from the line on that makes them; reserved are those that
    the device holds for them. Less is reserved while work is recorded or queued, and for zeros,
    which tensors share; more while queued work still needs a freed tensor.
    """
    index = _get_device_index(device, optional=True)
    result = dict(torch.accelerator.memory_stats(index))
    result["limit_bytes"] = torch._C._accelerator_getMemoryInfo(index)[1]
    return OrderedDict(sorted(result.items()))


def memory_allocated(device: Device = None) -> int:
    """Bytes of the tensors that are alive, whether or not the device has computed them yet."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes of tensors at a time since the start, or since reset_peak_memory_stats."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Device = None) -> int:
    """Bytes that the device holds: freed memory goes back to the plugin at once."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the device held since the start, or since reset_peak_memory_stats."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Returns (free, total) bytes of a device.

    Of a plugin that computes in the host's memory the total is the host's. Free is what this
    process does not use: all of a device that another process has.
    """
    return torch._C._accelerator_getMemoryInfo(_get_device_index(device, optional=True))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Starts the peaks anew from what is in use now."""
    torch._C._accelerator_resetPeakStats(_get_device_index(device, optional=True))


def reset_max_memory_allocated(device: Device = None) -> None:
    """The older name of reset_peak_memory_stats."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Starts the counts of allocations and frees anew."""
    torch._C._accelerator_resetAccumulatedStats(_get_device_index(device, optional=True))


def empty_cache() -> None:
    """Lets go of memory that is kept only to be used again, the host's too; programs stay."""
    torch._C._accelerator_emptyCache()


def ipc_collect() -> None:
    """Does nothing: no device memory is kept for other processes, to which tensors go as copies."""


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Returns the counters as a table for people.

    abbreviated: only what is in use and the peak.
    """
    index = _get_device_index(device, optional=True)
    free, total = mem_get_info(index)
    stats = memory_stats(index)
    rows = [
        ("in tensors", bytes_text(stats["allocated_bytes.all.current"])),
        ("peak", bytes_text(stats["allocated_bytes.all.peak"])),
        ("on the device", bytes_text(stats["reserved_bytes.all.current"])),
        ("peak", bytes_text(stats["reserved_bytes.all.peak"])),
    ]
    if not abbreviated:
        rows += [
            ("ever asked for", bytes_text(stats["reserved_bytes.all.allocated"])),
            ("free", bytes_text(free)),
            ("total", bytes_text(total)),
            ("buffers alive", str(stats["allocation.all.current"])),
            ("buffers made", str(stats["allocation.all.allocated"])),
            ("buffers freed", str(stats["allocation.all.freed"])),
        ]
    return "\n".join([f"Memory of tpu:{index}"] + [f"  {n:<16}{v:>14}" for n, v in rows])


def bytes_text(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
