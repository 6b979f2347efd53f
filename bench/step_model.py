"""The training step that the step benchmarks share: a 4-layer GPT, cross entropy, AdamW.

usage: python bench/step_model.py FOLDER [--cases step-s,step-m]
Writes FOLDER/CASE.npz for bench/step_jax.py: initial weights by their names in the model, the
batch (ids, targets), and the losses of six steps on PyTorch's CPU device (losses).

step-s  width 32, batch 2 x 16 tokens: the host decides
step-m  width 128, batch 4 x 64 tokens
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, LAYERS, CONTEXT = 512, 4, 512
LEARNING_RATE = 1e-3
LOSSES = 6


@dataclass(frozen=True)
class Case:
    """Sizes of one benchmark; `heads` divides `width`."""

    width: int
    heads: int
    batch: int
    tokens: int


CASES = {"step-s": Case(32, 2, 2, 16), "step-m": Case(128, 4, 4, 64)}


class Block(nn.Module):
    """Causal attention, then a gated network; both are normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 4 * width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.register_buffer("mask", torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, tokens, width] to the same shape."""
        batch, tokens, width = x.shape
        size = width // self.heads
        q, k, v = (
            part.view(batch, tokens, self.heads, size).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        scores = (q @ k.transpose(-2, -1)) * size**-0.5
        weights = scores.masked_fill(self.mask[:tokens, :tokens], float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GPT(nn.Module):
    """Predicts each next token; the order of its modules fixes its initial weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        """Maps ids, int64 [batch, tokens], to logits [batch, tokens, VOCABULARY]."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Step:
    """A model with its optimizer and its one batch, on a device; calling it trains one step."""

    def __init__(self, case: Case, device: str, **optimizer: bool) -> None:
        torch.manual_seed(0)
        self.model = GPT(case.width, case.heads).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, **optimizer)
        shape = (case.batch, case.tokens)
        self.ids, self.targets = (
            torch.randint(VOCABULARY, shape).to(device) for _ in ("ids", "targets")
        )

    def __call__(self) -> Tensor:
        """Returns the loss before the step."""
        self.optimizer.zero_grad()
        logits = self.model(self.ids)
        loss = F.cross_entropy(logits.flatten(0, 1), self.targets.flatten())
        loss.backward()
        result = loss.detach()
        del loss  # torch.compile traces the backward of what nobody can ask for another one
        self.optimizer.step()
        return result


def main() -> None:
    """Writes one file per case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", default=",".join(CASES))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.cases.split(","):
        step = Step(CASES[name], "cpu")
        arrays = {
            key: value.detach().numpy().copy() for key, value in step.model.named_parameters()
        }
        arrays |= {"ids": step.ids.numpy(), "targets": step.targets.numpy()}
        losses = [step().item() for _ in range(LOSSES)]
        np.savez(args.folder / f"{name}.npz", losses=np.array(losses), **arrays)


if __name__ == "__main__":
    main()
