"""Kernels for nested tensors of strided layout, made of dense operators on their buffers.

`_lent.py` lends the device what PyTorch itself has composed of such operators; here is the rest.
Imported with the device: it registers its functions.
"""

from typing import Any

import torch
from torch import Tensor

from torch_tpu._decompositions import nn as _dense
from torch_tpu._register import DENSE, NESTED, register

_aten = torch.ops.aten


def _inside(sizes: Tensor, shape: torch.Size) -> Tensor:
    """Which places of a padded tensor of this shape belong to an element; all on the host."""
    mask = torch.ones(len(sizes), *[1] * sizes.shape[1], dtype=torch.bool)
    for dim, size in enumerate(shape[1:]):
        bounds = sizes[:, dim].reshape(-1, *[1] * sizes.shape[1])
        places = torch.arange(size).reshape(size, *[1] * (sizes.shape[1] - dim - 1))
        mask = mask & (places < bounds)
    return mask.expand(shape)


def from_padded(padded: Tensor, cpu_nested_shape_example: Tensor, fuse: bool = False) -> Tensor:
    """The elements of a padded tensor, one behind the other. Their sizes are on the host, so that
    nothing is read back."""
    if fuse:
        padded = padded.permute(0, 2, 1, 3).flatten(2)
    sizes = cpu_nested_shape_example
    places = _inside(sizes, padded.shape).flatten().nonzero().squeeze(1)
    buffer = padded.reshape(-1).index_select(0, places.to(padded.device))
    return _of_buffer(buffer, sizes)


def _of_buffer(buffer: Tensor, sizes: Tensor) -> Tensor:
    strides, offsets = _aten._nested_compute_contiguous_strides_offsets(sizes)
    nested: Tensor = _aten._nested_view_from_buffer(buffer, sizes, strides, offsets)
    return nested


def sum_backward(
    grad: Tensor, nested_self: Tensor, dim: list[int] | None, keepdim: bool = False
) -> Tensor:
    """The gradient of a sum over the last dim, for each element of the rows that were summed."""
    pairs = zip(grad.unbind(), nested_self.unbind(), strict=True)
    parts = [(one if keepdim else one.unsqueeze(-1)).expand(like.shape) for one, like in pairs]
    return _of_buffer(
        torch.cat([part.reshape(-1) for part in parts]), nested_self._nested_tensor_size()
    )


def to_padded(self: Tensor, padding: float, output_size: list[int] | None = None) -> Tensor:
    """The elements as one dense tensor. PyTorch's kernel knows no size where all are empty."""
    if self.numel():
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.NestedTensorCPU)
        dense: Tensor = _aten.to_padded_tensor.default.redispatch(keys, self, padding, output_size)
        return dense
    sizes = self._nested_tensor_size()
    shape = output_size or [len(sizes), *sizes.amax(0).tolist()]
    return torch.full(shape, padding, dtype=self.dtype, device=self.device)


def _padded(tensor: Tensor) -> Tensor:
    return tensor.contiguous().to_padded_tensor(0.0)


def matmul(self: Tensor, mat2: Tensor) -> Tensor:
    """Products element by element; what is padded adds zeros."""
    if not (self.is_nested and mat2.is_nested):
        raise RuntimeError("matmul: expected both to be nested, or none")
    if min(self.dim(), mat2.dim()) < 3 or self.dim() != mat2.dim():
        raise RuntimeError(
            "matmul: expected nested tensors of one rank, at least 3, but got ranks "
            f"{self.dim()} and {mat2.dim()}"
        )
    rows, columns = self._nested_tensor_size(), mat2._nested_tensor_size()
    if not (
        len(rows) == len(columns)
        and torch.equal(rows[:, -1], columns[:, -2])
        and torch.equal(rows[:, :-2], columns[:, :-2])
    ):
        raise RuntimeError("matmul: these nested tensors cannot be multiplied with each other")
    sizes = torch.cat([rows[:, :-1], columns[:, -1:]], 1)
    return from_padded(_padded(self) @ _padded(mat2), sizes)


def total(self: Tensor, dim: list[int] | None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum over the last dim, which must be kept, in the dtype of the elements."""
    last = self.dim() - 1
    if dim is None or [one % self.dim() for one in dim] != [last] or not keepdim:
        raise RuntimeError("sum of a nested tensor: expected dim=-1 and keepdim=True")
    if self.dtype == torch.bool:
        raise NotImplementedError("sum of a nested tensor: not implemented for booleans")
    sizes = self._nested_tensor_size().clone()
    sizes[:, -1] = 1
    return from_padded(_padded(self).sum(-1, True, dtype=dtype or self.dtype), sizes)


def _rows(nested: Tensor, shape: list[int]) -> Tensor:
    buffer: Tensor = nested.contiguous().values()
    return buffer.view(-1, *shape)


def layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalises over the last dims, which all elements have in common."""
    if weight is None or bias is None:
        raise RuntimeError("layer_norm of a nested tensor: expected a weight and a bias")
    rows = _rows(input, normalized_shape)
    output, mean, rstd = _aten.native_layer_norm(rows, normalized_shape, weight, bias, eps)
    return _of_buffer(output.reshape(-1), input._nested_tensor_size()), mean, rstd


def layer_norm_backward(
    grad_out: Tensor, input: Tensor, normalized_shape: list[int], *args: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of `layer_norm`."""
    rows = [_rows(one, normalized_shape) for one in (grad_out, input)]
    grad, *others = _aten.native_layer_norm_backward(*rows, normalized_shape, *args)
    if grad is not None:
        grad = _of_buffer(grad.reshape(-1), input._nested_tensor_size())
    return grad, *others


def _padding(nested: Tensor) -> Tensor:
    """True where a padded copy holds nothing, by element and position."""
    lengths = nested._nested_tensor_size()[:, :1]
    return (torch.arange(int(lengths.max())) >= lengths).to(nested.device)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads among the positions of each element."""
    if mask is not None:
        raise RuntimeError("attention of nested tensors takes no mask: it masks what is padded")
    outputs, seen = _dense.multi_head_attention(
        _padded(query),
        _padded(key),
        _padded(value),
        embed_dim,
        num_head,
        qkv_weight,
        qkv_bias,
        proj_weight,
        proj_bias,
        _padding(key),
        need_weights,
        average_attn_weights,
        mask_type=1,
    )
    return from_padded(outputs, query._nested_tensor_size()), seen


def encoder_layer(src: Tensor, *args: Any) -> Tensor:
    """One encoder layer of a transformer, for inference."""
    if len(args) > 17 and args[17] is not None:
        raise RuntimeError("a layer on nested tensors takes no mask: it masks what is padded")
    given: Any = (_padded(src), *args[:17], _padding(src), 1)
    output = _dense.transformer_encoder_layer(*given)
    return from_padded(output, src._nested_tensor_size())


register(
    NESTED,
    {
        "_native_multi_head_attention": attention,
        "_nested_sum_backward": sum_backward,
        "_transformer_encoder_layer_fwd": encoder_layer,
        "matmul": matmul,
        "native_layer_norm": layer_norm,
        "native_layer_norm_backward": layer_norm_backward,
        "sum.dim_IntList": total,
        "to_padded_tensor": to_padded,
    },
)
register(DENSE, {"_nested_from_padded": from_padded})
