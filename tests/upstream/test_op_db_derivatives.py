"""Derivatives of PyTorch's operators in other ways than one backward pass, against the CPU."""

import torch
import torch.autograd.forward_ad as fwd
from harness import DeviceTest, both, gradients, on_device, tensors
from op_cases import OPS, samples
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.utils._pytree import tree_map

DOUBLE = (torch.float64,)
FORWARD = [op for op in OPS if op.supports_forward_ad]
TWICE = [op for op in OPS if op.supports_gradgrad]
BATCHED = [op for op in OPS if op.check_batched_grad and op.supports_autograd]


def apply(op, unique, sample):
    x, args, kwargs = sample
    return unique(op.gradcheck_wrapper(op.get_op(), x, *args, **kwargs))


def direction(x):
    flat = torch.linspace(-1, 1, x.numel(), dtype=x.real.dtype).reshape(x.shape)
    return flat.to(x.dtype).to(x.device)


def dual(tree):
    return tree_map(
        lambda x: (
            fwd.make_dual(x, direction(x)) if isinstance(x, torch.Tensor) and x.requires_grad else x
        ),
        tree,
    )


class TestDerivatives(DeviceTest):
    def check(self, op, dtype, device, work, count=1):
        for sample, unique in samples(op, dtype, count, requires_grad=True):
            both(lambda s, u=unique: work(u, s), sample, device)

    @ops(FORWARD, allowed_dtypes=DOUBLE)
    def test_forward(self, device, dtype, op):
        def work(unique, sample):
            with fwd.dual_level():
                results = [fwd.unpack_dual(x) for x in tensors(apply(op, unique, dual(sample)))]
                return [[x.primal, x.tangent] for x in results]

        self.check(op, dtype, device, work)

    @ops([op for op in FORWARD if op.get_inplace()], allowed_dtypes=DOUBLE)
    def test_forward_in_place(self, device, dtype, op):
        def work(unique, sample):
            with fwd.dual_level():
                x, args, kwargs = dual(sample)
                x = x.clone() if isinstance(x, torch.Tensor) else [y.clone() for y in x]
                result = fwd.unpack_dual(tensors(op.get_inplace()(x, *args, **kwargs))[0])
                return [result.primal, result.tangent]

        self.check(op, dtype, device, work)

    @ops(TWICE, allowed_dtypes=DOUBLE)
    def test_twice(self, device, dtype, op):
        def work(unique, sample):
            once = gradients(apply(op, unique, sample), sample, create_graph=True)
            return once, gradients(once, sample)

        self.check(op, dtype, device, work)

    @ops([op for op in TWICE if op.supports_fwgrad_bwgrad], allowed_dtypes=DOUBLE)
    def test_forward_over_backward(self, device, dtype, op):
        def work(unique, sample):
            with fwd.dual_level():
                made = dual(sample)
                once = gradients(apply(op, unique, made), made, create_graph=True)
                return [fwd.unpack_dual(x).tangent for x in tensors(once)]

        self.check(op, dtype, device, work)

    @ops(BATCHED, allowed_dtypes=DOUBLE)
    def test_batched(self, device, dtype, op):
        """Gradients for several weights of the outputs at once."""

        def work(unique, sample):
            outputs = [x for x in tensors(apply(op, unique, sample)) if x.requires_grad]
            leaves = [x for x in tensors(sample) if x.requires_grad]
            if not outputs or not leaves:
                return []
            weights = [torch.stack([direction(x), direction(x) + 1]) for x in outputs]
            return torch.autograd.grad(
                outputs, leaves, weights, is_grads_batched=True, allow_unused=True
            )

        self.check(op, dtype, device, work)

    @ops([op for op in OPS if op.supports_autograd], dtypes=OpDTypes.none)
    def test_complex(self, device, op):
        """One backward pass in complex numbers."""
        if torch.complex128 not in op.supported_backward_dtypes("cpu"):
            self.skipTest("no gradients of complex numbers")

        def work(unique, sample):
            outputs = apply(op, unique, sample)
            return outputs, gradients(outputs, sample)

        self.check(op, torch.complex128, device, work)


on_device(TestDerivatives, globals())
