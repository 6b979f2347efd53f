"""Tensors whose conjugation is still due, in operators that PyTorch leaves it to."""

import pytest
import torch
from support import DEVICE, only_tpu

pytestmark = only_tpu


def in_place(y, x):
    z = y.clone()
    z.conj().addmm_(x.conj(), y)
    return z


def out(y, x):
    z = y.clone()
    torch.mm(x.mH, y, out=z.conj())
    return z


PRODUCTS = {
    "mm": lambda x, y: x.mH @ y,
    "mm of the second": lambda x, y: x @ y.conj(),
    "addmm": lambda x, y: torch.addmm(x.conj(), y.conj(), x.mH),
    "bmm": lambda x, y: torch.stack([x, y]).mH @ torch.stack([y, x]),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None].mH, y[None].conj()),
    "dot": lambda x, y: torch.dot(x[0].conj(), y[0]),
    "vdot": lambda x, y: torch.vdot(x[0].conj(), y[0]),
    "mv": lambda x, y: x.mH @ y[0],
    "triangular solve": lambda x, y: torch.linalg.solve_triangular(
        x.mH + 4 * torch.eye(3, device=x.device), y, upper=True
    ),
    "lu solve": lambda x, y: torch.linalg.solve(x.mH, y.conj()),
    "singular values": lambda x, y: torch.linalg.svdvals(x.mH),
    "of its own": lambda x, y: x.mH @ x,
    "in place": in_place,
    "out": out,
    "imaginary part": lambda x, y: x.conj().imag @ y.real,
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_products(name, mode):
    torch.tpu.eager_mode = mode
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(3, 3, dtype=torch.complex64, generator=generator) for _ in range(2))
    expected = PRODUCTS[name](x, y)
    actual = PRODUCTS[name](x.to(DEVICE), y.to(DEVICE))
    torch.testing.assert_close(actual.cpu(), expected.resolve_conj(), rtol=1e-4, atol=1e-4)


def test_gradient_of_a_product():
    x = torch.randn(3, 3, dtype=torch.complex64)
    gradients = []
    for device in ("cpu", DEVICE):
        leaf = x.to(device, copy=True).requires_grad_()
        (leaf.mH @ leaf).abs().sum().backward()
        gradients.append(leaf.grad.cpu())
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
