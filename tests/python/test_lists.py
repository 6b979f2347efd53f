"""Operators on lists of tensors with what no single program holds, against the CPU."""

import pytest
import torch
from support import check, only_tpu, python, raises_alike

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]
INTS = torch.arange(3)
HOST = [torch.tensor(2.0), torch.tensor(3.0)]


def pair():
    return [torch.randn(2, 3), torch.randn(4)]


def in_place(function, x, *args):
    function(x, *args)
    return x


def test_numbers_in_host_tensors():
    check(lambda x: torch._foreach_mul(x, HOST), pair())
    check(lambda x: in_place(torch._foreach_add_, x, HOST), pair())
    check(lambda x: torch._foreach_addcmul(x, x, x, torch.tensor([2.0, 3.0])), pair())


def test_complex_numbers():
    check(lambda x: torch._foreach_mul(x, [1, 2j]), pair())
    check(lambda x: torch._foreach_add(x, [1j, 2.5]), pair())
    check(
        lambda x: in_place(torch._foreach_mul_, x, [1j, 2]), [x.to(torch.complex64) for x in pair()]
    )


def test_truth_values_among_numbers():
    check(lambda x: torch._foreach_pow(x, [0.5, True]), [torch.arange(3), torch.arange(4)])
    check(lambda x: torch._foreach_mul(x, [True, False]), [torch.arange(3), torch.arange(4)])


def test_imaginary_parts_that_would_be_lost():
    raises_alike(lambda x: torch._foreach_addcmul(x, x, x, [1j, 2j]), pair())
    raises_alike(lambda x: torch.addcmul(x, x, x, value=1j), torch.randn(3))


def test_fractions_of_integers():
    raises_alike(
        lambda x: torch._foreach_add([x], [x]) + torch._foreach_add([x], [x], alpha=2.5), INTS
    )


def test_interpolation_from_either_end():
    weights = [0.1, 0.5, 0.7, -2.0, float("nan"), float("inf")]
    for weight in weights:
        check(lambda x, w=weight: torch._foreach_lerp(x, [one * 3 for one in x], w), pair())
        check(lambda x, w=weight: torch.lerp(x, x * 3, w), torch.randn(40))
    check(lambda x: torch.lerp(x, x * 3, x), torch.randn(40))
    check(lambda x: torch._foreach_lerp(x, [one * 3 for one in x], [0.1, 0.7]), pair())
    check(lambda x: torch.lerp(x, x * 3, 0.2 + 1j), torch.randn(8, dtype=torch.complex64))


LERP = """
import torch
x = [torch.ones(8, device="tpu") for _ in range(20)]
torch._foreach_lerp(x, x, 0.25)[0].cpu()
"""


def test_what_a_lists_number_decides_is_computed_once(tmp_path):
    """By XLA's CPU compiler, whose programs load as fast as they have few instructions."""
    code, _, errors = python(
        LERP,
        TORCH_TPU_PLUGIN="cpu",
        TORCH_TPU_EAGER_MODE="strict",
        TORCH_TPU_CACHE_DIR=str(tmp_path),
    )
    assert code == 0, errors
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    (text,) = (one for one in texts if b"stablehlo.abs" in one)
    assert text.count(b"stablehlo.abs") == 1
    assert text.count(b"stablehlo.optimization_barrier") == 3
    assert text.count(b"stablehlo.subtract") == 21
