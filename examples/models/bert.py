"""BERT (Devlin et al. 2018): fills in characters that were left out, and says which text follows.

usage: python examples/models/bert.py [--device tpu|cuda|cpu] [--steps N] [--no-compare]
"""

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Batch, Task, main, pieces

CHARACTERS, PADDING, HIDDEN, START = 131, 128, 129, 130
IGNORED = -100


class Layer(nn.Module):
    """Attention and a two-layer network, each added to its input and normalised after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        """Maps [n, length, width] to the same; padding, bool [n, length], is not attended to."""
        attended, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        x = self.norm1(x + attended)
        result: torch.Tensor = self.norm2(x + self.down(F.gelu(self.up(x))))
        return result


class Bert(nn.Module):
    """Maps two texts in a row, int64 [n, length], and which is which, to what its heads say."""

    def __init__(self, length: int = 48, width: int = 64, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width, padding_idx=PADDING)
        self.positions, self.segments = nn.Embedding(length, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.bias = nn.Parameter(torch.zeros(CHARACTERS))
        self.follows = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(
        self, ids: torch.Tensor, segments: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns logits of characters, [n, length, characters], and of following, [n, 2]."""
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.characters(ids) + self.positions(places) + self.segments(segments)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, ids == PADDING)
        logits = F.linear(self.transform(x), self.characters.weight, self.bias)
        return logits, self.follows(x[:, 0])


def batch(generator: torch.Generator, size: int = 8, half: int = 23) -> Batch:
    """Returns ids, segments, what was left out (else IGNORED), and whether the second follows."""
    first, other = pieces(generator, size, 2 * half), pieces(generator, size, half)
    follows = torch.randint(0, 2, (size,), generator=generator)
    second = torch.where(follows[:, None] == 1, first[:, half:], other)
    start = torch.full((size, 1), START)
    ids = torch.cat([start, first[:, :half], start, second], dim=1)
    segments = (torch.arange(ids.shape[1]) > half).long().expand_as(ids).contiguous()
    ends = torch.randint(half + 2, ids.shape[1], (size, 1), generator=generator)
    ids = ids.masked_fill(torch.arange(ids.shape[1]) >= ends, PADDING)
    chosen = (torch.rand(ids.shape, generator=generator) < 0.15) & (ids < PADDING)
    return ids.masked_fill(chosen, HIDDEN), segments, ids.where(chosen, IGNORED), follows


def loss(
    model: nn.Module,
    ids: torch.Tensor,
    segments: torch.Tensor,
    targets: torch.Tensor,
    follows: torch.Tensor,
) -> torch.Tensor:
    """The cross-entropies of the characters left out and of the second text's following."""
    characters, following = model(ids, segments)
    missing = F.cross_entropy(characters.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return missing + F.cross_entropy(following, follows)


TASK = Task(name="BERT", model=Bert, batch=batch, loss=loss)

if __name__ == "__main__":
    main(TASK)
