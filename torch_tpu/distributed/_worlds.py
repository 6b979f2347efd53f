"""Ranks that are threads of this process, each with a virtual device of its own."""

import contextlib
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d

from torch_tpu import _C, _patches, tpu

_T = TypeVar("_T")


class _World(threading.local):
    """What `torch.distributed` knows of its groups, apart for each thread."""

    def __init__(self) -> None:
        self.default_pg = None
        self.group_count = 0
        self.pg_map: dict[Any, Any] = {}
        self.pg_names: dict[Any, Any] = {}
        self.pg_group_ranks: dict[Any, Any] = {}
        self.pg_backend_config: dict[Any, Any] = {}
        self.tags_to_pg: dict[Any, Any] = {}
        self.pg_to_tag: dict[Any, Any] = {}
        self.pg_coalesce_state: dict[Any, Any] = {}
        self.comms: list[Any] = []

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        return [distributed_c10d._get_pg_config(group) for group in self.pg_map]


class _Run:
    """One simulation: what its ranks share."""

    def __init__(self, world_size: int, backend: str, timeout: timedelta) -> None:
        self.size, self.backend, self.timeout = world_size, backend, timeout
        self.store = HashStore()
        self.store.set_timeout(timeout)
        self.results: list[Any] = [None] * world_size
        self.failed: tuple[int, BaseException] | None = None
        self.lock = threading.Lock()

    def rank(self, rank: int, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        from torch._dynamo import config

        tpu.set_device(rank)
        # Autograd has a thread for each device, which would know nothing of this rank's groups.
        torch.autograd.set_multithreading_enabled(False)
        # "tpu" without an index is another device on each rank, which PyTorch's cache is not told.
        own = config.patch(fake_tensor_cache_enabled=False)
        try:
            dist.init_process_group(
                self.backend,
                store=self.store,
                rank=rank,
                world_size=self.size,
                timeout=self.timeout,
            )
            with own:
                self.results[rank] = fn(*args)
            tpu.synchronize()
        except BaseException as error:
            self.fail(rank, error)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    def drain(self) -> None:
        """Lets go of what failed after the first error."""
        for rank in range(self.size):
            with contextlib.suppress(RuntimeError):
                tpu.synchronize(rank)

    def fail(self, rank: int, error: BaseException) -> None:
        with self.lock:
            if self.failed is None:
                self.failed = rank, error
                _C.end_meetings(
                    f"rank {rank} of {self.size} raised {type(error).__name__}: {error}"
                )


_run: _Run | None = None


def devices() -> list[int]:
    """The plugin's numbers of the devices of the simulation's ranks; empty where there is none."""
    return _C.device_ids()[: _run.size] if _run else []


def simulate(
    fn: Callable[..., _T],
    world_size: int = 8,
    args: tuple[Any, ...] = (),
    *,
    backend: str = "tpu",
    timeout: timedelta = timedelta(minutes=10),
) -> list[_T]:
    """Calls `fn(*args)` on each rank of a world within this process; returns the results by rank.

    Each rank is a thread with a device of its own, "tpu:<rank>", which is its current one, and with
    a default process group. Collectives are StableHLO's, in programs that all of a group's devices
    run at once: those that a slice would run. Compiled and captured programs hold the collectives
    of all groups that are the dims of a mesh.

    The CPU plugin gets `world_size` virtual devices where it is not open yet; otherwise
    `torch.tpu.set_plugin(cpu_devices=..)` or TORCH_TPU_CPU_DEVICES must have given it as many.

    fn: threads that it starts have no process group, and random numbers on the CPU are drawn from
    one generator of the process: make a model once, and let each rank copy it. backend: of the
    default group; "cpu:gloo,tpu:tpu" takes tensors on the CPU as well. timeout: how long a device
    waits for the others to come to a program. Raises the first rank's exception, and RuntimeError
    within another simulation, where a process group is initialized, or for want of devices.
    """
    global _run
    if _run or dist.is_initialized():
        raise RuntimeError("simulate: this process has a process group; destroy it first")
    if not tpu.is_initialized():
        tpu.set_plugin(cpu_devices=world_size)
    owned = tpu.device_count()
    if not 1 <= world_size <= owned:
        raise RuntimeError(
            f"simulate: world_size is {world_size}, but the plugin has {owned} devices; call "
            f"torch.tpu.set_plugin(cpu_devices={world_size}) before the first use of the device"
        )
    _C.init()
    _C.reopen_meetings(timeout)
    run = _run = _Run(world_size, backend, timeout)
    excepthook = sys.excepthook  # which each rank's group puts a name before
    try:
        with _patches.worlds_of_threads(_World()), _patches.handlers_of_threads():
            threads = [
                threading.Thread(target=run.rank, args=(rank, fn, args), name=f"rank {rank}")
                for rank in range(world_size)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if run.failed:
                run.drain()
    finally:
        sys.excepthook = excepthook
        _run = None
        _C.reopen_meetings(timeout)  # what ended them is nothing to groups of other processes
    if run.failed:
        rank, error = run.failed
        error.add_note(f"on rank {rank} of {world_size}")
        raise error
    return run.results
