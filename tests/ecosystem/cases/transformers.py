"""transformers: Trainer, resumed; generate; pipeline; device_map='auto'."""

import tempfile

import torch
from case import case
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    pipeline,
    set_seed,
)

CONFIG = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 32}
CONFIG |= {"bos_token_id": 0, "eos_token_id": 0}


def gpt2(dropout: float = 0.0) -> GPT2LMHeadModel:
    set_seed(0)
    parts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    return GPT2LMHeadModel(GPT2Config(**CONFIG, **parts))


def dataset() -> list[dict[str, torch.Tensor]]:
    rows = torch.randint(0, 64, (16, 16), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": row, "labels": row.clone()} for row in rows]


def train(
    folder: str, dropout: float = 0.0, resume: str | None = None, **options: object
) -> tuple[object, list[float]]:
    options.setdefault("use_cpu", not torch.accelerator.is_available())
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=4, max_steps=8, save_steps=4, logging_steps=1,
        report_to=[], disable_tqdm=True, eval_strategy="steps", eval_steps=8, seed=0, **options,
    )  # fmt: skip
    trainer = Trainer(gpt2(dropout), arguments, train_dataset=dataset(), eval_dataset=dataset())
    trainer.log = lambda *args, **named: Trainer.log(trainer, *args, **named)
    trainer.train(resume_from_checkpoint=resume)
    history = trainer.state.log_history
    losses = [one["loss"] for one in history if "loss" in one]
    losses += [one["eval_loss"] for one in history if "eval_loss" in one]
    return trainer.model.device, losses


@case("Trainer: training and evaluation", 2e-4)
def trained() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        return train(folder)


@case("Trainer in bf16", 2e-2)
def trained_in_bf16() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        return train(folder, bf16=True)


@case("Trainer in fp16, a GradScaler (bf16 on the CPU)", 2e-2)
def trained_in_fp16() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        return train(folder, **{"fp16" if torch.accelerator.is_available() else "bf16": True})


@case("Trainer with gradient checkpointing and accumulation", 2e-4)
def trained_in_parts() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        return train(folder, gradient_checkpointing=True, gradient_accumulation_steps=2)


@case("Trainer, resumed in the middle with dropout")
def resumed() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        device, whole = train(folder, 0.5)
        _, again = train(folder, 0.5, resume=f"{folder}/checkpoint-4")
    assert whole == again, (whole, again)
    return device, [0.0]


@case("generate, greedy and by beams")
def generated() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        gpt2().save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, device_map="auto")
    start = torch.tensor([[1, 2, 3]], device=model.device)
    greedy = model.generate(start, max_new_tokens=8, do_sample=False, pad_token_id=0)
    beams = model.generate(start, max_new_tokens=8, num_beams=3, do_sample=False, pad_token_id=0)
    return model.device, greedy[0].tolist() + beams[0].tolist()


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w0")


@case("pipeline('text-generation'), pipeline('text-classification')")
def texts() -> tuple[object, list[float]]:
    generate = pipeline("text-generation", model=gpt2(), tokenizer=tokenizer())
    text = generate("w1 w2 w3", max_new_tokens=8, do_sample=False)[0]["generated_text"]
    model = GPT2ForSequenceClassification(GPT2Config(**CONFIG, num_labels=3, pad_token_id=0))
    classify = pipeline("text-classification", model=model.eval(), tokenizer=tokenizer())
    found = classify(["w1 w2 w3", "w4 w5"], top_k=3)
    scores = [one["score"] for row in found for one in sorted(row, key=lambda one: one["label"])]
    assert classify.device == generate.device
    return generate.device, [float(one) for one in text.replace("w", " ").split()] + scores


@case("pipeline('image-classification')")
def classified() -> tuple[object, list[float]]:
    set_seed(0)
    config = ViTConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64,
        image_size=32, patch_size=8, num_labels=4,
    )  # fmt: skip
    size = {"height": 32, "width": 32}
    work = pipeline(
        "image-classification",
        model=ViTForImageClassification(config).eval(),
        image_processor=ViTImageProcessor(size=size),
    )
    found = work(Image.linear_gradient("L").convert("RGB"))
    return work.device, [one["score"] for one in sorted(found, key=lambda one: one["label"])]


@case("an explicit device='cpu' is the CPU")
def on_cpu() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        device, losses = train(folder, use_cpu=True)
    assert device.type == "cpu"
    return "tpu is not taken" if hasattr(torch, "tpu") else device, losses
