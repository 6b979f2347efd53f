"""A vision transformer (Dosovitskiy et al. 2020): classifies stripes.

usage: python examples/models/vit.py [--device tpu|cuda|cpu] [--steps N] [--no-compare]
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Task, main, stripes

KINDS = 10


class Block(nn.Module):
    """Attention and a two-layer network, each after a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [n, patches, width] to the same shape."""
        n, patches, width = x.shape
        heads = self.qkv(self.norm1(x)).view(n, patches, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(n, patches, width))
        result: torch.Tensor = x + self.mlp(self.norm2(x))
        return result


class VisionTransformer(nn.Module):
    """Maps images [n, 3, size, size] to logits [n, kinds], read off a token of its own."""

    def __init__(
        self, size: int = 32, patch: int = 8, width: int = 64, heads: int = 4, layers: int = 4
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, KINDS)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1)
        logits: torch.Tensor = self.head(self.norm(self.blocks(x + self.positions))[:, 0])
        return logits


def loss(model: nn.Module, images: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of the kinds, a tenth of it spread over all of them."""
    return F.cross_entropy(model(images), kinds, label_smoothing=0.1)


TASK = Task(
    name="ViT",
    model=VisionTransformer,
    batch=partial(stripes, batch=8, size=32, kinds=KINDS),
    loss=loss,
)

if __name__ == "__main__":
    main(TASK)
