"""Processes that stay for many tests, in place of those that PyTorch's tests start for each.

A test of `MultiProcessTestCase` starts its ranks in `_start_processes`; importing PyTorch in each
of them takes longer than most tests. `stay()` has them taken from a pool instead. A process whose
test failed, or that was ended, is replaced.
"""

import contextlib
import importlib.util
import multiprocessing
import os
import re
import sys
import traceback
from types import ModuleType
from unittest import mock

import torch.distributed as dist
from torch.testing._internal.common_distributed import TEST_SKIPS, MultiProcessTestCase

SKIPS = {skip.exit_code for skip in TEST_SKIPS.values()}
SIZE = 4  # of the pool, at most: so many devices these processes say that their host has
_pool = {}


def serve(pipe):
    """A process of the pool, with its rank's device: does what it is told, and tells its end."""
    while job := pipe.recv():
        target, args, kwargs, environment = job
        os.environ.clear()
        os.environ.update(environment)
        dist.set_debug_level_from_env()  # a test before may have changed it
        code = 0
        try:
            target(*args, **kwargs)
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
        if dist.is_initialized():
            with contextlib.suppress(Exception):
                dist.destroy_process_group()
        pipe.send(code)


class Worker:
    def __init__(self, rank):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.own = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(SIZE)}
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        with mock.patch.dict(os.environ, self.own):  # importing the tests may use the device
            self.process.start()
        self.sound = True

    def end(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Process:
    """As `multiprocessing.Process`, to the tests' eyes."""

    def __init__(self, target, name, args, kwargs):
        self.name, self._job = name, (target, args, kwargs)
        self._exitcode = None

    def start(self):
        rank = self._job[1][0]
        worker = _pool.get(rank)
        if worker and not (worker.sound and worker.process.is_alive()):
            _pool.pop(rank).end()
        self._worker = _pool.get(rank) or _pool.setdefault(rank, Worker(rank))
        self.pid = self._worker.process.pid
        self._worker.sound = False  # until it has answered
        self._worker.pipe.send((*self._job, {**os.environ, **self._worker.own}))

    @property
    def exitcode(self):
        process = self._worker.process
        if self._exitcode is None and self._worker.pipe.poll():
            with contextlib.suppress(EOFError, OSError):
                self._exitcode = self._worker.pipe.recv()
                self._worker.sound = self._exitcode == 0 or self._exitcode in SKIPS
        if self._exitcode is None and not process.is_alive():
            self._exitcode = process.exitcode
        return self._exitcode

    def is_alive(self):
        return self.exitcode is None

    def join(self, timeout=None):
        with contextlib.suppress(OSError):
            self._worker.pipe.poll(timeout)

    def terminate(self):
        if self.exitcode is None:
            self._worker.process.terminate()

    kill = terminate


def stay():
    """From now on PyTorch's tests with several processes take these from the pool."""
    MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(Process)


def end_all():
    while _pool:
        _pool.popitem()[1].end()


def load(name, file, changes, prelude=""):
    """PyTorch's module of tests in `file` as a module `name`, with words of its text replaced.

    changes: patterns and what is put in their place.
    """
    if name in sys.modules:
        return sys.modules[name]
    with open(file) as opened:
        text = opened.read()
    for pattern, replacement in changes.items():
        text = re.sub(pattern, replacement, text)
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    exec(compile(prelude + text, file, "exec"), module.__dict__)
    return module


def file_of(name):
    return importlib.util.find_spec(name).origin
