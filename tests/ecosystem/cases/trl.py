"""trl: SFT, DPO and a reward model on a tiny GPT-2 of random weights."""

import tempfile

import torch
from case import case
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    set_seed,
)
from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer

OPTIONS = {
    "max_steps": 4, "per_device_train_batch_size": 4, "logging_steps": 1, "report_to": [],
    "disable_tqdm": True, "save_strategy": "no", "seed": 0, "learning_rate": 1e-3, "bf16": False,
    "use_cpu": not torch.accelerator.is_available(), "gradient_checkpointing": False,
}  # fmt: skip
PAIRS = {
    "prompt": ["w1 w2", "w3 w4", "w5 w6", "w7 w8"] * 2,
    "chosen": [" w9 w10", " w11", " w12 w13", " w14"] * 2,
    "rejected": [" w20", " w21 w22", " w23", " w24 w25"] * 2,
}


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w63")


def gpt2(kind: type = GPT2LMHeadModel, **options: object) -> PreTrainedModel:
    set_seed(0)
    parts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, bos_token_id=63,
        eos_token_id=63, pad_token_id=0, **parts, **options,
    )  # fmt: skip
    return kind(config)


def losses(trainer: object) -> tuple[object, list[float]]:
    trainer.train()
    found = [one["loss"] for one in trainer.state.log_history if "loss" in one]
    return trainer.accelerator.device, found


@case("SFTTrainer", 5e-4)
def sft() -> tuple[object, list[float]]:
    data = Dataset.from_dict({"text": [f"w{i} w{i + 1} w{i + 2} w{i + 3}" for i in range(16)]})
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(folder, max_length=16, **OPTIONS)
        return losses(SFTTrainer(gpt2(), arguments, None, data, processing_class=tokenizer()))


@case("SFTTrainer with LoRA", 5e-4)
def sft_lora() -> tuple[object, list[float]]:
    data = Dataset.from_dict({"text": [f"w{i} w{i + 1} w{i + 2} w{i + 3}" for i in range(16)]})
    adapter = LoraConfig(r=4, target_modules=["c_attn"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(folder, max_length=16, **OPTIONS)
        return losses(
            SFTTrainer(
                gpt2(), arguments, None, data, processing_class=tokenizer(), peft_config=adapter
            )
        )


@case("DPOTrainer", 5e-4)
def dpo() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = DPOConfig(folder, max_length=16, **OPTIONS)
        trainer = DPOTrainer(
            gpt2(), gpt2(), arguments, train_dataset=Dataset.from_dict(PAIRS),
            processing_class=tokenizer(),
        )  # fmt: skip
        return losses(trainer)


@case("RewardTrainer", 5e-4)
def reward() -> tuple[object, list[float]]:
    model = gpt2(GPT2ForSequenceClassification, num_labels=1)
    data = Dataset.from_dict({name: PAIRS[name] for name in ("chosen", "rejected")})
    with tempfile.TemporaryDirectory() as folder:
        arguments = RewardConfig(folder, max_length=16, **OPTIONS)
        return losses(
            RewardTrainer(model, arguments, train_dataset=data, processing_class=tokenizer())
        )
