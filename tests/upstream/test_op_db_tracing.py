"""PyTorch's own checks of AOTAutograd and make_fx, over its operators: passed as by the CPU."""

from harness import DeviceTest, on_device
from op_cases import OPS
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.testing._internal.common_utils import parametrize
from tracing_cases import MODES, check_aot_autograd, check_make_fx

COUNT = 2


class TestTracing(DeviceTest):
    @parametrize("dynamic", [False, True])
    @ops(OPS, dtypes=OpDTypes.none)
    def test_aot_autograd(self, device, op, dynamic):
        check_aot_autograd(self, op, device, dynamic, COUNT)

    @parametrize("mode", MODES)
    @ops(OPS, dtypes=OpDTypes.none)
    def test_make_fx(self, device, op, mode):
        check_make_fx(self, op, device, mode, COUNT)


on_device(TestTracing, globals())
