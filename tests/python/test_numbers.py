"""Numbers that are the CPU's to the last bit."""

import pytest
import torch
from support import DEVICE, modes

F = torch.nn.functional
QUOTIENTS = {
    "by a number": lambda x: x / 3.0,
    "by a scalar tensor": lambda x: x / torch.tensor(0.1, dtype=x.dtype, device=x.device),
    "by a row": lambda x: x / x[:1],
    "by a column": lambda x: x / x[:, :1],
    "in place": lambda x: x.clone().div_(7),
    "rounded": lambda x: torch.div(x, 0.7, rounding_mode="trunc"),
    "rounded down": lambda x: x // 0.7,
    "of lists": lambda x: torch._foreach_div([x, x + 1], 3.0)[1],
    "of lists by numbers": lambda x: torch._foreach_div([x, x + 1], [3.0, 49.0])[1],
    "the mean of three": lambda x: x[:, :3].sum(1) / 3 - x[:, :3].mean(1),
    "a gradient of a mean": lambda x: mean_gradient(x),
    "pooled": lambda x: F.avg_pool2d(x.mul(8).round()[None, None], 3, 1),
    "hard": lambda x: F.hardsigmoid(x),
}


def mean_gradient(x):
    leaf = x.detach().clone().requires_grad_()
    leaf.mean().backward()
    return leaf.grad


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", QUOTIENTS)
def test_a_quotient_is_rounded_once(name, dtype, mode):
    """XLA would multiply by the reciprocal of a divisor that is broadcast."""
    x = torch.randn(41, 37, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    x = x.to(dtype)
    x[3, 3:7] = torch.tensor([float("nan"), float("inf"), -0.0, 0.0], dtype=dtype)
    x[0, :], x[:, 0] = 3.3, -0.7
    run = QUOTIENTS[name]
    with torch.tpu.set_eager_mode(mode):
        there = run(x.to(DEVICE)).cpu()
    assert torch.equal(there.nan_to_num(7.5), run(x).nan_to_num(7.5))
