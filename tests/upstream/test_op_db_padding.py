"""PyTorch's operators in graphs whose sizes all vary, with poisoned padding, against the CPU."""

import math
from unittest import mock

import pytest
import torch
from harness import EXCEPTIONS, DeviceTest, on_device, same, tensors
from op_cases import OPS, call, samples
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.testing._internal.common_device_type import OpDTypes, ops
from torch.utils._pytree import tree_flatten, tree_map

from torch_tpu.compiler import bucketed, buckets, functions

COUNT = 6
# Whose results on the CPU have other sizes than PyTorch's meta kernel says, or read behind a view.
OTHER_SIZES = ("native_batch_norm", "_native_batch_norm_legit", "as_strided")


def poison(dtype):
    if dtype.is_floating_point or dtype.is_complex:
        return math.nan
    return 1 if dtype == torch.bool else 77


def traced(function, args):
    """A graph of a function, all of whose sizes but 1 vary; equal ones alike."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    context = [
        StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DUCK] * one.dim()) for one in args
    ]
    fakes = [mode.from_tensor(a, symbolic_context=c) for a, c in zip(args, context, strict=True)]
    with mode:
        return make_fx(functionalize(function))(*fakes)


def filled_in(x, given):
    """A part of a sample, with the next of the given tensors, and on their device."""
    if isinstance(x, torch.device):
        return None
    return next(given) if isinstance(x, torch.Tensor) else x


class TestPadded(DeviceTest):
    @ops(OPS, dtypes=OpDTypes.none)
    def test_padded(self, device, op):
        dtypes = op.supported_dtypes("cpu")
        if not dtypes or op.name in OTHER_SIZES:
            pytest.skip("no samples, or other results than the meta kernel says")
        dtype = torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)
        reasons = []
        for sample, _ in samples(op, dtype, COUNT):

            def function(*args, sample=sample):
                given = iter(args)
                filled = tree_map(lambda x: filled_in(x, given), sample)
                return [x for x in tree_flatten(call(op, filled))[0] if isinstance(x, torch.Tensor)]

            args = [x.detach() for x in tensors(sample)]
            if not args:
                continue
            sent = [x.to(device) for x in args]
            try:
                graph = functions.Compiled(traced(function, sent))
            except EXCEPTIONS as error:
                reasons.append(f"not traced: {type(error).__name__}")
                continue
            served = "served" if graph.pads else "nothing varies"
            reasons.append(graph.exact or graph.why or served)
            if reasons[-1] != "served":
                continue
            with (
                mock.patch.object(buckets, "bound_of", lambda n, most=None: n + 3),
                mock.patch.object(bucketed, "filler", poison),
            ):
                made = graph(list(sent))
            for one, other in zip(made, function(*args), strict=True):
                same(one, other)
        if "served" not in reasons:
            pytest.skip("; ".join(sorted(set(reasons))) or "no samples")


on_device(TestPadded, globals())
