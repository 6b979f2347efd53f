"""Tells PyTorch's flop counter what attention costs here: what it costs on other devices."""

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten


def register() -> None:
    """Registers the formulas of PyTorch's other fused attention for this device's."""
    for end in ("", "_backward"):
        other = getattr(aten, f"_scaled_dot_product_flash_attention{end}")
        ours = getattr(aten, f"_scaled_dot_product_fused_attention_overrideable{end}")
        flop_registry[ours] = flop_registry[other]
