"""Mixtures of experts of Hugging Face's transformers, small enough to run in seconds.

A row names a model type and what its configuration needs beyond what all of them are given: two
layers, four experts, two of which are chosen for each word. Weights are random.
"""

import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

VOCABULARY, LENGTH, BATCH = 96, 10, 2
# What a field of a configuration becomes, by the first pattern that is its name.
SIZES = {
    r"vocab_size(_per_layer_input)?": VOCABULARY,
    r"hidden_size|d_model|n_embd": 32,
    r"hidden_size_per_layer_input": 8,
    r".*intermediate_size|ffn_dim|d_ff|.*_ffn_dim|ffn_hidden.*": 32,
    r"num_hidden_layers|num_layers|n_layers?|(en|de)coder_layers": 2,
    r"num_decoder_layers": 2,
    r"num_attention_heads|n_heads?|num_heads|(en|de)coder_attention_heads": 4,
    r"num_key_value_heads": 2,
    r"(?!qk_head_dim).*head_dim|d_kv|mamba_d_head": 8,
    r"num_(local_)?experts|n_routed_experts|moe_num_experts": 4,
    r"num_experts_per_tok(en)?|moe_topk|moe_k|top_k_experts": 2,
    r".*lora_rank.*": 16,
    r"n_group|topk_group|num_expert_group|mamba_n_groups|n_groups": 1,
    r"first_k_dense_replace": 1,
    r"max_position_embeddings": 64,
    r"sliding_window": 8,
    r"mamba_d_state|mamba_d_conv|ssm_state_size": 4,
    r"mamba_n_heads|mamba_num_heads": 8,
    r"pad_token_id": 0,
    r"bos_token_id": 1,
    r"eos_token_id": 2,
    r"decoder_start_token_id": 0,
}


@dataclass(frozen=True)
class Mixture:
    """A model type; `own` are fields of its configuration beyond SIZES."""

    model_type: str
    own: dict[str, Any]


def mixture(model_type: str, **own: Any) -> Mixture:
    """A row."""
    return Mixture(model_type, own)


THEN_SPARSE = ["dense", "sparse"]
MIXTURES = (
    mixture("afmoe"),
    mixture("aria_text"),
    mixture("axk1"),
    mixture("axk2"),
    mixture("bailing_hybrid"),
    mixture("beam", mlp_layer_types=THEN_SPARSE),
    mixture("cohere2_moe"),
    mixture(
        "dbrx",
        attn_config={"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    ),
    mixture("deepseek_v2"),
    mixture("deepseek_v3"),
    mixture("deepseek_v32"),
    mixture("deepseek_v4"),
    mixture("dots1", n_shared_experts=1),
    mixture("dots3_note_text"),
    mixture("ernie4_5_moe"),
    mixture("exaone_moe"),
    mixture("flex_olmo"),
    mixture("flint", mlp_only_layers=[0]),
    mixture("gemma4_text", enable_moe_block=True),
    mixture("glm4_moe"),
    mixture("glm4_moe_lite"),
    mixture(
        "glm4v_moe_text",
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 2, 1]},
    ),
    mixture("glm5_next_text", qk_rope_head_dim=0, mlp_layer_types=THEN_SPARSE),
    mixture("glm_moe_dsa"),
    mixture("gpt_oss"),
    mixture("granitemoe"),
    mixture("granitemoe_swa"),
    mixture("granitemoehybrid", layer_types=["mamba", "attention"]),
    mixture("granitemoeshared"),
    mixture("hunyuan_v1_moe"),
    mixture("hy_v3"),
    mixture("hy_v4"),
    mixture("inkling2_text"),
    mixture("inkling_text"),
    mixture("jamba", attn_layer_period=2, attn_layer_offset=1),
    mixture("jetmoe"),
    mixture("kimi_linear"),
    mixture("kolibri1"),
    mixture("laguna"),
    mixture("lfm2_moe", layer_types=["conv", "full_attention"], num_dense_layers=1),
    mixture("llama4_text"),
    mixture("longcat_flash"),
    mixture("mellum"),
    mixture("mimo_v2_flash"),
    mixture("minimax"),
    mixture("minimax_m2"),
    mixture("minimax_m3_vl_text"),
    mixture("mistral_large4_text"),
    mixture("mixtral"),
    mixture("muse_spark_text"),
    mixture("nemotron_h", layers_block_type=["moe", "attention"]),
    mixture("nllb-moe", encoder_sparse_step=1, decoder_sparse_step=1),
    mixture("olmoe"),
    mixture("openai_privacy_filter"),
    mixture("phimoe"),
    mixture("qwen2_moe"),
    mixture("qwen3_5_moe_text"),
    mixture("qwen3_moe"),
    mixture("qwen3_next"),
    mixture("qwen3_vl_moe_text"),
    mixture(
        "qwen4_exp_text",
        indexer_n_heads=8,  # with few, some words score 0, and topk may take any of equal ones
        indexer_kv_heads=1,
        indexer_budget=8,
        indexer_compress_ratio=2,
    ),
    mixture("solar_open"),
    mixture("switch_transformers", num_sparse_encoder_layers=2, decoder_start_token_id=0),
    mixture("zaya", num_experts_per_tok=1),
)


def _configuration(row: Mixture) -> Any:
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[row.model_type]
    usual = kind()
    names = dict.fromkeys([*inspect.signature(kind.__init__).parameters, *usual.to_dict()])
    found: dict[str, Any] = {}
    for name in names:
        sizes = (size for pattern, size in SIZES.items() if re.fullmatch(pattern, name))
        if (size := next(sizes, None)) is not None:
            found[name] = size
    if "kv_lora_rank" in found:
        found["num_key_value_heads"] = found["num_attention_heads"]
    # One layer of the first kind that the usual model has, and one of the last.
    layers = getattr(usual, "layer_types", None)
    if layers and "layer_types" in names:
        found["layer_types"] = [layers[0], list(dict.fromkeys(layers))[-1]]
    return kind(**{**found, **row.own})


def build(row: Mixture) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Returns a model with random weights on the CPU, in evaluation mode, and a batch for it."""
    from transformers import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForSeq2SeqLM,
    )

    config = _configuration(row)
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        head: Any = AutoModelForCausalLM
    elif type(config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        head = AutoModelForSeq2SeqLM
    else:
        head = AutoModel
    torch.manual_seed(0)
    model = head.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():  # a router of zeros chooses by chance
            torch.nn.init.normal_(parameter, std=0.02)
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH))
    batch = {"input_ids": ids}
    return model, batch if head is AutoModel else {**batch, "labels": ids}


def model_types() -> set[str]:
    """The model types of the installed library whose module has experts in it."""
    import transformers
    from transformers.models.auto import configuration_auto, modeling_auto

    heads = (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )
    found = set()
    for model_type in {*heads[0], *heads[1]}:
        folder = Path(transformers.__file__).parent / "models"
        folder /= configuration_auto.model_type_to_module_name(model_type)
        text = "".join(path.read_text() for path in folder.glob("modeling_*.py"))
        if re.search(r"class \w*Experts\(nn\.Module\)|\.experts = ", text):
            found.add(model_type)
    return {name for name in found if f"{name}_text" not in found}
