"""A language model of two LSTM layers (Zaremba et al. 2014): predicts the next character.

usage: python examples/models/lstm.py [--device tpu|cuda|cpu] [--steps N] [--no-compare]
"""

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Batch, Task, main, pieces


class LanguageModel(nn.Module):
    """Maps characters, int64 [n, length], to logits of the next one, [n, length, characters]."""

    def __init__(self, characters: int = 128, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, characters)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the logits; the state begins as zeros."""
        hidden, _ = self.lstm(self.embedding(ids))
        logits: torch.Tensor = self.head(hidden)
        return logits


def batch(generator: torch.Generator) -> Batch:
    """Returns pieces of text, one character longer than what the model reads."""
    return (pieces(generator, batch=8, length=33),)


def loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of each next character."""
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


TASK = Task(name="LSTM language model", model=LanguageModel, batch=batch, loss=loss, rate=5e-3)

if __name__ == "__main__":
    main(TASK)
