"""Training on texts of random lengths: how long some steps take, and how many programs they need.

Models of transformers with random weights, AdamW, gradients clipped, the loss read in each step.
"""

import argparse
import random
import time
from types import SimpleNamespace

import torch
import transformers

SMALL = {"vocab_size": 200, "num_hidden_layers": 3, "num_attention_heads": 4}
BERT = {**SMALL, "hidden_size": 64, "intermediate_size": 128}


class ChosenWords(torch.nn.Module):
    """A BERT for masked words whose head sees only these: as many as data say."""

    def __init__(self, config: transformers.BertConfig) -> None:
        super().__init__()
        self.whole = transformers.BertForMaskedLM(config)

    def forward(
        self, words: torch.Tensor, labels: torch.Tensor, attention_mask: torch.Tensor
    ) -> SimpleNamespace:
        """Returns the loss, as transformers' models do."""
        chosen = labels != -100
        seen = self.whole.bert(words, attention_mask=attention_mask).last_hidden_state
        logits = self.whole.cls(seen[chosen])
        return SimpleNamespace(loss=torch.nn.functional.cross_entropy(logits, labels[chosen]))


def _model(name: str, attention: str) -> torch.nn.Module:
    plan = {"attn_implementation": attention}
    if name == "gpt2":
        sizes = {"vocab_size": 200, "n_embd": 64, "n_layer": 3, "n_head": 4}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **plan))
    if name == "t5":
        sizes = {"vocab_size": 200, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 3}
        config = transformers.T5Config(**sizes, num_heads=4, decoder_start_token_id=0)
        return transformers.T5ForConditionalGeneration(config)
    if name == "llama":
        config = transformers.LlamaConfig(**BERT, num_key_value_heads=2, **plan)
        return transformers.LlamaForCausalLM(config)
    kind = {
        "classifier": transformers.BertForSequenceClassification,
        "tokens": transformers.BertForTokenClassification,
        "masked": transformers.BertForMaskedLM,
        "chosen": ChosenWords,
    }[name]
    return kind(transformers.BertConfig(**BERT, **plan))


def _labels(name: str, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if name == "classifier":
        return words[:, 0] % 2
    if name == "tokens":
        return words % 2
    if name in ("masked", "chosen"):
        return words.where(words % 5 == 0, -100)
    if name == "t5":
        return words[:, : random.randint(3, 40)].contiguous()
    return words.where(mask == 1, -100)


def run(name: str, attention: str, steps: int, device: str) -> tuple[float, int, list[float]]:
    """Returns seconds, programs that were compiled, and the losses."""
    torch.manual_seed(0)
    random.seed(0)
    model = _model(name, attention).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses, start = [], time.perf_counter()
    for _ in range(steps):
        length = random.randint(5, 60)
        words, mask = torch.randint(1, 200, (4, length)), torch.ones(4, length, dtype=torch.long)
        for row in range(3):
            mask[row, random.randint(3, length) :] = 0
        words *= mask
        given = [one.to(device) for one in (words, mask, _labels(name, words, mask))]
        loss = model(given[0], attention_mask=given[1], labels=given[2]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - start
    programs = torch.tpu.metrics()["compiles"] if device == "tpu" else 0
    return seconds, programs, losses


def main() -> None:
    """Prints a line about one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("classifier", "tokens", "masked", "chosen", "gpt2", "llama", "t5")
    parser.add_argument("model", choices=names)
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=("tpu", "cpu"), default="tpu")
    args = parser.parse_args()
    seconds, programs, losses = run(args.model, args.attention, args.steps, args.device)
    print(f"{seconds:.1f} s, {programs} programs, losses", *(f"{one:.4f}" for one in losses[-4:]))


if __name__ == "__main__":
    main()
