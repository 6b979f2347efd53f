"""torch.distributed on "tpu": PyTorch's own functions, with the backend "tpu".

`torch.distributed.init_process_group("tpu")` makes a process group of it; so does a call that names
no backend, since it is the device's. One process owns a device.
"""

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from torch_tpu import _C, _patches
from torch_tpu.distributed import _worlds
from torch_tpu.distributed._worlds import simulate

__all__ = ["register", "simulate"]


def _make_carrier(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """What carries the collectives of a group with this store."""
    return dist.ProcessGroupGloo(PrefixStore("gloo", store), rank, size, timeout)


def _create(options: Any, _pg_options: Any) -> dist.Backend:
    """A group for `torch.distributed`: options are its _DistributedBackendOptions."""
    return _C.ProcessGroupTpu(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        list(options.global_ranks_in_group),
        _worlds.devices(),
    )


def register() -> None:
    """Makes the backend known to `torch.distributed`; again, it does nothing."""
    if "tpu" in dist.Backend.backend_list or not dist.is_gloo_available():
        return
    _C._bind_distributed(_make_carrier)
    _patches.groups_of_processes()
    dist.Backend.register_backend("tpu", _create, extended_api=True, devices=["tpu"])
