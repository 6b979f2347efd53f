"""peft: adapters of low rank, saved, loaded and merged."""

import tempfile

import torch
from case import case
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import infer_device
from transformers import GPT2Config, GPT2LMHeadModel, set_seed


def base() -> GPT2LMHeadModel:
    set_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip


@case("LoRA: trained, saved, loaded by itself, merged")
def adapted() -> tuple[object, list[float]]:
    device = infer_device()
    model = get_peft_model(base().to(device), LoraConfig(r=4, target_modules=["c_attn"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = torch.arange(32, device=device).view(2, 16)
    losses = []
    for _ in range(4):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = PeftModel.from_pretrained(base().to(device), folder)
    merged = loaded.merge_and_unload()
    losses.append(merged(input_ids=ids, labels=ids).loss.item())
    return merged.device, losses
