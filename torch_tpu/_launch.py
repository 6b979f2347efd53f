"""`python -m torch_tpu launch`: the environment of a slice's processes, each of which owns a chip.

libtpu finds the other chips of a slice by what Google's machines say of themselves, for one process
a host. Processes that own one chip each have to be told: how many of them there are along each
axis, where all of them listen, which of them this one is, and which chip of its host is its own.
"""

import errno
import math
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

PORT = 8476  # libtpu's own
MASTER_PORT = 29500  # torchrun's own
AXES = 3  # of libtpu's bounds; what a topology does not have is 1
OF_TPUS = "TPU_", "CLOUD_TPU_", "ALLOW_MULTIPLE_LIBTPU_"


class Generation(NamedTuple):
    """axes: a topology's; host: chips of a host within a slice; alone: topologies of one host."""

    axes: int
    host: tuple[int, ...]
    alone: tuple[tuple[int, ...], ...]


GENERATIONS = {
    "v2": Generation(2, (2, 2), ((2, 2),)),
    "v3": Generation(2, (2, 2), ((2, 2),)),
    "v4": Generation(3, (2, 2, 1), ((2, 2, 1),)),
    "v5e": Generation(2, (2, 2), ((1, 1), (2, 2), (2, 4))),
    "v5p": Generation(3, (2, 2, 1), ((2, 2, 1),)),
    "v6e": Generation(2, (2, 2), ((1, 1), (2, 2), (2, 4))),
    "v7x": Generation(3, (2, 2, 1), ((2, 2, 1),)),
}


class Check(NamedTuple):
    """What was looked at, whether it is as it must be, and what was found."""

    check: str
    well: bool
    found: str


@dataclass(frozen=True)
class Slice:
    """Chips along each axis, in all and of a host; the hosts, in the order of their chips."""

    topology: str
    chips: tuple[int, ...]
    host: tuple[int, ...]
    hosts: tuple[str, ...]
    port: int = PORT
    master_port: int = MASTER_PORT
    named: bool = field(default=True)  # by the user

    @property
    def per_host(self) -> int:
        """Processes of a host."""
        return math.prod(self.host)

    @property
    def size(self) -> int:
        """Processes in all."""
        return len(self.hosts) * self.per_host

    def shared(self) -> dict[str, str]:
        """Returns what the environments of all processes have in common."""
        ports = range(self.port, self.port + self.per_host)
        return {
            "TPU_PROCESS_BOUNDS": ",".join(map(str, _padded(self.chips))),
            "TPU_CHIPS_PER_PROCESS_BOUNDS": ",".join(["1"] * AXES),
            "TPU_PROCESS_ADDRESSES": ",".join(
                f"{host}:{port}" for host in self.hosts for port in ports
            ),
            "TPU_WORKER_HOSTNAMES": ",".join(self.hosts),
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "MASTER_ADDR": self.hosts[0],
            "MASTER_PORT": str(self.master_port),
            "WORLD_SIZE": str(self.size),
            "LOCAL_WORLD_SIZE": str(self.per_host),
        }

    def own(self, rank: int) -> dict[str, str]:
        """Returns what the environment of this process has of its own."""
        worker, local = divmod(rank, self.per_host)
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "CLOUD_TPU_TASK_ID": str(rank),
            "TPU_WORKER_ID": str(worker),
            "TPU_VISIBLE_CHIPS": str(local),
            "TPU_PROCESS_PORT": str(self.port + local),
        }

    def environment(self, rank: int) -> dict[str, str]:
        """Returns the whole environment of a process."""
        return self.shared() | self.own(rank)


def read_slice(
    topology: str,
    hosts: Sequence[str] = (),
    port: int = PORT,
    master_port: int = MASTER_PORT,
) -> Slice:
    """Returns the slice that a text such as "v5e:4x4" means.

    hosts: their names or addresses, in the order of TPU_WORKER_ID; without them they are called
    host-0, host-1, ... Raises ValueError, saying what is expected, for what no slice has.
    """
    name, _, sizes = topology.partition(":")
    generation = GENERATIONS.get(name)
    if generation is None:
        raise ValueError(
            f"topology {topology!r}: unknown generation {name!r}; it is one of "
            f"{', '.join(GENERATIONS)}, as in v5e:4x4"
        )
    parts = sizes.split("x")
    if len(parts) != generation.axes or not all(one.isdecimal() and int(one) for one in parts):
        example = "x".join(["4"] * generation.axes)
        raise ValueError(
            f"topology {topology!r}: a slice of {name} has {generation.axes} axes, as in "
            f"{name}:{example}"
        )
    chips = tuple(int(one) for one in parts)
    alone = chips in generation.alone
    host = chips if alone else generation.host
    if any(size % part for size, part in zip(chips, host, strict=True)):
        raise ValueError(
            f"topology {topology!r}: a host of {name} has {_times(host)} chips, of which no slice "
            f"of {_times(chips)} can be made"
        )
    count = math.prod(chips) // math.prod(host)
    names = tuple(hosts) or tuple(f"host-{i}" for i in range(count))
    return Slice(topology, chips, host, names, port, master_port, bool(hosts))


