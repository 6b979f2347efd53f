"""The models that bench/models.py times: classes of transformers and diffusers, random weights.

A row names the library's class, what its configuration gets, what it reads, and what a step does.
Sizes are small (4 layers, width 128, 4 x 64 tokens), since what is measured is what the backend
adds to a model, not how fast the device multiplies. Nothing is downloaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # PyTorch is imported by whoever builds a case, as its runner wants it
    import torch
    from torch import Tensor

VOCABULARY, WIDTH, LAYERS, HEADS = 512, 128, 4, 4
BATCH, TOKENS, CONTEXT = 4, 64, 128
CLASSES = 10
PROMPT, NEW_TOKENS = 8, 64
LEARNING_RATE = 1e-3

Batch = dict[str, Any]
Step = Callable[[], float]


def text(generator: torch.Generator) -> Batch:
    """Returns tokens, int64 [BATCH, TOKENS], as a tokenizer gives them, to be predicted."""
    import torch

    ids = torch.randint(1, VOCABULARY, (BATCH, TOKENS), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def prompt(generator: torch.Generator) -> Batch:
    """Returns one sequence of tokens, int64 [1, PROMPT], to be continued."""
    import torch

    ids = torch.randint(1, VOCABULARY, (1, PROMPT), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def images(generator: torch.Generator) -> Batch:
    """Returns pictures, float32 [BATCH, 3, 32, 32], with a class each."""
    import torch

    pixels = torch.randn(BATCH, 3, 32, 32, generator=generator)
    return {
        "pixel_values": pixels,
        "labels": torch.randint(CLASSES, (BATCH,), generator=generator),
    }


def noisy(generator: torch.Generator) -> Batch:
    """Returns latents, float32 [BATCH, 4, 16, 16], their times and conditions, and the noise."""
    import torch

    shape = (BATCH, 4, 16, 16)
    return {
        "sample": torch.randn(shape, generator=generator),
        "timestep": torch.randint(1000, (BATCH,), generator=generator),
        "encoder_hidden_states": torch.randn(BATCH, 16, WIDTH, generator=generator),
        "noise": torch.randn(shape, generator=generator),
    }


def training(model: torch.nn.Module, batch: Batch) -> Step:
    """Returns a step of AdamW on one batch, in training mode; it returns the loss before it."""
    import torch

    noise: Tensor | None = batch.pop("noise", None)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

    def step() -> float:
        optimizer.zero_grad()
        output = model(**batch)
        if noise is None:
            loss: Tensor = output.loss
        else:
            loss = torch.nn.functional.mse_loss(output.sample, noise)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def decoding(model: Any, batch: Batch) -> Step:
    """Returns a call that continues the prompt greedily; it returns the sum of all tokens.

    The cache is a DynamicCache, so each of the NEW_TOKENS tokens meets longer keys and values.
    """
    import torch

    model.eval()

    def call() -> float:
        with torch.no_grad():
            tokens = model.generate(**batch, max_new_tokens=NEW_TOKENS, do_sample=False)
        return float(tokens.sum().item())

    return call


@dataclass(frozen=True)
class Case:
    """One row of the benchmark: a class of a library, and what is done with it."""

    library: str
    model: str
    config: dict[str, Any]
    reads: Callable[[torch.Generator], Batch]
    does: Callable[[Any, Batch], Step] = training
    first: int = 3  # steps that count as the first ones
    share: int = 1  # of so many steps that are asked for, one is run

    def load(self) -> type:
        """Imports the library and returns the model's class."""
        found: type = getattr(importlib.import_module(self.library), self.model)
        return found

    def build(self, device: str, compiled: bool = False, attention: str = "") -> Step:
        """Makes model, optimizer and batch on a device; returns the step.

        compiled: by torch.compile. attention: `eager` or `sdpa` instead of the library's choice.
        """
        import torch

        torch.manual_seed(0)
        kind: Any = self.load()
        if self.library == "diffusers":
            model = kind(**self.config)
            if attention == "eager":
                processors = importlib.import_module("diffusers.models.attention_processor")
                model.set_attn_processor(processors.AttnProcessor())
        else:
            chosen = {"attn_implementation": attention} if attention else {}
            model = kind(kind.config_class(**self.config, **chosen))
        model = model.to(device)
        if compiled:
            model.compile()
        batch = self.reads(torch.Generator().manual_seed(1))
        return self.does(model, {name: x.to(device) for name, x in batch.items()})


ENCODER = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
}
WORDS = {**ENCODER, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT}
DECODER = {
    **WORDS,
    "intermediate_size": 3 * WIDTH,
    "num_key_value_heads": HEADS // 2,
    "bos_token_id": 0,
    "eos_token_id": None,  # every call makes all its tokens
    "pad_token_id": 0,
}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "d_kv": WIDTH // HEADS,
    "d_ff": 4 * WIDTH,
    "num_layers": LAYERS,
    "num_heads": HEADS,
    "decoder_start_token_id": 0,
}
VIT = {**ENCODER, "image_size": 32, "patch_size": 4, "num_labels": CLASSES}
RESNET = {
    "embedding_size": 32,
    "hidden_sizes": [32, 64, 96, WIDTH],
    "depths": [1] * LAYERS,
    "num_labels": CLASSES,
}
UNET = {
    "sample_size": 16,
    "block_out_channels": (32, 64, 96, WIDTH),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "cross_attention_dim": WIDTH,
}
CASES = {
    "gpt2": Case("transformers", "GPT2LMHeadModel", GPT2, text),
    "bert": Case("transformers", "BertForMaskedLM", WORDS, text),
    "t5": Case("transformers", "T5ForConditionalGeneration", T5, text),
    "vit": Case("transformers", "ViTForImageClassification", VIT, images),
    "resnet": Case("transformers", "ResNetForImageClassification", RESNET, images),
    "llama": Case("transformers", "LlamaForCausalLM", DECODER, text),
    "llama-decode": Case(
        "transformers", "LlamaForCausalLM", DECODER, prompt, decoding, first=2, share=10
    ),
    "mixtral": Case(
        "transformers", "MixtralForCausalLM", {**DECODER, "num_local_experts": 4}, text
    ),
    "unet": Case("diffusers", "UNet2DConditionModel", UNET, noisy),
}
