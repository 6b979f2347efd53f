"""A program as others read it: its text, what it takes and gives, its weights."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torch_tpu.export import bytecode


@dataclass(frozen=True)
class Port:
    """A parameter or a result of a program.

    kind: "input", "weight", "random" (32-bit words: the seed and the place in its stream of random
    numbers, in blocks, each with the low half first) or "output". new_value_of: the input or weight
    that an output is the new value of, or "".
    """

    kind: str
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    new_value_of: str = ""


@dataclass(frozen=True)
class Program:
    """A module of StableHLO, whose public function is `main`.

    text: generic MLIR. inputs, outputs: its parameters and results in their order. weights: tensors
    that are parameters, by name; empty where they are in the text. blocks: how far a run moves on
    in the stream of random numbers.
    """

    text: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    weights: dict[str, torch.Tensor]
    blocks: int = 0
    note: dict[str, Any] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.text

    def write(self, path: str | Path) -> None:
        """Writes the text, and beside it, with the suffix `.safetensors`, the weights, if any.

        Raises ImportError if there are weights and the package safetensors is missing.
        """
        path = Path(path)
        path.write_text(self.text, encoding="utf-8")
        if not self.weights:
            return
        try:
            from safetensors.torch import save_file
        except ImportError:
            raise ImportError(
                "weights beside a program are written by the package safetensors: install it "
                '(`pip install safetensors`), or export with weights="inside"'
            ) from None
        rows = torch.contiguous_format  # and memory of its own, as the package asks for
        whole = {n: one.detach().cpu().clone(memory_format=rows) for n, one in self.weights.items()}
        save_file(whole, path.with_suffix(".safetensors"))

    def bytecode(self, version: str | None = None) -> bytes:
        """The portable artifact: versioned bytecode, which later StableHLO reads for five years.

        version: of StableHLO, such as "1.8.0"; None: that of the package jaxlib, which makes it,
        since no PJRT plugin does. Raises ImportError without that package.
        """
        return bytecode.portable(self.text, version)
