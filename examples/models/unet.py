"""U-Net (Ronneberger et al. 2015): marks the pixels of a picture that belong to a disc.

usage: python examples/models/unet.py [--device tpu|cuda|cpu] [--steps N] [--no-compare]
"""

from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Batch, Task, main


def double(before: int, after: int) -> nn.Sequential:
    """Two convolutions that keep the size."""
    return nn.Sequential(
        *(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
        *(nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
    )


class UNet(nn.Module):
    """Maps pictures [n, 1, h, w] to logits of the same shape; h and w are multiples of 8."""

    def __init__(self, width: int = 8, depth: int = 3) -> None:
        super().__init__()
        sizes = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            double(a, b) for a, b in zip([1, *sizes[:-2]], sizes[:-1], strict=True)
        )
        self.bottom = double(sizes[-2], sizes[-1])
        pairs = list(pairwise(sizes))[::-1]
        self.widen = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(double(b, a) for a, b in pairs)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a logit for each pixel."""
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for widen, block in zip(self.widen, self.up, strict=True):
            x = block(torch.cat([skips.pop(), widen(x)], dim=1))
        logits: torch.Tensor = self.head(x)
        return logits


def discs(generator: torch.Generator, batch: int = 4, size: int = 32) -> Batch:
    """Returns noisy pictures of discs and where these are, both f32 [batch, 1, size, size]."""
    x, y, radius = (torch.rand(3, batch, 1, 1, generator=generator) * 0.5 + 0.25) * size
    places = torch.arange(size)
    inside = (places - x) ** 2 + (places[:, None] - y) ** 2 < (radius / 2) ** 2
    mask = inside[:, None].float()
    return mask + 0.3 * torch.randn(mask.shape, generator=generator), mask


def loss(model: nn.Module, pictures: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Cross-entropy a pixel, and one minus the overlap (Dice)."""
    logits = model(pictures)
    share = logits.sigmoid()
    overlap = 2 * (share * mask).sum() / (share.sum() + mask.sum())
    result: torch.Tensor = F.binary_cross_entropy_with_logits(logits, mask) + 1 - overlap
    return result


TASK = Task(
    name="U-Net",
    model=UNet,
    batch=discs,
    loss=loss,
    optimizer=partial(torch.optim.SGD, momentum=0.9),
    rate=0.05,
)

if __name__ == "__main__":
    main(TASK)
