"""PyTorch's operators through torch.compile, forward and backward, against the CPU's eager mode."""

import torch
from harness import DeviceTest, both, gradients, on_device, tensors
from op_cases import OPS, call, samples
from torch.testing._internal.common_device_type import OpDTypes, ops

COUNT = 4


class TestCompiled(DeviceTest):
    @ops(OPS, dtypes=OpDTypes.none)
    def test_compiled(self, device, op):
        dtypes = op.supported_dtypes("cpu")
        if not dtypes:
            self.skipTest("the CPU has it for no dtype")
        dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)
        derives = dtype in op.supported_backward_dtypes("cpu")
        torch._dynamo.reset()
        compiled = torch.compile(lambda sample: call(op, sample))
        for sample, unique in samples(op, dtype, COUNT, requires_grad=derives):

            def work(sample, unique=unique):
                on_device = any(x.device.type == "tpu" for x in tensors(sample))
                result = unique(compiled(sample) if on_device else call(op, sample))
                return result, gradients(result, sample) if derives else ()

            both(work, sample, device)


on_device(TestCompiled, globals())