def checks(of: Slice, rank: int | None = None) -> list[Check]:
    """Looks whether processes that are started like this would find one another.

    rank: the process that will be started here; its variables must not be set to something else.
    """
    wanted = math.prod(of.chips) // of.per_host
    shared = of.shared()
    bounds = [shared["TPU_PROCESS_BOUNDS"], shared["TPU_CHIPS_PER_PROCESS_BOUNDS"]]
    axes = [math.prod(pair) for pair in zip(*(_numbers(one) for one in bounds), strict=True)]
    addresses = shared["TPU_PROCESS_ADDRESSES"].split(",")
    last = of.port + of.per_host - 1
    return [
        Check(
            "the bounds multiply to the topology",
            tuple(axes) == _padded(of.chips),
            f"{bounds[0]} processes of {bounds[1]} chips, topology {_times(of.chips)}",
        ),
        Check(
            f"a host for each {_times(of.host)} chips",
            len(of.hosts) == wanted,
            f"{len(of.hosts)} hosts, {wanted} expected",
        ),
        Check(
            "an address for each process",
            len(addresses) == math.prod(_numbers(bounds[0])),
            f"{len(addresses)} addresses, {bounds[0]} processes",
        ),
        Check(
            "no address twice",
            len(set(addresses)) == len(addresses),
            ", ".join(sorted({one for one in addresses if addresses.count(one) > 1})) or "none is",
        ),
        Check(
            "ports that exist",
            of.port > 0 and last < 65536 and 0 < of.master_port < 65536,
            f"{of.port} to {last}, and {of.master_port}",
        ),
        _resolved(of),
        _free(of, rank),
        _unset(of, rank),
    ]


def is_under_torchrun() -> bool:
    """True for its processes, which it has told their ranks, and whose store it has itself."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _resolved(of: Slice) -> Check:
    title = "hosts have addresses"
    if not of.named:
        return Check(title, True, "not looked for: --hosts names none")
    unknown = []
    for host in of.hosts:
        try:
            socket.getaddrinfo(host, of.port)
        except (OSError, UnicodeError):
            unknown.append(host)
    return Check(title, not unknown, f"unknown: {', '.join(unknown)}" if unknown else "all do")


def _free(of: Slice, rank: int | None) -> Check:
    """Only of those hosts that are this one, and of a process its own; others may be there."""
    taken, here = [], 0
    wanted = [(host, port) for host in of.hosts for port in range(of.port, of.port + of.per_host)]
    if rank is not None:
        wanted = [wanted[rank]]
    if not rank and not is_under_torchrun():
        wanted.append((of.hosts[0], of.master_port))
    for host, port in wanted if of.named else ():
        state = _bind(host, port)
        here += state is not None
        if state is False:
            taken.append(f"{host}:{port}")
    found = f"taken: {', '.join(taken)}" if taken else f"{here} looked at: those of this host"
    return Check("ports are free", not taken, found)


def _bind(host: str, port: int) -> bool | None:
    """True: free. False: taken, or not ours to take. None: not of this host."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        return False if getattr(error, "errno", 0) in (errno.EADDRINUSE, errno.EACCES) else None
    return True


def _unset(of: Slice, rank: int | None) -> Check:
    expected = of.shared() if rank is None else of.environment(rank)
    others = [
        f"{name}={os.environ[name]}"
        for name, value in expected.items()
        if name.startswith(OF_TPUS) and os.environ.get(name, value) != value
    ]
    found = f"set to something else: {', '.join(others)}" if others else "nothing else is set"
    return Check("the environment here says the same", not others, found)


def _padded(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return sizes + (1,) * (AXES - len(sizes))


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _times(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
