"""PyTorch's tests of torch.distributed and DDP, in processes whose group is "tpu".

These are those for Gloo, whose tensors are made on the device; with TT_UPSTREAM_BACKEND=gloo they
run as they are. WORLD_SIZE says with how many processes, 2 by default.
"""

import functools
import importlib
import os
from unittest import mock

import processes
import torch
import torch.distributed as dist

CHOSEN = os.environ.get("TT_UPSTREAM_BACKEND", "tpu")
CHOSEN_GROUP = "cpu:gloo,tpu:tpu" if CHOSEN == "tpu" else CHOSEN  # some tensors are the host's
DEVICE = "tpu" if CHOSEN == "tpu" else "cpu"
GROUPS = dict.fromkeys(("test_get_backend", "test_ddp_logging_data_cpu"), CHOSEN)

os.environ.setdefault("WORLD_SIZE", "2")
os.environ["BACKEND"] = "gloo"
tests = importlib.import_module("torch.testing._internal.distributed.distributed_test")
processes.stay()


def teardown_module():
    processes.end_all()


def begin(chosen, *, backend, start=dist.init_process_group, **options):
    start(backend=chosen, **options)


class TestDistributed(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def _test_sparse_all_reduce_sum(self, fn):
        """What is expected is the host's sum, as in the test's variant for CUDA."""
        with torch.device("cpu"):
            super()._test_sparse_all_reduce_sum(lambda one: fn(one).to(DEVICE))

    @classmethod
    def _run(cls, rank, test_name, *args, **kwargs):
        tests.Barrier.barrier_id = 0
        if CHOSEN == "tpu":
            torch.set_default_device("tpu")
        name = "tpu" if CHOSEN == "tpu" and test_name == "test_get_backend" else "gloo"
        start = functools.partial(begin, GROUPS.get(test_name, CHOSEN_GROUP))
        with (
            mock.patch.object(dist, "init_process_group", start),
            mock.patch.object(tests, "BACKEND", name),
        ):
            super()._run(rank, test_name, *args, **kwargs)
