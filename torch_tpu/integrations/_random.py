"""The device's random numbers as a part of a library's checkpoints."""

from pathlib import Path

import torch

from torch_tpu import tpu


def save(path: Path) -> None:
    """Writes the states of all devices' default generators."""
    torch.save(tpu.get_rng_state_all(), path)


def load(path: Path) -> None:
    """Sets them, if the checkpoint has them; one that was written elsewhere has not."""
    if path.exists():
        tpu.set_rng_state_all(torch.load(path, weights_only=True))
