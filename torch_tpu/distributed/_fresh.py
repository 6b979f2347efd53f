"""A part of the store that no earlier attempt of the same ranks has written to.

torchrun's agent keeps its store when it restarts the ranks, and PyTorch gives a group the same name
in it again: who comes first finds the addresses of processes that are gone.
"""

import os
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore


def fresh_store(store: Any, rank: int, size: int, timeout: timedelta, group: str) -> Any:
    """Returns the store, or where it may be an old one, a part that the ranks have agreed on.

    All ranks of the group call it. Rank 0 makes up the part's name and tells each rank that says a
    word of its own, made up now, so that neither takes what the other one has said before a
    restart. Raises DistBackendError, which names ranks that do not come within the time-out.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or size == 1:
        return store
    until = time.monotonic() + timeout.total_seconds()
    agree = _lead if rank == 0 else _follow
    return PrefixStore(agree(store, rank, size, _waiting(until, timeout, group)), store)


def _waiting(until: float, timeout: timedelta, group: str) -> Callable[[list[int], float], None]:
    def wait(missing: list[int], pause: float) -> None:
        if time.monotonic() < until:
            time.sleep(pause)
            return
        raise dist.DistBackendError(
            f"process group {group}: not made, since these of its ranks did not come: "
            f"{', '.join(map(str, missing))} (the time-out is {timeout.total_seconds():g} s)"
        )

    return wait


def _lead(store: Any, _rank: int, size: int, wait: Callable[[list[int], float], None]) -> str:
    name, pause = uuid.uuid4().hex, 0.001
    missing = list(range(1, size))
    told: dict[int, str] = {}
    while True:
        for other in missing:
            if store.check([f"word/{other}"]):
                word = store.get(f"word/{other}").decode()
                if told.get(other) != word:
                    store.set(f"name/{word}", name)
                    told[other] = word
        missing = [other for other in missing if not store.check([f"here/{name}/{other}"])]
        if not missing:
            return name
        wait(missing, pause)
        pause = min(2 * pause, 0.05)


def _follow(store: Any, rank: int, _size: int, wait: Callable[[list[int], float], None]) -> str:
    word, pause = uuid.uuid4().hex, 0.001
    store.set(f"word/{rank}", word)
    while not store.check([f"name/{word}"]):
        wait([0], pause)
        pause = min(2 * pause, 0.05)
    name: str = store.get(f"name/{word}").decode()
    store.delete_key(f"name/{word}")
    store.set(f"here/{name}/{rank}", "")
    return name
