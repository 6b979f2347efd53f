"""ResNet-18 (He et al. 2015), in the form that torchvision has, here narrow: classifies stripes.

usage: python examples/models/resnet.py [--device tpu|cuda|cpu] [--steps N] [--no-compare]
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Task, main, stripes

KINDS = 10


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is projected where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential()
        if stride != 1 or before != after:
            projection = nn.Conv2d(before, after, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [n, before, h, w] to [n, after, h / stride, w / stride]."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.downsample(x)
        result: torch.Tensor = self.relu(out)
        return result


class ResNet18(nn.Module):
    """Maps images [n, 3, h, w] to logits [n, kinds]; the usual width is 64."""

    def __init__(self, kinds: int = KINDS, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        layers: list[nn.Module] = []
        before = width
        for after, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            layers += [Block(before, after, stride), Block(after, after, 1)]
            before = after
        self.layers = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(before, kinds)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Block):  # each block begins as its shortcut
                nn.init.zeros_(module.bn2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the logits."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        logits: torch.Tensor = self.fc(self.avgpool(self.layers(x)).flatten(1))
        return logits


def loss(model: nn.Module, images: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of the kinds."""
    return F.cross_entropy(model(images), kinds)


TASK = Task(
    name="ResNet-18",
    model=ResNet18,
    batch=partial(stripes, batch=8, size=32, kinds=KINDS),
    loss=loss,
    optimizer=partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-4),
    rate=0.003,
)

if __name__ == "__main__":
    main(TASK)
