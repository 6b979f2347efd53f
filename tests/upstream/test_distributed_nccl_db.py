"""PyTorch's tests of torch.distributed and DDP for NCCL on CUDA, in processes whose group is "tpu".

"cuda" and "nccl" are replaced by "tpu" in their text, as users would do it. WORLD_SIZE says with
how many processes, 2 by default.
"""

import os
from unittest import mock

import processes
import torch
from torch.testing._internal import common_distributed
from torch.testing._internal.common_distributed import DistTestCases

MODULE = "torch.testing._internal.distributed.distributed_test"
SIZE = int(os.environ.setdefault("WORLD_SIZE", "2"))
TO_TPU = {
    r"\"nccl\"": '"tpu"',
    r"Backend\.NCCL": "Backend.TPU",
    r"is_nccl_available": "is_available",
    r"torch\.cuda\.(?!amp)": "torch.tpu.",
    r"\.cuda\(": ".tpu(",
    r"\"cuda\b": '"tpu',
    # Images of test_ddp_uneven_inputs, whose size takes hours on a CPU.
    r"batch, batch, dim, dim": "batch, batch, 32, 32",
    r"1, 3, 1000, 1000": "1, 3, 32, 32",
}


def module_for_devices():
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


tests = module_for_devices()
processes.stay()


def teardown_module():
    processes.end_all()


class TestAsNccl(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()

    @classmethod
    def _run(cls, *args, **kwargs):
        tests.Barrier.barrier_id = 0
        torch.set_default_device(None)
        super()._run(*args, **kwargs)
