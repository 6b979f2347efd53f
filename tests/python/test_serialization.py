"""Saving, loading, copying, printing, and feeding data."""

import copy
import io
import pickle

import pytest
import torch
from support import DEVICE, only_tpu, same
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def saved(thing, **options):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_save_and_load(dtype):
    x = torch.arange(6).reshape(2, 3).to(dtype).to(DEVICE)
    assert saved(x).device.type == DEVICE and torch.equal(saved(x).cpu(), x.cpu())
    assert saved(x, map_location="cpu").device.type == "cpu"
    assert saved(x.cpu(), map_location=DEVICE).device.type == DEVICE


def test_loaded_views_share():
    x = torch.arange(6.0, device=DEVICE)
    a, b = saved([x, x[2:]])
    b.zero_()
    assert a.tolist() == [0, 1, 0, 0, 0, 0]


def test_models_and_optimizers():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(5, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    state = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(DEVICE)
    other.load_state_dict(state["model"])
    again = torch.optim.AdamW(other.parameters())
    again.load_state_dict(state["optimizer"])
    same(other.state_dict(), model.state_dict())
    same(again.state_dict()["state"], optimizer.state_dict()["state"])
    host = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    host.load_state_dict(state["model"])
    same(host.state_dict(), model.state_dict())


def test_copies():
    x = torch.arange(4.0, device=DEVICE, requires_grad=True)
    base = x.detach()
    y, z = copy.deepcopy([base, base[1:]])
    z.zero_()
    assert y.tolist() == [0, 0, 0, 0] and x.tolist() == [0, 1, 2, 3]
    assert copy.deepcopy(x).requires_grad
    model = nn.Linear(2, 2).to(DEVICE)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.zero_()
    assert model.weight.abs().sum().item() > 0
    assert torch.equal(pickle.loads(pickle.dumps(base)).cpu(), base.cpu())


def test_moving_keeps_ties_and_identity():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.b.weight = self.a.weight

    model = Tied()
    before = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to(DEVICE)
    assert model.a.weight is model.b.weight and model.a.weight.device.type == DEVICE
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    model.b(model.a(torch.tensor([1], device=DEVICE))).sum().backward()
    old = model.a.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model.a.weight, old)
    model.cpu()
    assert model.a.weight is model.b.weight


def test_half_and_float():
    model = nn.Linear(2, 2).to(DEVICE).bfloat16()
    assert model.weight.dtype == torch.bfloat16
    assert model(torch.ones(1, 2, device=DEVICE, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert model.float().weight.dtype == torch.float32
    assert nn.Linear(2, 2).to(DEVICE, torch.float16).weight.dtype == torch.float16


@only_tpu
def test_meta_and_to_empty():
    with torch.device("meta"):
        model = nn.Linear(3, 3)
    model.to_empty(device="tpu")
    nn.init.ones_(model.weight)
    assert model.weight.sum().item() == 9


@only_tpu
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0).reshape(2, 3),
        lambda: torch.tensor(3),
        lambda: torch.zeros(0, 3),
        lambda: torch.rand(3, 2000),
        lambda: torch.tensor([True, False]),
        lambda: torch.tensor([1.5, float("nan"), float("inf"), -1e10]),
        lambda: torch.tensor([1 + 2j]),
        lambda: torch.arange(6).reshape(2, 3).t(),
        lambda: torch.ones(2, dtype=torch.bfloat16),
        lambda: nn.Parameter(torch.ones(2, 2)),
    ],
)
def test_repr_is_the_cpu_s_with_the_device(make):
    host = make()
    there = host.detach().to("tpu")
    if isinstance(host, nn.Parameter):
        there = nn.Parameter(there)

    def bare(text):
        return "".join(text.replace("device='tpu:0'", "").split()).replace(",", "").replace(")", "")

    assert "device='tpu:0'" in repr(there)
    assert bare(repr(there)) == bare(repr(host))


@only_tpu
def test_repr_launches_nothing():
    x = torch.rand(3, 3, device="tpu", requires_grad=True) * 2
    text = repr(x)
    assert "grad_fn=<MulBackward0>" in text
    torch.tpu.synchronize()
    torch.tpu.reset_metrics()
    before = torch.tpu.metrics()
    repr(x), str(x), f"{x}"
    after = torch.tpu.metrics()
    for name in before:
        if "launch" in name or "compil" in name:
            assert after[name] == before[name], name


def test_format():
    assert f"{torch.tensor(2.5, device=DEVICE):.2f}" == "2.50"


def test_data_loader():
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    pin = DEVICE == "tpu"
    total = 0
    for x, y in DataLoader(data, batch_size=4, pin_memory=pin):
        assert x.is_pinned() == pin
        total += (x.to(DEVICE, non_blocking=True) * y.to(DEVICE)).sum().item()
    assert total == sum(i * i for i in range(10))


def test_data_loader_with_workers():
    data = TensorDataset(torch.arange(8.0))
    torch.ones(1, device=DEVICE)
    loader = DataLoader(data, batch_size=4, num_workers=2, pin_memory=DEVICE == "tpu")
    assert sum(x.to(DEVICE).sum().item() for (x,) in loader) == 28


@only_tpu
def test_storages():
    x = torch.arange(4.0, device="tpu")
    storage = x.untyped_storage()
    assert storage.device.type == "tpu" and storage.nbytes() == 16
    assert storage.cpu().tolist() == torch.arange(4.0).untyped_storage().tolist()
    copied = torch.arange(4.0).untyped_storage().tpu()
    y = torch.empty(0, device="tpu").set_(copied, 0, (4,), (1,))
    assert y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("zipped", [True, False])
def test_both_formats(zipped):
    x = torch.arange(5, dtype=torch.int16).to(DEVICE)
    buffer = io.BytesIO()
    torch.save([x, x[1:]], buffer, _use_new_zipfile_serialization=zipped)
    buffer.seek(0)
    a, b = torch.load(buffer)
    b.zero_()
    assert a.device.type == DEVICE and a.tolist() == [0, 0, 0, 0, 0]


@only_tpu
def test_storages_never_read_the_handle():
    storage = torch.arange(4, dtype=torch.int16).to("tpu").untyped_storage()
    assert storage[2] == 1
    with pytest.raises(NotImplementedError, match="slice the tensor"):
        storage[1:3]
    storage.byteswap(torch.int16)
    assert storage.tolist() == [0, 0, 0, 1, 0, 2, 0, 3]
