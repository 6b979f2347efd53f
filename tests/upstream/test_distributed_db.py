"""PyTorch's tests of torch.distributed and DDP, in processes whose group is "tpu".

They are written for Gloo on the host and for NCCL on CUDA. `TestAsGloo` has the first, whose
tensors are made on the device; with TT_UPSTREAM_BACKEND=gloo they run as they are. `TestAsNccl` has
the second, with "cuda" and "nccl" replaced by "tpu", as users would do it. WORLD_SIZE says with how
many processes, 2 by default.
"""

import functools
import importlib
import os
from unittest import mock

import processes
import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed
from torch.testing._internal.common_distributed import DistTestCases

CHOSEN = os.environ.get("TT_UPSTREAM_BACKEND", "tpu")
CHOSEN_GROUP = "cpu:gloo,tpu:tpu" if CHOSEN == "tpu" else CHOSEN  # some tensors are the host's
GROUPS = dict.fromkeys(("test_get_backend", "test_ddp_logging_data_cpu"), CHOSEN)
SIZE = int(os.environ.setdefault("WORLD_SIZE", "2"))
MODULE = "torch.testing._internal.distributed.distributed_test"
TO_TPU = {
    r"\"nccl\"": '"tpu"',
    r"Backend\.NCCL": "Backend.TPU",
    r"is_nccl_available": "is_available",
    r"torch\.cuda\.(?!amp)": "torch.tpu.",
    r"\.cuda\(": ".tpu(",
    r"\"cuda\b": '"tpu',
}

os.environ["BACKEND"] = "gloo"
as_gloo = importlib.import_module(MODULE)


def tests_for_nccl():
    """The module for this device, whose tests find as many of it as there are processes."""

    def if_so_many(count, **_):
        return common_distributed.skip_but_pass_in_sandcastle_if(
            count > SIZE, f"Need at least {count} devices"
        )

    found = {
        "skip_if_no_gpu": lambda test: test,
        "skip_if_lt_x_gpu": if_so_many,
        "init_multigpu_helper": lambda size, _: {rank: [rank] for rank in range(size)},
    }
    features = DistTestCases.backend_feature
    features["tpu"] = features["cuda"]
    for feature in ("gpu", "cuda", "ddp", "subgroup"):
        features[feature].add("tpu")
    for lacking in DistTestCases.skip_collective.values():
        lacking.update({"tpu"} if "nccl" in lacking else ())
    os.environ["BACKEND"] = "tpu"
    with mock.patch.multiple(common_distributed, **found):
        return processes.load("distributed_test_as_nccl", processes.file_of(MODULE), TO_TPU)


as_nccl = tests_for_nccl()
processes.stay()


def teardown_module():
    processes.end_all()


def begin(chosen, *, backend, start=dist.init_process_group, **options):
    start(backend=chosen, **options)


class TestAsGloo(as_gloo.TestDistBackend, as_gloo.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    @classmethod
    def _run(cls, rank, test_name, *args, **kwargs):
        as_gloo.Barrier.barrier_id = 0
        if CHOSEN == "tpu":
            torch.set_default_device("tpu")
        name = "tpu" if CHOSEN == "tpu" and test_name == "test_get_backend" else "gloo"
        start = functools.partial(begin, GROUPS.get(test_name, CHOSEN_GROUP))
        with (
            mock.patch.object(dist, "init_process_group", start),
            mock.patch.object(as_gloo, "BACKEND", name),
        ):
            super()._run(rank, test_name, *args, **kwargs)


if CHOSEN == "tpu":

    class TestAsNccl(as_nccl.TestDistBackend, as_nccl.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

        @classmethod
        def _run(cls, *args, **kwargs):
            as_nccl.Barrier.barrier_id = 0
            torch.set_default_device(None)
            super()._run(*args, **kwargs)
