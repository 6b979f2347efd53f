"""Forty-odd architectures of Hugging Face's transformers, small enough to run in seconds.

A row names the model type, the head, what it reads, and what its configuration needs beyond the
sizes that all of its kind share. Weights are random; nothing is downloaded.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

VOCABULARY, LENGTH, BATCH, IMAGE = 96, 16, 2, 32
WORDS = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
PAIR = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
PATCHES = {
    "image_size": IMAGE,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_labels": 5,
}
SPEECH = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": (16, 16),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16,
    "num_labels": 5,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 5}


@dataclass(frozen=True)
class Architecture:
    """One row: `reads` is a function below, `config` what the model type's configuration gets."""

    model_type: str
    head: str
    reads: str
    config: dict[str, Any] = field(default_factory=dict)


def masked(model_type: str, **more: Any) -> Architecture:
    """An encoder that fills in words that are left out."""
    return Architecture(model_type, "AutoModelForMaskedLM", "text", {**WORDS, **more})


def causal(model_type: str, **more: Any) -> Architecture:
    """A decoder that predicts the next word."""
    return Architecture(model_type, "AutoModelForCausalLM", "text", {**WORDS, **more})


def pair(model_type: str, base: dict[str, Any] | None = None, **more: Any) -> Architecture:
    """An encoder and a decoder."""
    return Architecture(model_type, "AutoModelForSeq2SeqLM", "pair", {**(base or PAIR), **more})


def vision(model_type: str, base: dict[str, Any] | None = None, **more: Any) -> Architecture:
    """A classifier of images."""
    config = {**(PATCHES if base is None else base), **more}
    return Architecture(model_type, "AutoModelForImageClassification", "image", config)


def speech(model_type: str, **more: Any) -> Architecture:
    """A classifier of sound waves."""
    config = {**SPEECH, **more}
    return Architecture(model_type, "AutoModelForAudioClassification", "wave", config)


ARCHITECTURES = (
    masked("albert", embedding_size=16),
    masked("bert"),
    masked("convbert", embedding_size=32),
    masked("deberta"),
    masked("deberta-v2", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    masked("distilbert", dim=32, n_layers=2, n_heads=4, hidden_dim=64),
    masked("electra", embedding_size=16),
    masked("esm", position_embedding_type="rotary", mask_token_id=3),
    masked("fnet"),
    masked("mobilebert", embedding_size=16, true_hidden_size=16, intra_bottleneck_size=16),
    masked("modernbert", cls_token_id=1, sep_token_id=2, local_attention=8),
    masked("mpnet"),
    masked("roberta"),
    masked("roformer", embedding_size=32),
    masked("squeezebert", embedding_size=32),
    causal("bloom", n_head=4, n_layer=2),
    causal("codegen", n_embd=32, n_layer=2, n_head=4, n_positions=64, n_ctx=64, rotary_dim=4),
    causal("cohere", **GROUPED),
    causal("falcon", new_decoder_architecture=True, num_kv_heads=2),
    causal("gemma", **GROUPED),
    causal("gemma2", **GROUPED, sliding_window=8, query_pre_attn_scalar=8),
    causal("gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    causal("gpt_neo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]),
    causal("gpt_neox"),
    causal("gptj", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
    causal("llama", **GROUPED),
    causal("mamba", state_size=4, expand=2),
    causal("mistral", **GROUPED, sliding_window=8),
    causal("mixtral", **GROUPED, num_local_experts=4),
    causal("mpt", d_model=32, n_heads=4, n_layers=2, max_seq_len=64),
    causal("olmo2", **GROUPED),
    causal("opt", ffn_dim=64, word_embed_proj_dim=32),
    causal("phi"),
    causal("phi3", **GROUPED),
    causal("qwen2", **GROUPED),
    causal(
        "qwen2_moe",
        **GROUPED,
        num_experts=4,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    ),
    causal("qwen3", **GROUPED),
    causal("stablelm", **GROUPED),
    pair("bart"),
    pair("blenderbot"),
    pair("m2m_100"),
    pair("pegasus"),
    pair("t5", T5),
    pair("longt5", T5, local_radius=4),
    Architecture(
        "whisper",
        "AutoModelForSpeechSeq2Seq",
        "spectrum",
        {**PAIR, "num_mel_bins": 16, "max_source_positions": 16, "max_target_positions": 32},
    ),
    Architecture(
        "clip",
        "CLIPModel",
        "both",
        {"text_config": WORDS, "vision_config": PATCHES, "projection_dim": 16},
    ),
    speech("hubert"),
    speech("wav2vec2"),
    speech("wavlm"),
    vision("beit"),
    vision("convnext", STAGES, num_stages=2),
    vision("dinov2"),
    vision("mobilenet_v2", {"image_size": IMAGE, "depth_multiplier": 0.25, "num_labels": 5}),
    vision("poolformer", {"num_labels": 5}, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1]),
    vision("regnet", STAGES, embedding_size=8, groups_width=8),
    vision("resnet", STAGES, embedding_size=8),
    vision(
        "segformer",
        {"num_labels": 5},
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        decoder_hidden_size=16,
    ),
    vision(
        "swin",
        {"image_size": IMAGE, "patch_size": 2, "num_labels": 5},
        embed_dim=8,
        depths=[1, 2],
        num_heads=[2, 2],
        window_size=4,
    ),
    vision("vit"),
)


def _words(generator: torch.Generator, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length), generator=generator)


def _text(generator: torch.Generator) -> dict[str, torch.Tensor]:
    ids = _words(generator)
    mask = torch.ones_like(ids)
    mask[1, LENGTH - 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def _pair(generator: torch.Generator) -> dict[str, torch.Tensor]:
    return {**_text(generator), "labels": _words(generator, LENGTH // 2)}


def _image(generator: torch.Generator) -> dict[str, torch.Tensor]:
    pixels = torch.randn(BATCH, 3, IMAGE, IMAGE, generator=generator)
    return {"pixel_values": pixels, "labels": torch.tensor([1, 3])}


def _wave(generator: torch.Generator) -> dict[str, torch.Tensor]:
    samples = torch.randn(BATCH, 800, generator=generator)
    return {"input_values": samples, "labels": torch.tensor([1, 3])}


def _spectrum(generator: torch.Generator) -> dict[str, torch.Tensor]:
    features = torch.randn(BATCH, 16, 32, generator=generator)
    return {"input_features": features, "labels": _words(generator, LENGTH // 2)}


def _both(generator: torch.Generator) -> dict[str, Any]:
    text, image = _text(generator), _image(generator)
    return {
        "input_ids": text["input_ids"],
        "attention_mask": text["attention_mask"],
        "pixel_values": image["pixel_values"],
        "return_loss": True,
    }


READERS = {
    "text": _text,
    "pair": _pair,
    "image": _image,
    "wave": _wave,
    "spectrum": _spectrum,
    "both": _both,
}


def build(row: Architecture) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Returns a model with random weights on the CPU, in evaluation mode, and a batch for it.

    Evaluation mode, as random numbers differ by device; gradients flow all the same.
    """
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(row.model_type, **row.config)
    head = getattr(transformers, row.head)
    make = head.from_config if row.head.startswith("Auto") else head
    model: torch.nn.Module = make(config).eval()
    return model, READERS[row.reads](torch.Generator().manual_seed(1))
