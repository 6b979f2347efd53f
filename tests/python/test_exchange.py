"""Tensors that go to other libraries and to other processes, and come from there."""

import io
import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from support import DEVICE, only_tpu, python
from torch import nn

pytestmark = only_tpu


def test_dlpack_refuses_clearly():
    x = torch.ones(2, device="tpu")
    with pytest.raises(BufferError, match="cpu"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="cpu"):
        torch.utils.dlpack.to_dlpack(x)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)
    with pytest.raises(BufferError, match="cpu"):
        np.from_dlpack(x, device="cpu", copy=False)
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0)
    assert torch.from_dlpack(torch.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool, torch.complex64])
def test_dlpack_gives_a_copy_on_the_host(dtype):
    x = torch.arange(6).reshape(2, 3).to(dtype).to("tpu")
    for window in (x, x[1], x.t(), x[:, ::2], x[:0], x.expand(2, 2, 3)):
        array = np.from_dlpack(window, device="cpu")
        assert np.array_equal(array, window.cpu().numpy())
    array = np.from_dlpack(x, device="cpu")
    kept = array.copy()
    x.zero_()
    del x
    torch.tpu.synchronize()
    assert np.array_equal(array, kept)


def test_dlpack_refuses_what_it_cannot_say():
    with pytest.raises(BufferError, match="gradient"):
        np.from_dlpack(torch.ones(2, device="tpu", requires_grad=True), device="cpu")
    with pytest.raises(BufferError, match="gradient"):
        torch.from_dlpack(torch.ones(2, device="tpu", requires_grad=True))
    with pytest.raises(BufferError, match="conjugation"):
        np.from_dlpack(torch.ones(2, dtype=torch.complex64, device="tpu").conj(), device="cpu")


def test_arrays_come_to_the_device():
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    for source in (array, torch.from_numpy(array), torch.utils.dlpack.to_dlpack(torch.ones(2))):
        x = torch.from_dlpack(source, device="tpu")
        assert x.device.type == "tpu"
    x = torch.from_dlpack(array, device="tpu")
    array[:] = 0
    assert x.tolist() == [[0, 2], [3, 5]]
    with pytest.raises(BufferError, match="copy"):
        torch.from_dlpack(array, device="tpu", copy=False)


def test_tensors_of_the_device_are_shared():
    x = torch.arange(4.0, device="tpu")
    shared, copied = torch.from_dlpack(x[1:]), torch.from_dlpack(x, copy=True)
    shared.zero_()
    assert x.tolist() == [0, 0, 0, 0] and copied.tolist() == [0, 1, 2, 3]
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"
    assert torch.utils.dlpack.from_dlpack(x, device="tpu:0").data_ptr() == x.data_ptr()


def test_a_stream_is_a_number():
    with pytest.raises(TypeError, match="stream must be"):
        torch.ones(2, device="tpu").__dlpack__(stream=object())


@pytest.mark.parametrize("convert", [np.asarray, np.array, np.sin, lambda x: x.numpy()])
def test_numpy_is_refused_as_for_cuda(convert):
    with pytest.raises(TypeError, match=r"tensor to numpy. Use Tensor.cpu\(\)"):
        convert(torch.ones(2, device="tpu"))


def test_numpy_by_force():
    x = torch.ones(2, dtype=torch.complex64, device="tpu", requires_grad=True).conj()
    assert x.numpy(force=True).tolist() == [1, 1]


# -- Other processes --


def sent(thing):
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(thing)
    return pickle.loads(buffer.getvalue())


def test_what_is_sent_is_a_copy():
    x = torch.arange(4.0, device=DEVICE)
    y = sent(x[1:])
    assert y.device == x.device and y.tolist() == [1, 2, 3]
    y.zero_()
    assert x.tolist() == [0, 1, 2, 3]
    parameter = sent(nn.Parameter(x))
    assert isinstance(parameter, nn.Parameter) and parameter.requires_grad
    assert sent(x.clone().requires_grad_()).requires_grad
    module = sent(nn.Linear(2, 3).to(DEVICE))
    assert module(torch.ones(1, 2, device=DEVICE)).shape == (1, 3)
    with pytest.raises(RuntimeError, match="non-leaf"):
        sent(x.clone().requires_grad_() * 2)


def double(tensors, results):
    results.put([t * 2 for t in tensors.get()])
    tensors.get()  # what was sent is to be had as long as its sender lives


@pytest.mark.slow
def test_a_queue_between_processes():
    context = mp.get_context("spawn")
    tensors, results = context.SimpleQueue(), context.SimpleQueue()
    worker = context.Process(target=double, args=(tensors, results))
    worker.start()
    tensors.put([torch.arange(3.0, device=DEVICE), torch.ones(2)])
    a, b = results.get()
    tensors.put(None)
    assert a.device.type == DEVICE and a.tolist() == [0, 2, 4] and b.tolist() == [2, 2]
    worker.join(60)
    assert worker.exitcode == 0


FORKED = """
import torch, torch.multiprocessing as mp

def take(queue, answer):
    try:
        queue.get()
    except RuntimeError as error:
        answer.put(str(error))

context = mp.get_context("fork")
queue, answer = context.SimpleQueue(), context.SimpleQueue()
x = torch.ones(2, device="tpu")
torch.tpu.synchronize()
worker = context.Process(target=take, args=(queue, answer))
worker.start()
queue.put(x)
print(answer.get())
worker.join(30)
"""


def test_a_forked_process_is_told_why_not():
    status, output, errors = python(FORKED)
    assert status == 0 and "fork" in output, errors
