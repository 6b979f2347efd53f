"""PyTorch's binary functions on pairs of shapes, dtypes, numbers and places, against the CPU."""

import itertools

import torch
from harness import DeviceTest, both, on_device
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.testing._internal.common_methods_invocations import binary_ufuncs

# Python references are made of the others; jiterator is a compiler of CUDA's.
OPS = [op for op in binary_ufuncs if not op.name.startswith(("_refs", "jiterator"))]
DTYPES = (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float32, torch.complex64)
SHAPES = [((3, 1), (4,)), ((), (2, 3)), ((2, 3), ()), ((0, 3), (1,)), ((2, 1, 3), (5, 1)), ((), ())]


def operand(op, shape, dtype, right, **options):
    """Values that the function takes; whole numbers are small and not zero."""
    if dtype is torch.bool:
        limits = {}
    elif dtype.is_floating_point or dtype.is_complex:
        limits = {**(op.rhs_make_tensor_kwargs if right else op.lhs_make_tensor_kwargs)}
    else:
        limits = {"low": 1, "high": 5}
    return make_tensor(shape, device="cpu", dtype=dtype, **limits, **options)


def pair(op, shapes, dtypes, **options):
    torch.manual_seed(9)
    return [operand(op, shapes[i], dtypes[i], i == 1, **options) for i in (0, 1)]


class TestBinary(DeviceTest):
    @ops(OPS, dtypes=OpDTypes.any_one)
    def test_shapes(self, device, dtype, op):
        for shapes, gaps in itertools.product(SHAPES, (False, True)):
            inputs = pair(op, shapes, (dtype, dtype), noncontiguous=gaps)
            both(lambda s: op(*s), inputs, device)

    @ops(OPS, dtypes=OpDTypes.none)
    def test_promotion(self, device, op):
        """All pairs of dtypes, each for tensors with dims and for lone numbers of a tensor."""
        for dtypes in itertools.product(DTYPES, DTYPES):
            for shapes in (((2,), (2,)), ((2,), ()), ((), (2,))):
                both(lambda s: op(*s), pair(op, shapes, dtypes), device)

    @ops(OPS, dtypes=OpDTypes.none)
    def test_numbers(self, device, op):
        """Numbers of Python on either side, and a number in a tensor that stays on the CPU."""
        for dtype, number in itertools.product(DTYPES, (True, 2, 2.5, 1 + 2j)):
            x, y = pair(op, ((3,), ()), (dtype, dtype))
            both(lambda s, number=number: op(s, number), x, device)
            if op.supports_one_python_scalar:
                both(lambda s, number=number: op(number, s), x, device)
            both(lambda s, y=y: op(s, y), x, device)
            both(lambda s, y=y: op(y, s), x, device)

    @ops([op for op in OPS if op.supports_out], dtypes=OpDTypes.none)
    def test_out(self, device, op):
        """Results in tensors of every dtype, with gaps, of another shape, or the operand itself."""

        def write(s):
            return op(*s[0], out=s[1])

        for dtype in (torch.int64, torch.float32):
            inputs = pair(op, ((2, 3), (3,)), (dtype, dtype))
            for kind in DTYPES:
                both(write, [inputs, torch.zeros(2, 3, dtype=kind)], device)
                both(write, [inputs, torch.zeros(3, 4, dtype=kind)[:, ::2].t()], device)
                both(write, [inputs, torch.zeros(0, dtype=kind)], device)
            both(write, [inputs, inputs[0]], device)

    @ops([op for op in OPS if op.get_inplace()], dtypes=OpDTypes.none)
    def test_in_place(self, device, op):
        for dtypes in itertools.product(DTYPES, DTYPES):
            inputs = pair(op, ((2, 3), (3,)), dtypes)
            both(lambda s: op.get_inplace()(*s), inputs, device)
        x = pair(op, ((2, 3), (3,)), (torch.float32, torch.float32))[0]
        both(lambda s: op.get_inplace()(s, s), x, device)
        both(lambda s: op.get_inplace()(s[:, ::2], s[:, :2]), x, device)


on_device(TestBinary, globals())
