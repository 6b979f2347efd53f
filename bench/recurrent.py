"""Recurrent layers: a step beside the CPU's, and training on packed texts of random lengths.

`steps` prints milliseconds of a step and of inference on both devices, medians; `texts` seconds of
30 steps on texts whose lengths vary, the programs they need, and milliseconds of the last steps.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
STEPS, BATCH, WORDS, LABELS = 35, 20, 1000, 5


def _median_ms(work: Callable[[], object], times: int = 15) -> float:
    for _ in range(8):
        work()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def time_steps(kind: str, size: int, device: str) -> tuple[float, float]:
    """Milliseconds of a training step, and of inference, of two layers on [35, 20, size]."""
    torch.manual_seed(0)
    layers = KINDS[kind](size, size, 2).to(device)
    x = torch.randn(STEPS, BATCH, size).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)

    def train() -> None:
        optimizer.zero_grad()
        loss = layers(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    def infer() -> None:
        with torch.no_grad():
            layers(x)[0].sum().item()

    return _median_ms(train), _median_ms(infer)


class Tagger(nn.Module):
    """Labels each word by what a recurrent network of both directions makes of a packed text."""

    def __init__(self, kind: str, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size)
        self.layers = KINDS[kind](size, size, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * size, LABELS)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Returns logits [texts, words, labels]."""
        packed = pack_padded_sequence(
            self.words(words), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        return self.head(out)


def train_on_texts(kind: str, size: int, device: str, count: int) -> list[float]:
    """Seconds of each step."""
    torch.manual_seed(0)
    chance = random.Random(0)
    model = Tagger(kind, size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    taken = []
    for _ in range(count):
        lengths = torch.tensor([chance.randint(10, 100) for _ in range(BATCH)])
        words = torch.randint(WORDS, (BATCH, int(lengths.max())))
        labels = words % LABELS
        start = time.perf_counter()
        optimizer.zero_grad()
        logits = model(words.to(device), lengths).flatten(0, 1)
        loss = F.cross_entropy(logits, labels.to(device).flatten())
        loss.backward()
        optimizer.step()
        loss.item()
        taken.append(time.perf_counter() - start)
    return taken


def main() -> None:
    """Prints a line for each kind, size and device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["steps", "texts"])
    parser.add_argument("--kinds", default="lstm,gru")
    parser.add_argument("--sizes", default="64,200")
    parser.add_argument("--count", type=int, default=30)
    args = parser.parse_args()
    for kind in args.kinds.split(","):
        for size in map(int, args.sizes.split(",")):
            for device in ("cpu", "tpu"):
                name = f"{kind} {size} {device}:"
                if args.what == "steps":
                    step, inference = time_steps(kind, size, device)
                    print(f"{name} step {step:.2f} ms, inference {inference:.2f} ms", flush=True)
                    continue
                before = torch.tpu.metrics()["programs"]
                taken = train_on_texts(kind, size, device, args.count)
                programs = torch.tpu.metrics()["programs"] - before
                last = statistics.median(taken[-8:]) * 1e3
                print(f"{name} {sum(taken):.2f} s, {programs} programs, {last:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
