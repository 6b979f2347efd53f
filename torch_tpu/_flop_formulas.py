"""Tells PyTorch's flop counter what attention costs here: what it costs on other devices."""

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten


def register() -> None:
    """Registers the formulas of PyTorch's other fused attention for this device's."""
    for ours, other in (
        (
            aten._scaled_dot_product_fused_attention_overrideable,
            aten._scaled_dot_product_flash_attention,
        ),
        (
            aten._scaled_dot_product_fused_attention_overrideable_backward,
            aten._scaled_dot_product_flash_attention_backward,
        ),
    ):
        flop_registry[ours] = flop_registry[other]
