"""Trains a convolutional network on the handwritten digits that come with scikit-learn.

usage: python examples/mnist_cnn.py [--device tpu|cuda|cpu] [--epochs N]
"""

import argparse
import time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "tpu"
GOAL = 0.95

console = Console()


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Returns 1,437 images to train on and 360 to test on: float32 [1, 8, 8] and their digit."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return TensorDataset(x[:1437], y[:1437]), TensorDataset(x[1437:], y[1437:])


def network() -> nn.Sequential:
    """Two convolutions, two linear layers: float32 [n, 1, 8, 8] to logits [n, 10]."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)),
    )


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: str) -> float:
    """Returns the share of images whose digit is found."""
    model.eval()
    x, y = (part.to(device) for part in data.tensors)
    return float((model(x).argmax(1) == y).float().mean())


def train(device: str, epochs: int) -> float:
    """Trains a new network and returns its accuracy on the images it has not seen."""
    torch.manual_seed(0)
    training, testing = digits()
    pin = device != "cpu"
    loader = DataLoader(training, batch_size=64, shuffle=True, drop_last=True, pin_memory=pin)
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for _ in track(range(epochs), description=device, console=console):
        model.train()
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return accuracy(model, testing, device)


def main() -> None:
    """Reads the command line, trains and tests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    start = time.perf_counter()
    reached = train(args.device, args.epochs)
    seconds = time.perf_counter() - start
    console.print(f"{reached:.1%} of unseen digits on {args.device}, {seconds:.1f} s")
    raise SystemExit(0 if reached >= GOAL else 1)


if __name__ == "__main__":
    main()
