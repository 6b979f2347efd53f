"""`torch.tpu.FloatTensor` and its kin: what old scripts do with torch.cuda's, beside the CPU's."""

import numpy as np
import pytest
import torch
from support import only_tpu

pytestmark = only_tpu
WORDS = "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()


@pytest.mark.parametrize("word", WORDS)
def test_each_is_the_cpus_on_the_device(word):
    ours, cpus = getattr(torch.tpu, f"{word}Tensor"), getattr(torch, f"{word}Tensor")
    x, y = ours([[1, 0], [1, 1]]), cpus([[1, 0], [1, 1]])
    assert x.device.type == "tpu" and x.dtype == y.dtype == ours.dtype
    assert torch.equal(x.cpu(), y)
    assert (ours.is_cuda, ours.is_sparse, ours.layout) == (
        cpus.is_cuda,
        cpus.is_sparse,
        cpus.layout,
    )
    assert ours.is_tpu
    assert x.type() == ours.__name__ and isinstance(x, ours)
    assert not isinstance(y, ours) and not isinstance(x.to(torch.complex64), ours)
    assert torch.equal(y.type(ours).cpu(), y) and torch.equal(x.type(cpus), y)
    assert isinstance(y.type(ours.__name__), ours)


def test_sizes_and_data():
    kind = torch.tpu.FloatTensor
    assert kind().shape == torch.FloatTensor().shape
    assert kind(2, 3).shape == kind(torch.Size((2, 3))).shape == (2, 3)
    assert kind((2, 3)).tolist() == torch.FloatTensor((2, 3)).tolist()
    assert kind(np.ones((2, 2))).tolist() == [[1, 1], [1, 1]]
    assert kind(4, 1).fill_(1.0).sum().item() == 4
    x = kind([1, 2])
    kind(x).zero_()
    assert x.tolist() == [0, 0] and repr(kind) == "<class 'torch.tpu.FloatTensor'>"


@pytest.mark.parametrize("wrong", ["a", 1.5, None])
def test_wrong_arguments(wrong):
    with pytest.raises(TypeError) as cpus:
        torch.FloatTensor(wrong)
    with pytest.raises(TypeError) as ours:
        torch.tpu.FloatTensor(wrong)
    assert str(ours.value) == str(cpus.value)


def test_tensors_of_another_type():
    with pytest.raises(TypeError, match="got torch"):
        torch.tpu.FloatTensor(torch.ones(2))


def test_as_the_default():
    try:
        torch.set_default_tensor_type("torch.tpu.HalfTensor")
        assert isinstance(torch.ones(2), torch.tpu.HalfTensor)
        torch.set_default_tensor_type(torch.tpu.DoubleTensor)
        assert isinstance(torch.ones(2), torch.tpu.DoubleTensor)
        with pytest.raises(TypeError, match="floating"):
            torch.set_default_tensor_type("torch.tpu.IntTensor")
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert isinstance(torch.ones(2), torch.FloatTensor)


def test_a_default_device_is_no_type_s_to_take_back():
    try:
        torch.set_default_device("tpu")
        torch.set_default_tensor_type(torch.DoubleTensor)
        assert isinstance(torch.ones(2), torch.tpu.DoubleTensor)
    finally:
        torch.set_default_device(None)
        torch.set_default_tensor_type(torch.FloatTensor)
