"""Architectures of Hugging Face's transformers: loss, outputs and gradients are the CPU's."""

import os

import pytest
import torch
from support import DEVICE, modes

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here needs the network
pytest.importorskip(
    "transformers", reason="needs scripts/requirements-models.txt (`make test-all`)"
)
import architectures
import experts

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


def weighed(x):
    """A loss of normalized numbers, whose squares have nearly one sum whatever they are."""
    return (x * torch.linspace(-1, 1, x.numel(), device=x.device).view_as(x)).mean()


def run(model, batch, device):
    model = model.to(device)
    batch = {name: x.to(device) if hasattr(x, "to") else x for name, x in batch.items()}
    output = model(**batch)
    loss = output.loss if "loss" in output else weighed(output.last_hidden_state)
    loss.backward()
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


def in_double(build, row):
    """What the CPU computes in f64, for which grouped products have no kernel."""
    model, batch = build(row)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return [
        {name: x.float() for name, x in found.items()}
        for found in run(model.double(), batch, "cpu")
    ]


def compare(build, row, mode):
    """Runs a row's model on the CPU and on the device, in evaluation; returns the device's.

    Its numbers are as near as TOLERANCE to the CPU's, or to those of f64 as near as the CPU's are,
    but for TOLERANCE.
    """
    expected = run(*build(row), "cpu")
    if DEVICE == "tpu":
        torch.tpu.eager_mode = mode
    model, batch = build(row)
    actual = run(model, batch, DEVICE)
    exact = None
    for i, (got, want) in enumerate(zip(actual, expected, strict=True)):
        off = gaps(got, want)
        if max(off.values()) > TOLERANCE:
            exact = exact or in_double(build, row)
            ours, theirs = gaps(got, exact[i]), gaps(want, exact[i])
            off = {name: min(off[name], max(0.0, ours[name] - theirs[name])) for name in off}
        worst = max(off, key=off.__getitem__)
        assert all(gap <= TOLERANCE for gap in off.values()), f"{worst}: {off[worst]:.1e}"
    return model


@pytest.mark.parametrize("mode", [mode for mode in modes() if mode != "debug"])
@pytest.mark.parametrize("row", architectures.ARCHITECTURES, ids=lambda row: row.model_type)
def test_architecture(row, mode):
    compare(architectures.build, row, mode)


def test_there_are_forty():
    assert len({row.model_type for row in architectures.ARCHITECTURES}) >= 40


# -- Mixtures of experts --

EVERYDAY = ("mixtral", "deepseek_v3", "gpt_oss", "olmoe", "qwen3_next")


def generate(model, batch, device):
    prompt = batch["input_ids"][:, :6].to(device)
    mask = torch.ones_like(prompt)
    with torch.no_grad():
        return model.generate(prompt, attention_mask=mask, max_new_tokens=4, do_sample=False).cpu()


@pytest.mark.parametrize(
    "row",
    [
        row if row.model_type in EVERYDAY else pytest.param(row, marks=pytest.mark.sweep)
        for row in experts.MIXTURES
    ],
    ids=lambda row: row.model_type,
)
def test_mixture_of_experts(row):
    model = compare(experts.build, row, modes()[-1])
    assert any("expert" in name for name, _ in model.named_parameters())
    on_cpu, batch = experts.build(row)
    if "labels" in batch:
        assert torch.equal(generate(model, batch, DEVICE), generate(on_cpu, batch, "cpu"))


def test_every_mixture_of_the_library_is_there():
    assert experts.model_types() <= {row.model_type for row in experts.MIXTURES}
