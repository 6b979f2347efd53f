"""A small language model, its training in one process, and what other ways of it must equal."""

from threading import Lock

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LENGTH, WIDTH, HEADS, BATCH = 32, 16, 32, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.project = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.first(x)
        q, k, v = (
            one(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Language(nn.Module):
    """A small GPT. `places`: those of the tokens, all by default."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, places=None):
        places = torch.arange(LENGTH, device=tokens.device) if places is None else places
        x = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def made():
    with one_at_a_time:
        torch.manual_seed(0)
        return Language()


one_at_a_time = Lock()  # ranks may be threads, which draw from one generator


def batch(step):
    generator = torch.Generator().manual_seed(step % 4)
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)


def cross_entropy(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def learn(model, tokens):
    """Forward and backward; the loss."""
    loss = cross_entropy(model(tokens[:, :-1]), tokens[:, 1:])
    loss.backward()
    return loss


def train(model, steps, part, everyone, learn=learn, **options):
    """The losses of all ranks' parts together. options: the optimizer's."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, **options)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = learn(model, part(batch(step)))
        optimizer.step()
        losses.append(everyone(loss.detach()))
    return losses


def alone(steps):
    return train(made(), steps, lambda whole: whole, float)


def agree(losses, steps):
    expected = alone(steps)
    for one in losses:
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)
