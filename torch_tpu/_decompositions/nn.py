"""Layers: attention fused for inference, batch normalization, unfused convolutions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_tpu._decompositions import decomposes

aten = torch.ops.aten

# -- Batch normalization across devices --


def _blend(running: Tensor | None, value: Tensor, momentum: float) -> None:
    if running is not None:
        running.mul_(1 - momentum).add_(value.to(running.dtype), alpha=momentum)


@decomposes("batch_norm_gather_stats_with_counts")
def gather_statistics_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Joins the statistics of several devices, and updates the running ones."""
    weights = counts.to(mean.dtype).reshape(-1, 1)
    total = weights.sum()
    joint = (weights * mean).sum(0) / total
    variances = invstd.square().reciprocal() - eps
    squares = (weights * (variances + (mean - joint).square())).sum(0)
    _blend(running_mean, joint, momentum)
    _blend(running_var, squares / (total - 1), momentum)
    return joint, (squares / total + eps).rsqrt()


@decomposes("batch_norm_gather_stats")
def gather_statistics(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    count: int,
) -> tuple[Tensor, Tensor]:
    """Joins the statistics of several devices that saw equally much."""
    counts = mean.new_full((mean.shape[0],), count)
    return gather_statistics_with_counts(
        input, mean, invstd, running_mean, running_var, momentum, eps, counts
    )


