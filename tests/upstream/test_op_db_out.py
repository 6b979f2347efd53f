"""Results of PyTorch's operators in tensors that are given (out=), against the CPU."""

import torch
from harness import LIMITS, DeviceTest, both, on_device, same, tensors
from op_cases import OPS, call, samples
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.utils._pytree import tree_map

WITH_OUT = [op for op in OPS if op.supports_out]
FLOATS = (torch.float32,)


def with_strides(actual, expected, **limits):
    same(actual, expected, strides=True, **limits)


def nearly(actual, expected):
    same(actual, expected, **LIMITS[torch.float32])  # what single precision comes to


class TestOut(DeviceTest):
    def check(self, op, dtype, device, change, compare=same):
        """Writes to what `change` makes of tensors that would fit."""

        def work(unique, sample):
            results = call(op, sample)
            if not tensors(results):
                return results
            outs = tree_map(lambda x: change(x) if isinstance(x, torch.Tensor) else x, results)
            if not isinstance(outs, (torch.Tensor, tuple)):
                outs = tuple(outs)
            returned = call(op, sample, out=outs)
            return unique(tuple(tensors(outs))), len(tensors(returned))

        for sample, unique in samples(op, dtype):
            both(lambda s, u=unique: work(u, s), sample, device, compare)

    @ops(WITH_OUT, dtypes=OpDTypes.any_one)
    def test_that_fits(self, device, dtype, op):
        self.check(op, dtype, device, lambda x: torch.full_like(x, 1), with_strides)

    @ops(WITH_OUT, dtypes=OpDTypes.any_one)
    def test_of_no_size(self, device, dtype, op):
        self.check(op, dtype, device, lambda x: x.new_empty(0))

    @ops(WITH_OUT, dtypes=OpDTypes.any_one)
    def test_of_another_shape(self, device, dtype, op):
        self.check(op, dtype, device, lambda x: x.new_zeros((*x.shape, 2)))

    @ops(WITH_OUT, dtypes=OpDTypes.any_one)
    def test_with_gaps(self, device, dtype, op):
        def spread(x):
            return x.new_zeros((*reversed(x.shape), 2))[..., 1].permute(*reversed(range(x.dim())))

        self.check(op, dtype, device, spread, with_strides)

    @ops(WITH_OUT, dtypes=OpDTypes.any_one)
    def test_of_a_wider_dtype(self, device, dtype, op):
        def wider(x):
            return torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float64))

        self.check(op, dtype, device, wider, nearly)

    @ops(WITH_OUT, dtypes=OpDTypes.any_one)
    def test_of_a_narrower_dtype(self, device, dtype, op):
        self.check(op, dtype, device, lambda x: torch.zeros_like(x, dtype=torch.uint8))


on_device(TestOut, globals())
