"""Processes that are the ranks of a group and run the tests' functions.

Starting them takes seconds, so tests share them; tests that end processes start their own.
"""

import contextlib
import multiprocessing
import os
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

BOTH = "cpu:gloo,tpu:tpu"
GLOO = {"TORCH_TPU_TRANSPORT": "gloo"}  # also between ranks that could share memory
_BUILD = Path(os.environ.get("TT_ABI_DUMP", "build/release/any")).resolve().parent
_ACCEL = {"TORCH_TPU_PLUGIN": str(_BUILD / "libtt_accel_plugin.so")}
SPANNING = _ACCEL | {"TT_ACCEL_SPANS": "1"}  # by the collectives of a plugin that spans processes
ON_HOST = _ACCEL | {"TORCH_TPU_HOST_FALLBACK": "silent"}  # it does not, nor calls functions of ours


def serve(pipe, rank, size, file, backend, timeout, environment):
    """One rank: calls the functions that come through the pipe, and answers with their results."""
    os.environ.update(environment)
    if os.environ.get("TT_RANKS"):  # to try all tests
        os.environ.update({"spanning": SPANNING, "host": ON_HOST}[os.environ["TT_RANKS"]])
    import torch.distributed as dist

    dist.init_process_group(
        backend,
        init_method=f"file://{file}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )
    while task := pipe.recv():
        function, args = task
        try:
            pipe.send((True, function(rank, size, *args)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    if dist.is_initialized():
        dist.destroy_process_group()


def serve_all(pipe, size, backend, timeout):
    """All ranks, as threads of one process, each with a virtual device."""
    from torch_tpu.distributed import simulate

    while task := pipe.recv():
        function, args = task
        options = {"backend": backend, "timeout": timedelta(seconds=timeout)}
        try:
            answer = True, simulate(call, size, (function, args), **options)
        except BaseException:
            answer = False, traceback.format_exc()
        pipe.send(answer)


def call(function, args):
    import torch.distributed as dist

    return function(dist.get_rank(), dist.get_world_size(), *args)


class World:
    """A process that simulates `size` ranks; as Ranks. A context manager."""

    def __init__(self, size=2, backend=BOTH, timeout=60):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        args = theirs, size, backend, timeout
        self.process = context.Process(target=serve_all, args=args, daemon=True)
        self.process.start()

    def run(self, function, *args, timeout=300):
        """The results of all ranks; fails with the first rank's error."""
        self._pipe.send((function, args))
        if not self._pipe.poll(timeout):
            raise TimeoutError(f"the ranks have not answered within {timeout} s")
        well, answer = self._pipe.recv()
        assert well, answer
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self.process.join(10)
        self.process.kill()


class Ranks:
    """`size` processes with a group of `backend`. A context manager."""

    def __init__(self, size=2, backend=BOTH, timeout=60, environment=lambda rank: {}):
        self._folder = tempfile.TemporaryDirectory(prefix="torchtpu-ranks-")
        file = os.path.join(self._folder.name, "store")
        context = multiprocessing.get_context("spawn")
        self.processes, self._pipes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            args = theirs, rank, size, file, backend, timeout, environment(rank)
            self.processes.append(context.Process(target=serve, args=args, daemon=True))
            self._pipes.append(ours)
        for process in self.processes:
            process.start()

    def start(self, function, *args):
        """Has all ranks call function(rank, size, *args), a module's, and does not wait."""
        for pipe in self._pipes:
            pipe.send((function, args))

    def result(self, rank, timeout=120):
        """Whether the function ended well on this rank, and its result, or else a traceback."""
        if not self._pipes[rank].poll(timeout):
            raise TimeoutError(f"rank {rank} has not answered within {timeout} s")
        return self._pipes[rank].recv()

    def run(self, function, *args):
        """The results of all ranks; fails with the first rank's error."""
        self.start(function, *args)
        answers = [self.result(rank) for rank in range(len(self._pipes))]
        for rank, (well, answer) in enumerate(answers):
            assert well, f"rank {rank}:\n{answer}"
        return [answer for _, answer in answers]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(10)
            process.kill()
        self._folder.cleanup()
