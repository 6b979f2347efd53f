"""Generates text with a key-value cache: every step computes one character's attention only.

usage: python examples/generate_kv.py [--device tpu|cuda|cpu] [--length N]
Takes the weights that train_gpt.py left in out/gpt.pt, or trains for a moment. The cache has a
fixed size and the position is a tensor, so that all steps run the same program.
"""

import argparse
import time
from pathlib import Path

import torch
from gpt import GPT, Config, Text
from rich.console import Console
from train_gpt import batches, train

DEVICE = "tpu"

console = Console()


@torch.inference_mode()
def generate(model: GPT, prompt: torch.Tensor, length: int, device: str) -> torch.Tensor:
    """Continues a prompt, int64 [n], greedily; returns int64 [length] on the CPU.

    n + length must not exceed the model's context.
    """
    model.eval()
    caches = model.new_caches(1, device)
    ids = prompt.to(device)[None]
    position = torch.arange(ids.shape[1], device=device)
    written = []
    for _ in range(length):
        following = model(ids, caches, position)[:, -1:].argmax(-1)
        written.append(following[0])
        position, ids = position[-1:] + 1, following
    return torch.cat(written).cpu()


@torch.inference_mode()
def generate_slowly(model: GPT, prompt: torch.Tensor, length: int) -> torch.Tensor:
    """The same without a cache, on the model's own device: the reference."""
    ids = prompt[None]
    for _ in range(length):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
    return ids[0, len(prompt) :]


def load(path: Path, data: torch.Tensor) -> GPT:
    """Returns a trained model on the CPU."""
    config = Config()
    if path.exists():
        model = GPT(config)
        model.load_state_dict(torch.load(path, map_location="cpu"))
        return model
    console.print(f"no {path}: training for a moment on the CPU")
    model_or_none = train("cpu", batches(data, 40, 16, config.context), config).model
    assert model_or_none is not None
    return model_or_none


def main() -> None:
    """Reads the command line, generates twice, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default=DEVICE)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--weights", type=Path, default=Path("out/gpt.pt"))
    args = parser.parse_args()

    text = Text()
    model = load(args.weights, text.corpus()).eval()
    prompt = text.encode("    def __init__(self,")
    expected = generate_slowly(model, prompt, args.length)
    model.to(args.device)
    generate(model, prompt, 3, args.device)  # compiles
    start = time.perf_counter()
    written = generate(model, prompt, args.length, args.device)
    speed = args.length / (time.perf_counter() - start)
    console.print(text.decode(prompt) + text.decode(written), markup=False, highlight=False)
    same = torch.equal(written, expected)
    console.print(f"{speed:,.0f} characters/s on {args.device}; as on the CPU: {same}")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
