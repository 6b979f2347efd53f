"""Batches, images, and tables of no elements, where the CPU computes with them."""

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, LOOSE, move, same


def sampled(x, grid):
    return F.grid_sample(x, grid, align_corners=False)


def picked(x, mask):
    index = torch.zeros(3, 1, dtype=torch.int64, device=x.device)
    return torch.ops.aten._unsafe_masked_index(x, mask, [index, index.t()], 7.0)


CASES = {
    "no images": (sampled, torch.rand(0, 3, 4, 4), torch.rand(0, 2, 7, 2)),
    "no volumes": (sampled, torch.rand(0, 3, 4, 4, 4), torch.rand(0, 2, 7, 2, 3)),
    "no channels": (sampled, torch.rand(2, 0, 4, 4), torch.rand(2, 2, 7, 2)),
    "no points": (sampled, torch.rand(2, 3, 4, 4), torch.rand(2, 0, 7, 2)),
    "largest of rows": (lambda x: torch.linalg.vector_norm(x, float("inf"), -1), torch.rand(0, 5)),
    "least of rows": (lambda x: x.norm(-1, [1], keepdim=True), torch.rand(0, 5)),
    "largest of all": (lambda x: torch.linalg.vector_norm(x, float("inf")), torch.rand(0, 5)),
    "empty rows": (lambda x: torch.linalg.vector_norm(x, float("inf"), -1), torch.rand(5, 0)),
    "squared errors": (F.mse_loss, torch.rand(0, 3), torch.rand(0, 3)),
    "smooth errors": (F.smooth_l1_loss, torch.rand(0, 3), torch.rand(0, 3)),
    "clipped errors": (F.huber_loss, torch.rand(0, 3), torch.rand(0, 3)),
    "masked": (picked, torch.rand(0, 2), torch.eye(3, dtype=torch.bool)),
}


@pytest.mark.parametrize("name", CASES)
def test_of_nothing(name):
    """As the CPU computes it, or refuses it; gradients as well."""
    function, *args = CASES[name]
    args = [one.requires_grad_(one.is_floating_point()) for one in args]
    device = move(args, DEVICE)
    try:
        want = function(*args)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:40]):
            function(*device)
        return
    got = function(*device)
    same(got, want)
    if want.requires_grad:
        needed = [i for i, one in enumerate(args) if one.requires_grad]
        gradients = torch.autograd.grad(want.sum(), [args[i] for i in needed])
        same(torch.autograd.grad(got.sum(), [device[i] for i in needed]), gradients)


def test_nothing_has_no_elements_to_pick():
    for device in ("cpu", DEVICE):
        x, index = torch.zeros(0, 5, device=device), torch.tensor([0], device=device)
        with pytest.raises(IndexError, match="out of bounds for dimension with size 0"):
            x[index]


def test_a_row_of_which_all_is_left_out():
    x, mask = torch.rand(1, 2, 3, 3), torch.zeros(1, 2, 3, 3, dtype=torch.bool)
    mask[0, 0, 1] = True
    mask[0, 1, :, 1:] = True
    want = torch._masked_softmax(x, mask, 3)
    assert want.isnan().sum() == 3
    same(torch._masked_softmax(x.to(DEVICE), mask.to(DEVICE), 3), want, **LOOSE)


def test_an_encoder_layer_of_which_all_is_left_out():
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True).eval()
    x, mask = torch.rand(2, 1, 4), torch.tensor([[True], [False]])
    with torch.no_grad():
        want = layer(x, src_key_padding_mask=mask)
        got = layer.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=mask.to(DEVICE))
    assert want[0].isnan().all()
    same(got, want, **LOOSE)
