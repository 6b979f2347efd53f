"""Processes of a script as ranks, and network namespaces that stand for hosts.

usage: python hosts.py [--count N] [--rate 400mbit] SCRIPT [ARGUMENT ...]
Runs the script on each of so many hosts at once, as ranks of a group; of host 0 it prints what the
script prints.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
TRAINEE = str(HERE / "trainee.py")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Started:
    """Processes, each with its output in a file. A context manager, which leaves none behind."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="torchtpu-hosts-")
        self.processes, self._files = [], []

    def start(self, arguments, environment=None, prefix=()):
        path = Path(self.folder.name, str(len(self.processes)))
        with open(path, "wb") as file:
            process = subprocess.Popen(
                [*prefix, sys.executable, *map(str, arguments)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | (environment or {}),
                start_new_session=True,
            )
        self.processes.append(process)
        self._files.append(path)

    def text(self, which):
        return self._files[which].read_text(errors="replace")

    def await_text(self, which, words, within=45):
        end = time.monotonic() + within
        while words not in self.text(which):
            assert time.monotonic() < end, f"no {words!r} of process {which}:\n{self.text(which)}"
            time.sleep(0.05)

    def end(self, which, within=45):
        """The exit status and the output of a process, which ends by itself."""
        try:
            status = self.processes[which].wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"process {which} does not end:\n{self.text(which)}") from None
        return status, self.text(which)

    def left(self):
        """The processes that still live: those that were started, and those that they started."""
        sessions = {process.pid for process in self.processes}
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) in sessions and fields[0] != "Z":
                    found.append(int(stat.parent.name))
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.left():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait(10)
        self.folder.cleanup()


def ranks_of(port, size, address="127.0.0.1"):
    """The environments of a group's processes, as launchers set them."""
    return [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
        }
        for rank in range(size)
    ]


class Trainees(Started):
    """`size` processes of trainee.py."""

    def __init__(self, folder, *options, size=2):
        super().__init__()
        for environment in ranks_of(free_port(), size):
            self.start([TRAINEE, folder, *options], environment)


def run_ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


def can_make_hosts():
    """Whether iproute2 is there, and the right to make namespaces with it."""
    name = f"tt{os.getpid()}"
    with contextlib.suppress(OSError):
        made = run_ip("netns", "add", name, check=False).returncode == 0
        if made:
            linked = run_ip("-n", name, "link", "set", "lo", "up", check=False).returncode == 0
            run_ip("netns", "del", name, check=False)
            return linked
    return False


class Hosts:
    """`count` network namespaces that see one another, as hosts do. A context manager."""

    INTERFACE = "net0"

    def __init__(self, count=2, rate=""):
        """rate: of what each host sends, as `tc` has it."""
        self._rate = rate
        self._switch = f"tt{os.getpid()}s"
        self._names = [f"tt{os.getpid()}h{i}" for i in range(count)]

    def address(self, host):
        return f"10.213.77.{host + 1}"

    def prefix(self, host):
        """What a command begins with, to run on a host."""
        return ["ip", "netns", "exec", self._names[host]]

    def environment(self, host):
        return {"GLOO_SOCKET_IFNAME": self.INTERFACE, "TT_HOST": str(host)}

    def set_cable(self, host, up):
        """Cuts a host off from the others, or not any more."""
        run_ip("-n", self._switch, "link", "set", f"port{host}", "up" if up else "down")

    def __enter__(self):
        run_ip("netns", "add", self._switch)
        run_ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        run_ip("-n", self._switch, "link", "set", "bridge", "up")
        for host, name in enumerate(self._names):
            run_ip("netns", "add", name)
            peer = ["peer", "name", self.INTERFACE, "netns", name]
            run_ip("-n", self._switch, "link", "add", f"port{host}", "type", "veth", *peer)
            run_ip("-n", self._switch, "link", "set", f"port{host}", "master", "bridge", "up")
            run_ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", self.INTERFACE)
            run_ip("-n", name, "link", "set", self.INTERFACE, "up")
            run_ip("-n", name, "link", "set", "lo", "up")
            if self._rate:
                bucket = "tbf", "rate", self._rate, "burst", "64kb", "latency", "50ms"
                limit = ["tc", "qdisc", "add", "dev", self.INTERFACE, "root", *bucket]
                subprocess.run([*self.prefix(host), *limit], check=True)
        return self

    def __exit__(self, *_):
        for name in (*self._names, self._switch):
            run_ip("netns", "del", name, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--rate", default="", help="of what each host sends")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    with Hosts(args.count, args.rate) as hosts, Started() as started:
        ranks = ranks_of(29400, args.count, hosts.address(0))
        for host, environment in enumerate(ranks):
            started.start(args.script, environment | hosts.environment(host), hosts.prefix(host))
        ends = [started.end(host, 600) for host in range(args.count)]
    print(ends[0][1], end="")
    raise SystemExit(max(abs(status) for status, _ in ends))


if __name__ == "__main__":
    main()
