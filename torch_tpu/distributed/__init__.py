"""torch.distributed on "tpu": PyTorch's own functions, with the backend "tpu".

`torch.distributed.init_process_group("tpu")` makes a process group of it; so does a call that names
no backend, since it is the device's. One process owns a device.
"""

import atexit
import sys
from datetime import timedelta
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from torch_tpu import _C, _patches, _plugins
from torch_tpu.distributed import _worlds
from torch_tpu.distributed._fresh import fresh_store
from torch_tpu.distributed._worlds import simulate

__all__ = ["register", "simulate"]


def _make_carrier(
    store: Store, rank: int, size: int, timeout: timedelta, name: str
) -> tuple[Store, Any]:
    """A group's own part of this store, and what carries its collectives."""
    store = fresh_store(store, rank, size, timeout, name)
    return store, dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout)


def _create(options: Any, _pg_options: Any) -> dist.Backend:
    """A group for `torch.distributed`: options are its _DistributedBackendOptions."""
    ranks, timeout = (options.group_rank, options.group_size), options.timeout
    threads = _worlds.devices()
    if not threads and not dist.is_initialized():  # it is the default group
        if options.group_size > 1:
            _C.expect_index(*ranks)
        _enter_world(PrefixStore("world", options.store), *ranks, timeout)
    return _C.ProcessGroupTpu(
        options.store,
        *ranks,
        timeout,
        options.group_id,
        list(options.global_ranks_in_group),
        threads,
    )


def _enter_world(store: Store, rank: int, size: int, timeout: timedelta) -> None:
    """Tells the plugin of the other processes, which it may span; not that of the CPU."""
    if size == 1 or not _plugins.may_span(_C.plugin_name()):
        return _C.leave_world()
    store = fresh_store(store, rank, size, timeout, "default")
    return _C.enter_world(store, rank, size, timeout, _plugins.own_device(_C.plugin_name()))


def _tell_why() -> None:
    """At exit: tells the other ranks of the exception that ends this process, if one does.

    They would be told that it did not arrive, and not why. A store that does not answer is not
    waited for.
    """
    error = getattr(sys, "last_value", None)
    if error is None or not dist.is_initialized():
        return
    why = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:400]}"
    telling = Thread(target=_tell, args=[why], daemon=True)
    telling.start()
    telling.join(2)


def _tell(why: str) -> None:
    for group in list(dist.distributed_c10d._world.pg_map):
        if any(device.type == "tpu" for device in group._device_types):
            backend: Any = group._get_backend(torch.device("tpu"))
            backend.leave(why)


def register() -> None:
    """Makes the backend known to `torch.distributed`; again, it does nothing."""
    if "tpu" in dist.Backend.backend_list or not dist.is_gloo_available():
        return
    _C._bind_distributed(_make_carrier)
    _patches.groups_of_processes()
    atexit.register(_tell_why)
    dist.Backend.register_backend("tpu", _create, extended_api=True, devices=["tpu"])
