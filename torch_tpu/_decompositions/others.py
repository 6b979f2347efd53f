"""Checks, copies between devices, creation into given tensors, products of scaled small floats."""

from typing import Any

import torch
from torch import Tensor

from torch_tpu._decompositions import decomposes

aten = torch.ops.aten

# -- Checks, which wait --


@decomposes("_assert_async", "_assert_async.msg")
def assert_async(self: Tensor, message: str = "Expected Tensor with single nonzero value") -> None:
    """Raises an error if the one element is 0."""
    torch._check(bool(self), lambda: message)


# -- Copies from another device --


def _copy_from_anywhere(name: str) -> None:
    function = getattr(aten, name).default

    @decomposes(name)
    def copy(self: Tensor, src: Tensor, *rest: Any, **options: Any) -> Tensor:
        """A tensor with another in its place, or in a part of it, wherever that one is."""
        return function(self, src.to(self.device), *rest, **options)  # type: ignore[no-any-return]


for _name in ("copy", "diagonal_scatter", "select_scatter", "slice_scatter"):
    _copy_from_anywhere(_name)


# -- Creation --


@decomposes("range.out")
def range_out(start: float, end: float, step: float = 1, *, out: Tensor) -> Tensor:
    """Numbers from the first to the last, which is included."""
    torch._check(step != 0, lambda: "step must be nonzero")
    torch._check(
        (end - start) * step >= 0, lambda: "upper bound and lower bound inconsistent with step sign"
    )
    count = int((end - start) / step) + 1
    steps = torch.arange(count, dtype=torch.float64, device=out.device)
    return out.resize_(count).copy_(start + step * steps)


@decomposes("randperm.generator_out")
def randperm_out(n: int, *, generator: torch.Generator | None, out: Tensor) -> Tensor:
    """A random permutation."""
    drawn = torch.randperm(n, generator=generator, dtype=out.dtype, device=out.device)
    return out.resize_(n).copy_(drawn)


@decomposes("bernoulli.out")
def bernoulli_out(self: Tensor, *, generator: torch.Generator | None = None, out: Tensor) -> Tensor:
    """Ones with the tensor's probabilities, of whatever dtype the target has."""
    return out.resize_(self.shape).bernoulli_(self, generator=generator)


# -- Powers of booleans, which PyTorch's Meta kernels take for integers --


@decomposes("pow.Tensor_Scalar")
def pow_scalar(self: Tensor, exponent: float) -> Tensor:
    """Booleans to the power of a boolean."""
    if self.dtype != torch.bool or not isinstance(exponent, bool):
        return NotImplemented
    return self.clone() if exponent else torch.ones_like(self)


@decomposes("pow_.Scalar")
def pow_scalar_(self: Tensor, exponent: float) -> Tensor:
    """The same in place."""
    powers = pow_scalar(self, exponent)
    return powers if powers is NotImplemented else self.copy_(powers)


@decomposes("pow.Tensor_Scalar_out")
def pow_scalar_out(self: Tensor, exponent: float, *, out: Tensor) -> Tensor:
    """The same into a given tensor."""
    powers = pow_scalar(self, exponent)
    return powers if powers is NotImplemented else out.resize_(self.shape).copy_(powers)


@decomposes("_foreach_pow.Scalar", "_foreach_pow.ScalarList")
def foreach_pow(self: list[Tensor], exponents: float | list[float]) -> list[Tensor]:
    """Lists with booleans to the power of booleans."""
    if not isinstance(exponents, list | tuple):
        exponents = [exponents] * len(self)
    if not any(x.dtype == torch.bool for x in self):
        return NotImplemented
    return [aten.pow(x, e) for x, e in zip(self, exponents, strict=True)]


# -- Products of scaled small floats --


@decomposes("_scaled_mm")
def scaled_product(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Product of two matrices, each with a scale for all or for each row or column."""
    result = (self.float() * scale_a) @ (mat2.float() * scale_b)
    if bias is not None:
        result = result + bias
    if scale_result is not None:
        result = result * scale_result
    dtype = out_dtype or self.dtype
    if dtype.itemsize == 1 and dtype.is_floating_point:
        most = torch.finfo(dtype).max  # stands for what is larger, of which a cast makes NaN
        result = result.clamp(-most, most)
    return result.to(dtype)


@decomposes("_scaled_mm.out")
def scaled_product_out(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    out: Tensor,
) -> Tensor:
    """The same, rounded once, to the target's dtype."""
    torch._check(out_dtype in (None, out.dtype), lambda: "out_dtype must match output matrix type")
    result = scaled_product(self, mat2, scale_a, scale_b, bias, scale_result, out.dtype)
    return out.resize_(result.shape).copy_(result)
