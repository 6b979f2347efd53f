"""Architectures of Hugging Face's transformers: loss, outputs and gradients are the CPU's."""

import os

import pytest
import torch
from support import DEVICE, modes

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here needs the network
pytest.importorskip(
    "transformers", reason="needs scripts/requirements-models.txt (`make test-all`)"
)
from architectures import ARCHITECTURES, build

pytestmark = pytest.mark.slow

# A tensor's difference, as a share of its own size: both devices add the same f32 numbers in
# other orders, through some tens of layers.
TOLERANCE = 1e-5
# Gradients that cancel to nothing (a key's bias under softmax) are only rounding: what they are
# compared with is never less than this share of the model's largest gradient.
FLOOR = 1e-3


def floats(output):
    """The floating-point tensors of a model's output that are not lists or caches."""
    tensors = {name: x for name, x in output.items() if isinstance(x, torch.Tensor)}
    return {name: x for name, x in tensors.items() if x.is_floating_point()}


def run(row, device):
    model, batch = build(row)
    model = model.to(device)
    batch = {name: x.to(device) if hasattr(x, "to") else x for name, x in batch.items()}
    output = model(**batch)
    output.loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    outputs = {name: x.detach().cpu() for name, x in floats(output).items()}
    return outputs, {name: x.cpu() for name, x in gradients.items()}


def gaps(got, want):
    """Returns how far each tensor is off, as a share of its size or of FLOOR's."""
    assert list(got) == list(want)
    floor = FLOOR * max(float(x.norm()) for x in want.values())
    return {
        name: float((got[name] - x).norm()) / max(float(x.norm()), floor)
        for name, x in want.items()
    }


@pytest.mark.parametrize("mode", [mode for mode in modes() if mode != "debug"])
@pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.model_type)
def test_architecture(row, mode):
    expected = run(row, "cpu")
    if DEVICE == "tpu":
        torch.tpu.eager_mode = mode
    actual = run(row, DEVICE)
    for got, want in zip(actual, expected, strict=True):
        off = gaps(got, want)
        worst = max(off, key=off.__getitem__)
        assert all(gap <= TOLERANCE for gap in off.values()), f"{worst}: {off[worst]:.1e}"


def test_there_are_forty():
    assert len({row.model_type for row in ARCHITECTURES}) >= 40
