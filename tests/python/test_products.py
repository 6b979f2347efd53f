"""Large products of bf16, whose operands are laid out anew (core/ops/contract.c)."""

import itertools
import re

import pytest
import torch
from support import DEVICE, modes, only_tpu

SHAPES = [(96, 512, 128), (4, 128, 160, 64)]  # .., rows, contracted, columns


def matrix(*dims, transposed):
    """Small whole numbers, of which bf16 and sums in f32 lose nothing."""
    made = torch.randint(-3, 4, dims[:-2] + dims[:-3:-1] if transposed else dims)
    made = made.bfloat16()
    return made.mT if transposed else made


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("shape", SHAPES, ids=["matrices", "batches"])
def test_operands_that_lie_either_way(shape, mode):
    *batch, m, k, n = shape
    for ways in itertools.product([False, True], repeat=2):
        a = matrix(*batch, m, k, transposed=ways[0])
        b = matrix(*batch, k, n, transposed=ways[1])
        with torch.tpu.set_eager_mode(mode):
            device, other = a.to(DEVICE), b.to(DEVICE)  # with their strides
            got = device @ other
            twice = (device * 2).sin() @ other
        assert torch.equal(got.cpu(), (a.float() @ b.float()).bfloat16()), ways
        want = (a * 2).sin().float() @ b.float()
        torch.testing.assert_close(twice.cpu().float(), want, rtol=2e-2, atol=1.0)


@only_tpu
def test_large_ones_alone_are_copied():
    """Eigen multiplies what lies otherwise, in up to four times as long."""

    def copies(of, rows=512, dtype=torch.bfloat16):
        a, b = (torch.ones(256, n, dtype=dtype, device=DEVICE) for n in (rows, 64))
        torch._dynamo.reset()
        compiled = torch.compile(of)
        compiled(a, b)
        [one] = torch.tpu.compiler.inspect(compiled).programs
        return len(re.findall(rf"optimization_barrier.* -> tensor<{256 * rows}x", one.stablehlo))

    assert copies(lambda a, b: a.mT @ b) == 1
    assert copies(lambda a, b: a.reshape(-1, 256) @ b) == 0
    assert copies(lambda a, b: a.mT @ b, rows=32) == 0
    assert copies(lambda a, b: a.mT @ b, dtype=torch.float32) == 0


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_lone_batch_whose_matrix_is_turned(dtype, mode):
    """XLA's CPU compiler had no kernel for it: gradients of attention with one head, say."""
    torch.tpu.eager_mode = mode
    a = torch.randint(-3, 4, (1, 15, 23)).to(dtype)
    b = torch.randint(-3, 4, (1, 15, 12)).to(dtype)
    for shape in ((), (1,)):
        x, y = (one.reshape(*shape, *one.shape) for one in (a, b))
        want = (x.mT.float() @ y.float()).to(dtype)
        assert torch.equal((x.to(DEVICE).mT @ y.to(DEVICE)).cpu(), want)
    x, y = (one.to(DEVICE).requires_grad_() for one in (a, b.mT))
    (torch.bmm(y, x)).sum().backward()
    assert torch.equal(y.grad.cpu(), a.float().sum(2)[:, None].expand(1, 12, 15).to(dtype))
