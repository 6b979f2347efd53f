"""Methods, in-place forms, aliases, lazy views and strides of PyTorch's operators."""

import torch
from harness import DeviceTest, both, noncontiguous, on_device, same, steps, tensors
from op_cases import OPS, call, samples
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.utils._pytree import tree_map

METHODS = [op for op in OPS if op.get_method()]
IN_PLACE = [op for op in OPS if op.get_inplace()]
ALIASES = [op for op in OPS if op.aliases]
LAZY = [op for op in OPS if op.test_conjugated_samples]
NEGATED = [op for op in OPS if op.test_neg_view]
HALVES = [op for op in OPS if torch.complex32 in op.dtypes]


def with_strides(actual, expected, **limits):
    same(actual, expected, strides=True, **limits)


def shared(results, sample):
    """For each result, whether its memory is an argument's."""
    memory = {x.untyped_storage()._cdata for x in tensors(sample) if x.layout == torch.strided}
    return [
        x.layout == torch.strided and x.untyped_storage()._cdata in memory for x in tensors(results)
    ]


def lazily(change):
    """Replaces the tensors of a tree by views that are to be changed, with the same values."""

    def one(x):
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided:
            return x
        return change(x)

    return lambda tree: tree_map(one, tree)


conjugated = lazily(lambda x: x.conj().resolve_conj().conj() if x.is_complex() else x)
negated = lazily(lambda x: torch._neg_view(-x) if x.dtype is not torch.bool else x)


class TestForms(DeviceTest):
    def check(self, function, op, dtype, device, change=lambda x: x, compare=same):
        for sample, unique in samples(op, dtype):
            both(lambda s, u=unique: u(function(change(s))), sample, device, compare)

    @ops(METHODS, dtypes=OpDTypes.any_one)
    def test_methods(self, device, dtype, op):
        self.check(lambda s: call(op.get_method(), s), op, dtype, device)

    @ops(IN_PLACE, dtypes=OpDTypes.any_one)
    def test_in_place(self, device, dtype, op):
        self.check(lambda s: call(op.get_inplace(), s), op, dtype, device)

    @ops(IN_PLACE, dtypes=OpDTypes.any_one)
    def test_in_place_with_gaps(self, device, dtype, op):
        self.check(lambda s: call(op.get_inplace(), s), op, dtype, device, noncontiguous)

    @ops(ALIASES, dtypes=OpDTypes.any_one)
    def test_aliases(self, device, dtype, op):
        for alias in op.aliases:
            self.check(lambda s, alias=alias: call(alias.op, s), op, dtype, device)

    @ops(OPS, dtypes=OpDTypes.any_one)
    def test_with_gaps(self, device, dtype, op):
        self.check(lambda s: call(op, s), op, dtype, device, noncontiguous)

    @ops(OPS, dtypes=OpDTypes.any_one)
    def test_strides_and_memory(self, device, dtype, op):
        """Results lie in memory as the CPU's do, and share it with the same arguments."""

        def work(sample):
            results = call(op, sample)
            return results, shared(results, sample)

        for sample, _ in samples(op, dtype):
            both(work, sample, device, strides_alone)
            both(work, images_last(sample), device, strides_alone)

    @ops(LAZY, allowed_dtypes=(torch.complex64,))
    def test_conjugated(self, device, dtype, op):
        self.check(lambda s: call(op, s), op, dtype, device, conjugated)

    @ops(NEGATED, allowed_dtypes=(torch.float32,))
    def test_negated(self, device, dtype, op):
        self.check(lambda s: call(op, s), op, dtype, device, negated)

    @ops(HALVES, allowed_dtypes=(torch.complex32,))
    def test_complex_halves(self, device, dtype, op):
        self.check(lambda s: call(op, s), op, dtype, device)


def images_last(sample):
    """The sample with four-dim tensors in the channels-last format."""
    return tree_map(
        lambda x: (
            x.detach().contiguous(memory_format=torch.channels_last)
            if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.dim() == 4
            else x
        ),
        sample,
    )


def strides_alone(actual, expected):
    """Compares all but values, which other tests compare."""
    got, want = tensors(actual), tensors(expected)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape, a.layout) == (b.dtype, b.shape, b.layout), (a, b)
        assert steps(a) == steps(b), f"{a.stride()}, expected {b.stride()}"
    if isinstance(expected, tuple) and isinstance(expected[-1], list):
        assert actual[-1] == expected[-1], f"memory shared: {actual[-1]}, expected {expected[-1]}"


on_device(TestForms, globals())
