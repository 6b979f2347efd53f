"""Autocast and gradient scaling."""

import copy

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, only_tpu, same
from torch import nn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_chooses_dtypes(dtype):
    a, b = torch.rand(4, 4, device=DEVICE), torch.rand(4, 4, device=DEVICE)
    with torch.autocast(DEVICE, dtype):
        assert (a @ b).dtype == dtype
        assert nn.Linear(4, 2).to(DEVICE)(a).dtype == dtype
        assert F.conv1d(a[None], torch.rand(2, 4, 1, device=DEVICE)).dtype == dtype
        assert (a + b).dtype == torch.float32
        with torch.autocast(DEVICE, enabled=False):
            assert (a @ b).dtype == torch.float32
    assert (a @ b).dtype == torch.float32


@only_tpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_autocast_takes_what_cuda_does(dtype):
    a, half = torch.rand(4, 4, device=DEVICE), torch.rand(4, 4, device=DEVICE).half()
    layer = nn.Linear(4, 2).to(DEVICE)
    with torch.autocast(DEVICE, dtype):
        assert (a @ a).dtype == layer(half).dtype == torch.softmax(a @ a, 0).dtype == dtype
        layer(a).sum().backward()
    assert layer.weight.grad.dtype == torch.float32


@only_tpu
def test_autocast_keeps_float32_where_it_matters():
    x = torch.rand(4, 4, device="tpu")
    with torch.autocast("tpu", torch.bfloat16):
        y = x @ x
        assert y.softmax(-1).dtype == torch.float32
        assert F.layer_norm(y, (4,)).dtype == torch.float32
        assert torch.cat([x, y]).dtype == torch.float32
        assert (
            F.cross_entropy(y, torch.zeros(4, dtype=torch.int64, device="tpu")).dtype
            == torch.float32
        )
        assert torch.is_autocast_enabled("tpu")
    assert torch.get_autocast_dtype("tpu") in (torch.bfloat16, torch.float16)


def test_training_under_autocast():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), torch.randn(32, 8)
    results = []
    for device in ("cpu", DEVICE):
        m = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.05)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16):
                loss = (m(x.to(device)).float() - 1).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert all(p.grad.dtype == torch.float32 for p in m.parameters())
        results.append(torch.tensor(losses))
    same(results[1], results[0], rtol=3e-2, atol=3e-2)


def test_gradient_scaler():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 4), torch.randn(8, 4)
    results = []
    for device in ("cpu", DEVICE):
        m = copy.deepcopy(model).to(device)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=2)
        scales = []
        for step in range(5):
            optimizer.zero_grad()
            loss = m(x.to(device)).square().mean() * (float("inf") if step == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        results.append((scales, [p.detach().cpu() for p in m.parameters()]))
    assert results[1][0] == results[0][0]
    assert 1024.0 in results[0][0] or 2048.0 in results[0][0]
    same(results[1], results[0], rtol=1e-4, atol=1e-5)


@only_tpu
def test_amp_module():
    scaler = torch.tpu.amp.GradScaler()
    assert isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled()
    restored = torch.tpu.amp.GradScaler()
    restored.load_state_dict(scaler.state_dict())
    with torch.tpu.amp.autocast():
        x = torch.rand(2, 2, device="tpu")
        assert (x @ x).dtype == torch.bfloat16


@only_tpu
def test_amp_module_in_a_graph():
    def product(x):
        with torch.tpu.amp.autocast(dtype=torch.bfloat16):
            return torch.mm(x, x)

    made = torch.compile(product, backend="eager", fullgraph=True)(torch.ones(4, 4, device=DEVICE))
    assert made.dtype == torch.bfloat16


def test_functions_of_ones_own_under_autocast():
    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.tpu.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.tpu.amp.custom_bwd
        def backward(ctx, gradient):
            return gradient * 2 * (1 - torch.is_autocast_enabled("tpu"))

    x = torch.rand(4, device="tpu").bfloat16().requires_grad_()
    with torch.autocast("tpu", torch.bfloat16):
        y = Twice.apply(x)
        assert y.dtype == torch.float32
    y.sum().backward()
    same(x.grad, torch.full((4,), 2.0).bfloat16())


def test_what_is_composed_is_not_cast_again():
    """A kernel of the CPU's calls no other operators that autocast would find."""
    a = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    there = {}
    for enabled in (False, True, False):
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=enabled):
            there[enabled] = torch.linalg.lstsq(a.to(DEVICE), a[:, :1].to(DEVICE))[0].cpu()
    assert there[True].dtype == torch.float32
    assert torch.equal(there[True], there[False])
