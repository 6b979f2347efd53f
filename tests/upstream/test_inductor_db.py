"""PyTorch's own tests of small compiled functions, from a checkout of PyTorch.

TT_PYTORCH_TESTS names its folder `test`, which no wheel has; without it there is nothing to run.
Each function of `CommonTemplate` in inductor/test_torchinductor.py is compiled for the device, and
compared with itself uncompiled there.
"""

import importlib
import os
import sys
import unittest
import unittest.mock
from pathlib import Path

import pytest
import torch
from torch._dynamo.device_interface import TpuInterface

from torch_tpu.compiler import backend

FOLDER = os.environ.get("TT_PYTORCH_TESTS")
if not FOLDER:
    pytest.skip("TT_PYTORCH_TESTS names no folder", allow_module_level=True)
sys.path.insert(0, str(Path(FOLDER) / "inductor"))

upstream = importlib.import_module("test_torchinductor")

OF_INDUCTOR = (
    "run_and_get_code",
    "run_and_get_cpp_code",
    "run_and_get_kernels",
    "run_and_get_triton_code",
    "run_fw_bw_and_get_code",
    "assertGeneratedKernelCountEqual",
    "_run_and_assert_no_indirect_indexing",
    "_run_and_get_stripped_kernels",
    "compile_fx_inner",
)
"""What asks for code that Inductor made: a test that calls one of them is skipped."""


def common(self, model, inputs, kwargs=None, *, check_lowp=True, copy_to_gpu=True, **limits):
    """Compiled, a function does as it does by operator: on its operands, and on such of half."""
    if copy_to_gpu:
        inputs = [upstream.clone_preserve_strides_offset(x, device="tpu") for x in inputs]
    if isinstance(model, torch.nn.Module):
        model = model.to("tpu")
    upstream.check_model(self, model, inputs, kwargs, **limits | {"reference_in_float": False})
    if not check_lowp:
        return
    halves = [halved(x) for x in inputs]
    if isinstance(model, torch.nn.Module):
        model = model.to(torch.half)
    upstream.check_model(self, model, halves, kwargs, **limits | {"reference_in_float": False})


def halved(x):
    if not isinstance(x, torch.Tensor) or x.dtype != torch.float:
        return x
    return torch.empty_strided(x.size(), x.stride(), dtype=torch.half, device="tpu").copy_(x)


def of_inductor(*_, **__):
    raise unittest.SkipTest("it reads the code that Inductor generates")


def compiled(function=None, *, compile=torch.compile, **how):
    """torch.compile, with our backend where the test names Inductor or gives it options."""
    ours = how.get("backend") == "inductor" or "options" in how
    return compile(function, **(how | {"backend": "tpu", "options": None} if ours else how))


class TestCommonTemplate(upstream.TestCase):
    device = "tpu"
    common = common

    def setUp(self):
        super().setUp()
        patches = {name: of_inductor for name in OF_INDUCTOR if hasattr(upstream, name)}
        everywhere = unittest.mock.patch.multiple(upstream, compile_fx=backend.tpu, **patches)
        for patch in (
            everywhere,
            unittest.mock.patch.object(torch, "compile", compiled),
            unittest.mock.patch.object(TpuInterface, "is_dtype_supported", lambda *_: True),
        ):
            self.enterContext(patch)


upstream.copy_tests(upstream.CommonTemplate, TestCommonTemplate, "tpu")
