"""PyTorch's operators on lists of tensors (the foreach databases), against the CPU."""

import torch
from harness import DeviceTest, both, gradients, move, on_device, tensors
from torch.testing._internal.common_device_type import ops
from torch.testing._internal.common_methods_invocations import (
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
)

LISTS = [
    *foreach_unary_op_db,
    *foreach_binary_op_db,
    *foreach_pointwise_op_db,
    *foreach_reduce_op_db,
    *foreach_other_op_db,
]
IN_PLACE = [op for op in LISTS if op.inplace_variant is not None]
DIFFERENTIABLE = [op for op in LISTS if op.supports_autograd]
DTYPES = (torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.complex64)
FLOATS = (torch.float32, torch.complex64)
COUNT = 4  # the database has lists of scalars with four kinds of them


def samples(op, dtype, device="cpu", **options):
    """Yields [list, args, kwargs] with lists of a few tensors; some are empty off the CPU."""
    torch.manual_seed(5)
    for sample in op.sample_inputs(device, dtype, num_input_tensors=[COUNT], **options):
        yield [sample.input, list(sample.args), sample.kwargs]


def in_place(op, x, args, kwargs):
    op.inplace_variant(x, *args, **kwargs)
    return x


class TestLists(DeviceTest):
    @ops(LISTS, allowed_dtypes=DTYPES)
    def test_functions(self, device, dtype, op):
        for sample in samples(op, dtype, allow_higher_dtype_scalars=True):
            both(lambda s: op(s[0], *s[1], **s[2]), sample, device)

    @ops(IN_PLACE, allowed_dtypes=DTYPES)
    def test_in_place(self, device, dtype, op):
        for sample in samples(op, dtype, allow_higher_dtype_scalars=True):
            both(lambda s: in_place(op, *s), sample, device)

    @ops(LISTS, allowed_dtypes=FLOATS)
    def test_gaps_and_empty_tensors(self, device, dtype, op):
        for sample in samples(op, dtype, device, noncontiguous=True):
            both(lambda s: op(s[0], *s[1], **s[2]), move(sample, "cpu"), device)
            if op in IN_PLACE:
                both(lambda s: in_place(op, *s), move(sample, "cpu"), device)

    @ops(LISTS, allowed_dtypes=FLOATS)
    def test_out(self, device, dtype, op):
        packet = getattr(torch.ops.aten, op.name, None)

        def work(sample):
            x, args, kwargs = sample
            outs = [torch.empty_like(y) for y in op(x, *args, **kwargs)]
            packet(x, *args, **kwargs, out=outs)
            return outs

        if packet is None or not any("out" in name for name in packet.overloads()):
            self.skipTest("has no out= form")
        for sample in samples(op, dtype):
            both(work, sample, device)

    @ops(LISTS, allowed_dtypes=FLOATS)
    def test_one_by_one(self, device, dtype, op):
        """Lists of one tensor each, which PyTorch's own code for any device serves as well."""

        def work(sample):
            x, args, kwargs = sample
            results = []
            for k in range(len(x)):
                parts = [[a[k]] if isinstance(a, (list, tuple)) else a for a in args]
                results.append(op([x[k]], *parts, **kwargs) or [x[k]])
            return results

        for sample in samples(op, dtype):
            both(work, sample, device)

    @ops(IN_PLACE, allowed_dtypes=(torch.float32,))
    def test_aliases(self, device, dtype, op):
        """A tensor twice in a list, and lists that are other arguments, too."""
        for x, args, kwargs in samples(op, dtype):
            twice = [x[0], x[1], x[0]]
            short = [a[:3] if isinstance(a, list) else a for a in args]
            if all(not isinstance(a, list) or not tensors(a) for a in short):
                both(lambda s: in_place(op, *s), [twice, short, kwargs], device)
            itself = [x if tensors(a) and isinstance(a, list) else a for a in args]
            both(lambda s: in_place(op, *s), [x, itself, kwargs], device)

    @ops(LISTS, allowed_dtypes=(torch.float32,))
    def test_mixed_lists(self, device, dtype, op):
        """Dtypes, numbers of dims and shapes that differ from tensor to tensor."""

        def mix(x, k):
            kinds = [torch.float32, torch.float64, torch.bfloat16, torch.float32, torch.int32]
            shapes = [(), (3,), (2, 1, 2), (1, 4), (2,)]
            value = torch.linspace(1 + k, 3 + k, 4).repeat(3)
            return [
                value[: torch.Size(shape).numel()].reshape(shape).to(kind)
                for kind, shape in zip(kinds, shapes, strict=True)
            ]

        for x, args, kwargs in samples(op, dtype):
            lists = [
                mix(a, k) if isinstance(a, list) and tensors(a) else a for k, a in enumerate(args)
            ]
            both(lambda s: op(s[0], *s[1], **s[2]), [mix(x, -1), lists, kwargs], device)
            if op in IN_PLACE:
                both(lambda s: in_place(op, *s), [mix(x, -1), lists, kwargs], device)

    @ops(DIFFERENTIABLE, allowed_dtypes=FLOATS)
    def test_gradients(self, device, dtype, op):
        def functional(sample):
            x, args, kwargs = sample
            outputs = op(x, *args, **kwargs)
            return outputs, gradients(outputs, sample)

        def written(sample):
            x, args, kwargs = sample
            target = [one.clone() for one in x]
            op.inplace_variant(target, *args, **kwargs)
            return target, gradients(target, sample)

        for sample in samples(op, dtype, requires_grad=True):
            both(functional, sample, device)
            if op in IN_PLACE:
                both(written, sample, device)


on_device(TestLists, globals())
