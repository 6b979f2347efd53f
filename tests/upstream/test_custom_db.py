"""PyTorch's databases of control flow, custom operators and autograd functions, by tracing."""

from functools import partial

import torch
from harness import LIMITS, DeviceTest, on_device
from torch.testing._internal.autograd_function_db import autograd_function_db
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.testing._internal.common_utils import parametrize
from torch.testing._internal.custom_op_db import custom_op_db
from torch.testing._internal.hop_db import hop_db
from torch.testing._internal.optests import aot_autograd_check, make_fx_check
from tracing_cases import MODES, check_compiled, check_traced

COUNT = 3
OPS = [*hop_db, *custom_op_db, *autograd_function_db]
# PyTorch's partitioner refuses this one, on the CPU too, once another backend has traced it.
COMPILED = [op for op in OPS if op.name != "invoke_quant"]
near = partial(torch.testing.assert_close, equal_nan=True, **LIMITS[torch.float32])


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
        def check(function, args, kwargs):
            options = {"assert_equals_fn": near, "check_gradients": "auto"}
            aot_autograd_check(function, args, kwargs, dynamic, **options)

        check_traced(self, op, device, check, COUNT)

    @parametrize("mode", MODES)
    @ops(OPS, dtypes=OpDTypes.none)
    def test_make_fx(self, device, op, mode):
        def check(function, args, kwargs):
            make_fx_check(function, args, kwargs, mode, assert_close=near)

        check_traced(self, op, device, check, COUNT)


on_device(TestCustom, globals())
