"""Mixed precision under the names of `torch.cuda.amp`."""

from collections.abc import Callable
from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("tpu", ...)`; see there."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("tpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def autocast(
    enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True
) -> torch.autocast:
    """`torch.autocast("tpu", ...)`; see there. No class, of which Dynamo would know nothing."""
    return torch.autocast("tpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None
) -> Callable[..., Any]:
    """`torch.amp.custom_fwd(..., device_type="tpu")`; see there."""
    made: Callable[..., Any] = torch.amp.custom_fwd(fwd, device_type="tpu", cast_inputs=cast_inputs)
    return made


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.amp.custom_bwd(..., device_type="tpu")`; see there."""
    made: Callable[..., Any] = torch.amp.custom_bwd(bwd, device_type="tpu")
    return made
