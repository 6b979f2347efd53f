"""bitsandbytes: weights of 4 and 8 bits, optimizers with states of 8 bits, QLoRA."""

import tempfile

import bitsandbytes as bnb
import bitsandbytes.functional as BF
import torch
from case import case
from torch import Tensor, nn

DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")
Result = tuple[object, list[float]]


def numbers(*found: Tensor) -> list[float]:
    return [value for one in found for value in one.detach().float().flatten()[:64].tolist()]


@case("blockwise codes of 8 and 4 bits, there and back; short last blocks")
def codes() -> Result:
    x = torch.randn(33, 70).to(DEVICE)
    eight, state = BF.quantize_blockwise(x, blocksize=256)
    found = [eight, BF.dequantize_blockwise(eight, state)]
    for name in ("nf4", "fp4"):
        four, state = BF.quantize_4bit(x, blocksize=64, quant_type=name, compress_statistics=True)
        found += [four, BF.dequantize_4bit(four, state)]
    return eight.device, numbers(*found)


class Adapted(nn.Module):
    """A layer of few bits and what is trained beside it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.down, self.up = layer, nn.Linear(64, 4), nn.Linear(4, 48)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.up(self.down(x))


@case("Linear4bit: NF4 and FP4, in f32 and bf16, adapters trained beside it", 2e-3)
def four_bits() -> Result:
    found = []
    for name, dtype in (("nf4", torch.float32), ("fp4", torch.float32), ("nf4", torch.bfloat16)):
        layer = bnb.nn.Linear4bit(64, 48, quant_type=name, compute_dtype=dtype)
        layer.weight.requires_grad = False
        model, x = Adapted(layer).to(DEVICE), torch.randn(8, 64).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss)
    return x.device, numbers(*found, model.down.weight)


@case("Linear8bitLt: outliers apart, evaluated", 1e-2)
def eight_bits() -> Result:
    layer = bnb.nn.Linear8bitLt(64, 48, has_fp16_weights=False, threshold=3.0).to(DEVICE)
    x = torch.randn(8, 64).half().to(DEVICE)
    with torch.no_grad():
        y = layer.eval()(x)
    return y.device, numbers(y)


@case("optimizers with states of 8 bits: AdamW, Lion, SGD, RMSprop, AdEMAMix", 1e-3)
def optimizers() -> Result:
    found = []
    for name in ("AdamW8bit", "Lion8bit", "SGD8bit", "RMSprop8bit", "AdEMAMix8bit", "AdamW"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64)).to(DEVICE)
        x = torch.randn(16, 64).to(DEVICE)
        more = {"momentum": 0.9} if name == "SGD8bit" else {}
        optimizer = getattr(bnb.optim, name)(model.parameters(), lr=1e-3, **more)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss)
    return x.device, numbers(*found)


@case("QLoRA: transformers loads in 4 bits, peft adapts, AdamW8bit trains", 2e-3)
def qlora() -> Result:
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig

    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        few = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
        more = {"device_map": {"": DEVICE}, "dtype": torch.float32}
        model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=few, **more)
    torch.manual_seed(1)
    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    model = get_peft_model(prepare_model_for_kbit_training(model), adapters)
    optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=1e-2)
    tokens = (torch.arange(48).view(2, 24) * 7 % 128).to(DEVICE)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        found.append(loss)
    return tokens.device, numbers(*found)
