"""What tests of tracing share: an operator through torch.compile, and PyTorch's own checks."""

from functools import partial

import torch
from harness import LIMITS, UNCOMPARED, both, gradients, move, tensors
from op_cases import call, samples
from torch.testing._internal.optests import aot_autograd_check, make_fx_check

MODES = ("real", "fake", "symbolic")  # of make_fx
NOT_ON_THE_CPU = "PyTorch's check of tracing fails on the CPU"
near = partial(torch.testing.assert_close, equal_nan=True, **LIMITS[torch.float32])


def dtype_of(test, op):
    dtypes = op.supported_dtypes("cpu")
    if not dtypes:
        test.skipTest("the CPU has it for no dtype")
    return torch.float32 if torch.float32 in dtypes else min(dtypes, key=str)


def check_compiled(test, op, device, count):
    """Through torch.compile, forward and backward, it is as it is eagerly on the CPU."""
    dtype = dtype_of(test, op)
    derives = dtype in op.supported_backward_dtypes("cpu")
    torch._dynamo.reset()
    compiled = torch.compile(lambda sample: call(op, sample))
    for sample, unique in samples(op, dtype, count, requires_grad=derives):

        def work(sample, unique=unique):
            on_device = any(x.device.type == "tpu" for x in tensors(sample))
            result = unique(compiled(sample) if on_device else call(op, sample))
            return result, gradients(result, sample) if derives else ()

        both(work, sample, device)


def check_traced(test, op, device, check, count):
    """The device passes one of PyTorch's checks wherever the CPU passes it.

    check is called with a function, its arguments, and their keywords.
    """
    dtype = dtype_of(test, op)
    derives = dtype in op.supported_backward_dtypes("cpu")
    for sample, unique in samples(op, dtype, count, requires_grad=derives):

        def function(*args, unique=unique, **kwargs):
            return unique(op(*args, **kwargs))

        def run(sample, function=function):
            x, args, kwargs = sample
            check(function, (x, *args), kwargs)

        here, there = move(sample, "cpu"), move(sample, device)
        try:
            run(here)
        except Exception:  # any: the check is PyTorch's, and so is what fails in it
            UNCOMPARED.update([NOT_ON_THE_CPU])
            continue
        run(there)


def check_aot_autograd(test, op, device, dynamic, count):
    """Traced by AOTAutograd, with sizes that vary or not, it is as it is without."""

    def check(function, args, kwargs):
        options = {"assert_equals_fn": near, "check_gradients": "auto"}
        aot_autograd_check(function, args, kwargs, dynamic, **options)

    check_traced(test, op, device, check, count)


def check_make_fx(test, op, device, mode, count):
    """Traced in one of MODES, it is as it is without."""

    def check(function, args, kwargs):
        make_fx_check(function, args, kwargs, mode, assert_close=near)

    check_traced(test, op, device, check, count)
