"""PyTorch's operators through torch.compile, forward and backward, against the CPU's eager mode."""

from harness import DeviceTest, on_device
from op_cases import OPS
from torch.testing._internal.common_device_type import OpDTypes, ops
from tracing_cases import check_compiled

COUNT = 4


class TestCompiled(DeviceTest):
    @ops(OPS, dtypes=OpDTypes.none)
    def test_compiled(self, device, op):
        check_compiled(self, op, device, COUNT)


on_device(TestCompiled, globals())
