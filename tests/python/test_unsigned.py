"""Unsigned integers of 16 bits and more, which PyTorch promotes with no other integers."""

import pytest
import torch
from support import DEVICE, modes

DTYPES = [torch.uint16, torch.uint32, torch.uint64]
BEYOND = 2**63 + 5


def numbers(dtype, device):
    return torch.arange(12).view(3, 4).to(dtype).to(device)


def mask(device):
    return torch.tensor([[True, False, True, False]] * 3, device=device)


def index(device):
    return torch.tensor([2, 0], device=device)


MOVES = {
    "a column": lambda x, d: x[:, index(d)],
    "a row": lambda x, d: x[torch.tensor(1, device=d)],
    "by 32 bits": lambda x, d: x[index(d).int()],
    "a mask": lambda x, d: x[mask(d)],
    "index_select": lambda x, d: x.index_select(1, index(d)),
    "where": lambda x, d: torch.where(mask(d), x, x.roll(1)),
    "roll": lambda x, d: x.roll(1),
    "cat": lambda x, d: torch.cat([x, x]),
    "equal to a number": lambda x, d: x == 3,
    "to a float": lambda x, d: x * 0.5,
    "times a float": lambda x, d: x * torch.full((4,), 0.5, device=d),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MOVES)
def test_moves(name, dtype):
    run = MOVES[name]
    there, here = (run(numbers(dtype, device), device) for device in (DEVICE, "cpu"))
    assert there.dtype == here.dtype
    assert torch.equal(there.cpu(), here)


BEYOND_I64 = {
    "full": lambda d: torch.full((2,), BEYOND, dtype=torch.uint64, device=d),
    "fill_": lambda d: torch.zeros(2, dtype=torch.uint64, device=d).fill_(BEYOND),
    "fill_ with a tensor": lambda d: torch.zeros(2, dtype=torch.uint64, device=d).fill_(
        torch.tensor(BEYOND, dtype=torch.uint64)
    ),
    "equal": lambda d: torch.tensor([BEYOND, 5], dtype=torch.uint64, device=d) == BEYOND,
    "compared": lambda d: torch.tensor([BEYOND, 5], dtype=torch.uint64, device=d) != BEYOND,
    "floats": lambda d: torch.ones(2, device=d) * BEYOND,
    "filled floats": lambda d: torch.full((2,), BEYOND, dtype=torch.float32, device=d),
}


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("name", BEYOND_I64)
def test_numbers_beyond_the_signed(name, mode):
    run = BEYOND_I64[name]
    with torch.tpu.set_eager_mode(mode):
        there = run(DEVICE)
    assert there.dtype == run("cpu").dtype
    assert there.tolist() == run("cpu").tolist()
