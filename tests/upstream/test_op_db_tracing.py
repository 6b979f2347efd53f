"""PyTorch's own checks of AOTAutograd and make_fx, over its operators: passed as by the CPU."""

from functools import partial

import torch
from harness import LIMITS, DeviceTest, on_device
from op_cases import OPS
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.testing._internal.common_utils import parametrize
from torch.testing._internal.optests import aot_autograd_check, make_fx_check
from tracing_cases import MODES, check_traced

COUNT = 2
near = partial(torch.testing.assert_close, equal_nan=True, **LIMITS[torch.float32])


class TestTracing(DeviceTest):
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


on_device(TestTracing, globals())