@decomposes("batch_norm_update_stats")
def update_statistics(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel, and the running ones updated."""
    dims = [dim for dim in range(input.dim()) if dim != 1]
    variance, mean = torch.var_mean(input, dims, correction=0)
    count = input.numel() // input.shape[1]
    _blend(running_mean, mean, momentum)
    _blend(running_var, variance * (count / max(count - 1, 1)), momentum)
    return mean, variance


# -- Fused transformer layers --


@decomposes("_transform_bias_rescale_qkv")
def split_heads(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, scaled, keys, and values of each head."""
    batch, length, width = qkv.shape
    parts = (qkv + qkv_bias).reshape(batch, length, 3, num_heads, width // 3 // num_heads)
    query, key, value = (part.contiguous() for part in parts.permute(2, 0, 3, 1, 4).unbind(0))
    return query / query.shape[-1] ** 0.5, key, value


@decomposes("_native_multi_head_attention")
def multi_head_attention(
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
    """Attention of several heads with its projections."""
    parts = zip((query, key, value), qkv_weight.chunk(3), strict=True)
    qkv = torch.cat([part @ weight.mT for part, weight in parts], -1)
    q, k, v = split_heads(qkv, qkv_bias, num_head)
    scores = q @ k.mT
    if mask is None:
        weights = scores.softmax(-1)
    else:
        weights = aten._masked_softmax(scores, mask, scores.dim() - 1, mask_type)
    joined = (weights @ v).transpose(1, 2).flatten(2)
    output = F.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return output, None
    return output, weights.mean(1) if average_attn_weights else weights


@decomposes("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """One encoder layer of a transformer, for inference."""

    def first_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type
        )[0]

    def feed_forward(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        inner = F.gelu(inner) if use_gelu else F.relu(inner)
        return F.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first_norm(src))
        return x + feed_forward(second_norm(x))
    x = first_norm(src + attend(src))
    return second_norm(x + feed_forward(x))


# -- Convolutions by their CPU names --


@decomposes("_slow_conv2d_forward", "slow_conv3d_forward")
def convolution_forward(
    self: Tensor,
    weight: Tensor,
    kernel_size: list[int],
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
) -> Tensor:
    """Convolution."""
    ones, zeros = [1] * len(stride), [0] * len(stride)
    return torch.convolution(self, weight, bias, stride, padding, ones, False, zeros, 1)


@decomposes("_slow_conv2d_backward.output_mask")
def convolution_backward(
    grad_output: Tensor,
    self: Tensor,
    weight: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    output_mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of a convolution."""
    channels = [weight.shape[0]]
    return aten.convolution_backward(
        grad_output, self, weight, channels, stride, padding, [1, 1], False, [0, 0], 1, output_mask
    )


@decomposes("slow_conv_dilated2d", "slow_conv_dilated3d")
def dilated_convolution(
    self: Tensor,
    weight: Tensor,
    kernel_size: list[int],
    bias: Tensor | None = None,
    stride: list[int] = [1],  # noqa: B006
    padding: list[int] = [0],  # noqa: B006
    dilation: list[int] = [1],  # noqa: B006
) -> Tensor:
    """Convolution with a dilated kernel."""
    zeros = [0] * len(kernel_size)
    return torch.convolution(self, weight, bias, stride, padding, dilation, False, zeros, 1)


@decomposes("slow_conv_transpose2d", "slow_conv_transpose3d")
def transposed_convolution(
    self: Tensor,
    weight: Tensor,
    kernel_size: list[int],
    bias: Tensor | None = None,
    stride: list[int] = [1],  # noqa: B006
    padding: list[int] = [0],  # noqa: B006
    output_padding: list[int] = [0],  # noqa: B006
    dilation: list[int] = [1],  # noqa: B006
) -> Tensor:
    """Transposed convolution."""
    return torch.convolution(self, weight, bias, stride, padding, dilation, True, output_padding, 1)


# -- Fused steps --


@decomposes("_add_relu.Tensor", "_add_relu.Scalar")
def add_relu(self: Tensor, other: Tensor, alpha: float = 1) -> Tensor:
    """The sum, 0 where it is negative."""
    return torch.relu(torch.add(self, other, alpha=alpha))


@decomposes("_aminmax")
def least_and_greatest(self: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest element."""
    return torch.aminmax(self)


@decomposes("_aminmax.dim")
def least_and_greatest_along(
    self: Tensor, dim: int, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The least and the greatest element along one dimension."""
    return torch.aminmax(self, dim=dim, keepdim=keepdim)


@decomposes("glu_backward_jvp")
def glu_gradient_tangent(
    grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int
) -> Tensor:
    """Directional derivative of the gated linear unit's gradient."""
    a, b = x.chunk(2, dim)
    da, db = dx.chunk(2, dim)
    gate = b.sigmoid()
    slope = gate * (1 - gate)
    through_a = dgrad_glu * gate + grad_glu * slope * db
    through_b = slope * (dgrad_glu * a + grad_glu * (da + a * (1 - 2 * gate) * db))
    return torch.cat([through_a, through_b], dim)


@decomposes("_weight_int8pack_mm")
def int8_product(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """Product with a transposed matrix of bytes and a scale for each of its rows."""
    return (self.float() @ mat2.float().mT * scales.float()).to(self.dtype)


@decomposes("_embedding_bag_backward")
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    """The sparse gradient of a table, which its row cannot express."""
    if not sparse:
        return NotImplemented
    return aten._embedding_bag_sparse_backward(
        grad,
        indices,
        offsets,
        offset2bag,
        bag_size,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


# -- Attention by the name of CUDA's kernel, for which DTensor has rules --


@decomposes("_scaled_dot_product_efficient_attention")
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output, and of each row of weights the logarithm of its divisor, without padding."""
    found = aten._scaled_dot_product_fused_attention_overrideable(
        query, key, value, attn_bias, dropout_p, is_causal, False, scale=scale
    )
    divisors = found[1] if compute_log_sumexp else found[1][..., :0]
    return found[0], divisors, found[6], found[7]


@decomposes("_scaled_dot_product_efficient_attention_backward")
def attend_back(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """Its gradients, also for rows whose divisors are those of more keys than these."""
    grads: tuple[Tensor, ...] = aten._scaled_dot_product_fused_attention_overrideable_backward(
        grad_out,
        query,
        key,
        value,
        attn_bias,
        grad_input_mask,
        out,
        logsumexp,
        None,
        None,
        query.shape[-2],
        key.shape[-2],
        dropout_p,
        is_causal,
        philox_seed,
        philox_offset,
        scale=scale,
    )
    return grads


# -- Normalization --


@decomposes("_batch_norm_with_update")
def batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Batch normalization that updates the running statistics; nothing is reserved."""
    output, mean, rstd = aten._native_batch_norm_legit(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return output, mean, rstd, input.new_empty(0, dtype=torch.uint8)
