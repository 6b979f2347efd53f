"""A denoising diffusion UNet (Ho et al. 2020): learns which noise was mixed into a picture.

usage: python examples/models/diffusion.py [--device tpu|cuda|cpu] [--steps N] [--no-compare]
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Batch, Task, main, stripes

TIMES = 100


class Residual(nn.Module):
    """Two convolutions that are told the time, added to their input."""

    def __init__(self, before: int, after: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, before), nn.GroupNorm(4, after)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.time = nn.Linear(time, after)
        self.shortcut = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Maps [n, before, h, w] and the time's embedding [n, time] to [n, after, h, w]."""
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        result: torch.Tensor = self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))
        return result


class Attention(nn.Module):
    """Pixels attend to pixels; the result is added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [n, width, h, w] to the same shape."""
        n, width, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, 3, width, h * w).transpose(2, 3).unbind(1)
        weights = (q @ k.transpose(1, 2) / math.sqrt(width)).softmax(-1)
        result: torch.Tensor = x + self.out((weights @ v).transpose(1, 2).reshape(n, width, h, w))
        return result


class DiffusionUNet(nn.Module):
    """Maps noisy pictures [n, 3, h, w] and times, int64 [n], to the noise in them."""

    alphas: torch.Tensor

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width, time, wide = width, 4 * width, 2 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down1 = Residual(width, width, time)
        self.shrink = nn.Conv2d(width, width, 3, 2, 1)
        self.down2 = Residual(width, wide, time)
        self.middle1, self.attention = Residual(wide, wide, time), Attention(wide)
        self.middle2 = Residual(wide, wide, time)
        self.up2 = Residual(2 * wide, wide, time)
        self.grow = nn.Conv2d(wide, width, 3, padding=1)
        self.up1 = Residual(2 * width, width, time)
        self.last = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 3, 1, 1))
        self.register_buffer("alphas", torch.cumprod(1 - torch.linspace(1e-3, 0.1, TIMES), 0))

    def embed(self, times: torch.Tensor) -> torch.Tensor:
        """Returns sines and cosines of the times, f32 [n, width]."""
        half = self.width // 2
        places = torch.arange(half, dtype=torch.float32, device=times.device)
        angles = times[:, None] * torch.exp(-math.log(10000.0) * places / half)
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def forward(self, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Returns the noise that the model sees."""
        time = self.time(self.embed(times))
        high = self.down1(self.first(x), time)
        low = self.down2(self.shrink(high), time)
        x = self.middle2(self.attention(self.middle1(low, time)), time)
        x = self.up2(torch.cat([x, low], dim=1), time)
        x = self.grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        noise: torch.Tensor = self.last(self.up1(torch.cat([x, high], dim=1), time))
        return noise


def batch(generator: torch.Generator, size: int = 4, side: int = 16) -> Batch:
    """Returns pictures, the noise to mix in, and how late it is."""
    pictures, _ = stripes(generator, size, side, 10)
    times = torch.randint(0, TIMES, (size,), generator=generator)
    return pictures, torch.randn(pictures.shape, generator=generator), times


def loss(
    model: nn.Module, pictures: torch.Tensor, noise: torch.Tensor, times: torch.Tensor
) -> torch.Tensor:
    """The mean square of what the model says of the noise less the noise."""
    assert isinstance(model, DiffusionUNet)
    kept = model.alphas[times][:, None, None, None]
    noisy = kept.sqrt() * pictures + (1 - kept).sqrt() * noise
    return F.mse_loss(model(noisy, times), noise)


TASK = Task(name="diffusion UNet", model=DiffusionUNet, batch=batch, loss=loss)

if __name__ == "__main__":
    main(TASK)
