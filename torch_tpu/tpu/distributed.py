"""`torch.tpu.distributed`: what `torch.distributed` has no function for."""

import json
import os
import pickle
from typing import Any

from torch_tpu import _C
from torch_tpu.tpu.modes import Setting, _Block

__all__ = ["dump_flight_record", "flight_record", "spmd_safe"]

_STATES = ("started", "completed", "failed")


class spmd_safe(_Block):  # noqa: N801 (a function, or used as `with spmd_safe():`)
    """Declares that all ranks issue the same operators, in the same order.

    Then collectives are recorded among the other operators of their stream: in Fused mode they are
    part of its programs. Otherwise each is a launch of its own, on a stream of its group, so that
    none waits for what another rank does not do, be that printing a loss or saving a checkpoint.

    `with spmd_safe():` declares it for a block, on its own thread and autograd's; a call without
    `with` for the process, from now on.
    """

    _of_process = 0

    def __init__(self) -> None:
        super().__init__(Setting.SPMD_SAFE, 1)
        self._is_used = True
        self._before = spmd_safe._of_process
        self._choose(1)

    @staticmethod
    def _choose(value: int) -> None:
        spmd_safe._of_process = value
        Setting.SPMD_SAFE.set(value)

    def __enter__(self) -> None:
        self._choose(self._before)
        super().__enter__()


def flight_record() -> dict[str, Any]:
    """Returns the last 2,000 collectives of this process, in the layout of PyTorch's own record.

    `entries`, the oldest first: `process_group`, `collective_seq_id` and `p2p_seq_id` (counted from
    0), `profiling_name`, sizes in elements and dtypes (bytes of what is only moved), `state`
    ("started", "completed", "failed"), times in nanoseconds since 1970, and in `frames` the line.
    `pg_config`: the groups, and the global ranks in them; of groups that were destroyed, their own.
    """
    groups, flights = _groups(), _C.flights()
    for _, (name, _, _, _, _, size, *_) in flights:
        gone = {"name": name, "desc": "destroyed", "ranks": str(list(range(size)))}
        groups.setdefault(name, gone)
    entries = [_entry(number, flight, groups) for number, flight in flights]
    return {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries}


def dump_flight_record(path: str | os.PathLike[str]) -> None:
    """Writes `flight_record()` to a file: as JSON where the name ends so, else pickled.

    `torchfrtrace`, PyTorch's analyser, reads a folder of the latter, one of each rank, whose names
    end with the rank.
    """
    record = flight_record()
    data = json.dumps(record).encode() if str(path).endswith(".json") else pickle.dumps(record)
    with open(path, "wb") as file:
        file.write(data)


def _dump_where_asked(prefix: str) -> None:
    """What a failed collective does: its transport calls this."""
    import torch.distributed as dist

    for ending in ("", ".json"):
        dump_flight_record(f"{prefix}{dist.get_rank()}{ending}")


def _groups() -> dict[str, dict[str, str]]:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    if not dist.is_initialized():
        return {}
    return {
        name: {
            "name": name,
            "desc": group.group_desc,
            "ranks": str(dist.get_process_group_ranks(group)),
        }
        for group, name in distributed_c10d._world.pg_names.items()
    }


def _entry(number: int, flight: Any, groups: dict[str, dict[str, str]]) -> dict[str, Any]:
    group, state, kind, dtype, rank, _, root, sequence, x, y, started, ended, line = flight
    message = kind in ("send", "recv")
    way = {"send": f" {rank}->{root}", "recv": f" {rank}<-{root}"}.get(kind, "")
    place, _, function = line.partition(" in ")
    file, _, row = place.rpartition(":")
    return {
        "record_id": number,
        "process_group": (group, groups[group]["desc"]),
        "collective_seq_id": 0 if message else sequence,
        "p2p_seq_id": sequence if message else 0,
        "op_id": number,
        "profiling_name": f"gloo:{kind}{way}",
        "input_sizes": [[x or y]],
        "output_sizes": [[y or x]],
        "input_dtypes": [dtype],
        "output_dtypes": [dtype],
        "state": _STATES[state],
        "time_created_ns": started,
        "time_discovered_started_ns": started,
        "time_discovered_completed_ns": ended or None,
        "retired": state != 0,
        "timeout_ms": 0,
        "is_p2p": message,
        "frames": [{"name": function, "filename": file, "line": int(row)}] if file else [],
    }
