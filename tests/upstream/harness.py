"""What these tests share: instantiation on the device, faithful copies, and a run on both sides."""

import contextlib
import itertools
import re
import unittest
from collections import Counter

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_flatten, tree_map

from torch_tpu._host import ON_HOST, named

SINGLE = {"rtol": 2e-4, "atol": 5e-5}
DOUBLE = {"rtol": 1e-9, "atol": 1e-9}
LIMITS = {
    torch.float32: SINGLE,
    torch.complex64: SINGLE,
    torch.float64: DOUBLE,
    torch.complex128: DOUBLE,
    torch.bfloat16: {"rtol": 3e-2, "atol": 3e-2},
    torch.float16: {"rtol": 4e-3, "atol": 4e-3},
}
KERNEL_MISSING = r"\"\w+\" not implemented for '(Half|BFloat16|Float|Double|ComplexHalf)'"
UNCOMPARED = Counter()
"""Pieces of work whose results or errors were not compared, by reason."""
EXCEPTIONS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


class DeviceTest(TestCase):
    """A test in which no operator may run on the host, and which leaves the settings alone."""

    def setUp(self):
        super().setUp()
        self._was = torch.tpu.host_fallback, torch.get_num_threads()
        torch.tpu.host_fallback = "error"
        torch.sparse.check_sparse_tensor_invariants.disable()  # as users have it: it is the host's
        torch.set_num_threads(1)  # threads of the CPU's small operators would mostly wait

    def tearDown(self):
        torch.tpu.host_fallback = self._was[0]
        torch.set_num_threads(self._was[1])
        super().tearDown()


def on_device(test_class, scope):
    """Instantiates a generic class of tests on this device and no other."""
    instantiate_device_type_tests(test_class, scope, only_for="tpu")


def full_name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def first(iterable, count):
    return itertools.islice(iterable, count)


class Mover:
    """Copies tensors to a device with their strides, lazy bits and shared storages."""

    def __init__(self, device):
        self.device = torch.device(device)
        self.bases, self.copies = {}, {}

    def __call__(self, tree):
        return tree_map(self._leaf, tree)

    def _leaf(self, x):
        if isinstance(x, torch.device):
            return self.device
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in self.copies:
            self.copies[id(x)] = (self._leaf_of(x), x)  # x keeps the key taken
        return self.copies[id(x)][0]

    def _leaf_of(self, x):
        with torch.no_grad():
            copy = self._copy(x.detach())
        if isinstance(x, torch.nn.Parameter):
            return torch.nn.Parameter(copy, x.requires_grad)
        return copy.requires_grad_(x.requires_grad)

    def _copy(self, x):
        if x.layout != torch.strided:
            return x.clone().to(self.device)
        size, stride, offset = x.size(), x.stride(), x.storage_offset()
        key = (x.untyped_storage()._cdata, x.dtype)
        if key not in self.bases:
            plain = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
            self.bases[key] = (plain.clone().to(self.device), x)
        copy = self.bases[key][0].as_strided(size, stride, offset)
        copy = copy.conj() if x.is_conj() else copy
        return torch._neg_view(copy) if x.is_neg() else copy


def move(tree, device):
    return Mover(device)(tree)


def tensors(tree):
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def noncontiguous(tree):
    """The same values, each tensor with gaps between its elements."""

    def one(x):
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.numel() < 2:
            return x
        with torch.no_grad():
            wide = torch.ones(*x.shape, 2, dtype=x.dtype, device=x.device)
            copy = wide[..., 1].copy_(x.detach())
        if isinstance(x, torch.nn.Parameter):
            return torch.nn.Parameter(copy, x.requires_grad)
        return copy.requires_grad_(x.requires_grad)

    return tree_map(one, tree)


def same(actual, expected, strides=False, device="tpu", **limits):
    """Asserts that two trees agree: structure, types, places, and nearly the values."""
    got, want = tree_flatten(actual)[0], tree_flatten(expected)[0]
    assert len(got) == len(want), f"{len(got)} results, expected {len(want)}"
    for a, b in zip(got, want, strict=True):
        if isinstance(b, torch.device):
            assert a.type == device, a
        elif not isinstance(b, torch.Tensor):
            assert type(a) is type(b) and (a == b or a != a), f"{a!r}, expected {b!r}"
        if not isinstance(b, torch.Tensor):
            continue
        assert (a.dtype, a.shape, a.layout) == (b.dtype, b.shape, b.layout), (a, b)
        assert a.device.type == device, a.device
        if strides:
            assert steps(a) == steps(b), f"strides {a.stride()}, expected {b.stride()}"
        torch.testing.assert_close(
            a.detach().cpu(),
            b.detach().cpu(),
            equal_nan=True,
            **(limits or LIMITS.get(b.dtype, {})),
        )


def steps(x):
    """The strides that matter: of more than one element along their dim."""
    if x.layout != torch.strided or x.numel() == 0:
        return []
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def gradients(outputs, inputs, create_graph=False):
    """Gradients of a sum that weighs every element of the outputs by its place."""
    total = []
    for x in tensors(outputs):
        if x.requires_grad:
            places = torch.linspace(0.5, 1.5, x.numel(), dtype=x.real.dtype).reshape(x.shape)
            loss = (x * places.to(x.device)).sum()
            total.append(loss.abs() if loss.is_complex() else loss)
    leaves = [x for x in tensors(inputs) if x.requires_grad]
    if not total or not leaves:
        return []
    return torch.autograd.grad(sum(total), leaves, allow_unused=True, create_graph=create_graph)


def both(work, inputs, device, compare=same):
    """Runs work(inputs) on the CPU and on the device: equal results, or errors of one type.

    Inputs that the work changes must change alike. Returns whether there was a result.
    """
    here, there = move(inputs, "cpu"), move(inputs, device)
    try:
        expected = work(here)
    except EXCEPTIONS as error:
        reason = of_the_cpu_alone(error)
        UNCOMPARED.update([reason] if reason else [])
        with contextlib.suppress(*EXCEPTIONS) if reason else raises_like(error), but_for_the_host():
            for x in tensors(work(there)):
                x.cpu()
        return False
    with but_for_the_host():
        actual = work(there)
    compare(actual, expected)
    compare(there, here)
    return True


def of_the_cpu_alone(error):
    """Why the device need not raise what the CPU does, though it may; None if it must."""
    if isinstance(error, NotImplementedError) and re.fullmatch(KERNEL_MISSING, str(error)):
        return "the CPU has no kernel for the dtype"
    if str(error) == "ZeroDivisionError":  # "Operators" in docs/architecture.md
        return "whole numbers divided by zero"
    return None


@contextlib.contextmanager
def but_for_the_host():
    """Skips a test of an operator that is listed as staying on the host; no other may."""
    try:
        yield
    except NotImplementedError as error:
        name, refused, _ = str(error).partition(" has no path on device")
        if name in named(ON_HOST):
            raise unittest.SkipTest("an operator that is listed to run on the host") from error
        assert not refused, str(error)
        raise


@contextlib.contextmanager
def raises_like(error):
    """Asserts that the body raises an error of the same type."""
    try:
        yield
    except type(error):
        return
    raise AssertionError(f"{type(error).__name__} expected, as on the CPU: {error}")
