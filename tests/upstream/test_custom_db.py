"""PyTorch's databases of control flow, custom operators and autograd functions, by tracing."""

import torch
from harness import DeviceTest, on_device
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.testing._internal.common_utils import parametrize
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db
from tracing_cases import MODES, check_aot_autograd, check_compiled, check_make_fx

COUNT = 3
OPS = [*hop_db, *custom_op_db, *autograd_function_db]
# PyTorch's partitioner refuses this one, on the CPU too, once another backend has traced it.
COMPILED = [op for op in OPS if op.name != "invoke_quant"]


class TestCustom(DeviceTest):
    def setUp(self):
        super().setUp()
        torch.tpu.host_fallback = "silent"  # one custom operator has a kernel for the CPU alone

    @ops(COMPILED, dtypes=OpDTypes.none)
    def test_compiled(self, device, op):
        check_compiled(self, op, device, COUNT)

    @parametrize("dynamic", [False, True])
    @ops(OPS, dtypes=OpDTypes.none)
    def test_aot_autograd(self, device, op, dynamic):
        check_aot_autograd(self, op, device, dynamic, COUNT)

    @parametrize("mode", MODES)
    @ops(OPS, dtypes=OpDTypes.none)
    def test_make_fx(self, device, op, mode):
        check_make_fx(self, op, device, mode, COUNT)


on_device(TestCustom, globals())
