"""A small character-level GPT, and text that every machine has: the standard library's sources."""

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

MODULES = ("argparse", "ast", "datetime", "decimal", "doctest", "inspect", "pathlib", "tarfile")

KeyValue = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Config:
    """Sizes: `context` and `vocabulary` in characters; `heads` must divide `width`."""

    vocabulary: int = 96
    context: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 4


class Text:
    """Printable characters as numbers 0..95; whatever else there is becomes a newline."""

    def __init__(self) -> None:
        self.characters = [chr(code) for code in range(32, 127)] + ["\n"]
        self.numbers = {character: number for number, character in enumerate(self.characters)}

    def encode(self, text: str) -> torch.Tensor:
        """Returns the characters' numbers, int64 [len(text)], on the CPU."""
        newline = self.numbers["\n"]
        return torch.tensor([self.numbers.get(character, newline) for character in text])

    def decode(self, numbers: torch.Tensor) -> str:
        """Returns the characters of a one-dimensional tensor."""
        return "".join(self.characters[number] for number in numbers.tolist())

    def corpus(self) -> torch.Tensor:
        """Returns some of Python's own sources, int64 [characters]."""
        folder = Path(sysconfig.get_paths()["stdlib"])
        paths = [folder / f"{name}.py" for name in MODULES]
        texts = [path.read_text(encoding="utf-8") for path in paths if path.exists()]
        if not texts:
            raise FileNotFoundError(f"no Python sources in {folder}")
        return self.encode("\n".join(texts))


class Block(nn.Module):
    """Attention over what came before, then a two-layer network; both add to their input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self,
        x: torch.Tensor,
        cache: KeyValue | None = None,
        position: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Maps [batch, length, width] to the same shape.

        cache: keys and values, [batch, heads, context, width / heads], that this call writes to at
        `position`, int64 [length], and attends to where `mask`, bool [length, context], is true.
        """
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3 * self.heads, width // self.heads)
        q, k, v = heads.transpose(1, 2).chunk(3, dim=1)
        if cache is not None and position is not None:
            k, v = cache[0].index_copy_(2, position, k), cache[1].index_copy_(2, position, v)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=cache is None)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return x


class GPT(nn.Module):
    """Predicts each next character of a text."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.characters = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.characters.weight
        self.apply(self._initialize)

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(
        self,
        ids: torch.Tensor,
        caches: list[KeyValue] | None = None,
        position: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Maps ids, int64 [batch, length <= context], to logits [batch, length, vocabulary].

        With caches (see `new_caches`), `position`, int64 [length], says where the ids stand.
        """
        places = torch.arange(self.config.context, device=ids.device)
        mask = None
        if position is None:
            position = places[: ids.shape[1]]
        elif caches is not None:
            mask = places <= position[:, None]
        x = self.characters(ids) + self.positions(position)
        for number, block in enumerate(self.blocks):
            x = block(x, caches[number] if caches else None, position, mask)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits

    def new_caches(self, batch: int, device: torch.device | str) -> list[KeyValue]:
        """Returns empty keys and values for every layer, [batch, heads, context, width/heads]."""
        c = self.config
        shape = (batch, c.heads, c.context, c.width // c.heads)
        return [
            (torch.zeros(shape, device=device), torch.zeros(shape, device=device))
            for _ in self.blocks
        ]
