"""Counts the programs that sizes need that change: caches that grow, texts of many lengths.

`python bench/growing.py decode|lengths strict|fused`, with TORCH_TPU_CACHE=off.
"""

import argparse
import json
import random
import time
from typing import Any

import torch
import transformers

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "vocab_size": 256}
WATCHED = ("programs", "ops_bounded", "settled")


def measured(run: Any) -> tuple[dict[str, float], torch.Tensor]:
    """Returns what a run counted and took, and its tensor on the CPU."""
    before, start = torch.tpu.metrics(), time.perf_counter()
    result = run().cpu()
    seconds, after = time.perf_counter() - start, torch.tpu.metrics()
    counts = {name: after[name] - before[name] for name in WATCHED}
    return {**counts, "seconds": round(seconds, 2)}, result


def decode(_: int) -> None:
    """Greedy decoding of 64 tokens by a small Llama, three times."""
    config = transformers.LlamaConfig(**SMALL, **HEADS, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(0, 256, (1, 7))
    options = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    want = model.generate(ids, **options)
    model, x = model.to("tpu"), ids.to("tpu")
    for call in range(3):
        counts, tokens = measured(lambda: model.generate(x, **options))
        print(json.dumps({"call": call, **counts, "equal": torch.equal(tokens, want)}))


@torch.no_grad()
def lengths(batch: int) -> None:
    """A small BERT on 200 texts of random lengths; of several, each is padded to the longest."""
    model = transformers.BertModel(transformers.BertConfig(**SMALL, **HEADS)).eval()
    device = transformers.BertModel(model.config).eval()
    device.load_state_dict(model.state_dict())
    device.to("tpu")
    programs, off, settled = [], 0.0, 0.0
    for _ in range(200):
        length = random.randint(5, 250)
        ids, mask = torch.randint(0, 256, (batch, length)), torch.ones(batch, length).long()
        for row in range(1, batch):
            mask[row, random.randint(3, length) :] = 0
        x, kept = ids.to("tpu"), mask.to("tpu")
        counts, got = measured(lambda x=x, kept=kept: device(x, kept).last_hidden_state)
        want = model(ids, mask).last_hidden_state
        programs.append(counts["programs"])
        settled += counts["settled"]
        off = max(off, (got - want).abs().max().item())
    first, later = sum(programs[:10]), sum(programs[10:])
    print(json.dumps({"first 10": first, "later": later, "settled": settled, "off": off}))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("case", choices=("decode", "lengths"))
parser.add_argument("mode", choices=("strict", "fused"))
parser.add_argument("--batch", type=int, default=1, help="of texts")
arguments = parser.parse_args()
torch.manual_seed(0)
random.seed(0)
torch.tpu.eager_mode = arguments.mode
(decode if arguments.case == "decode" else lengths)(arguments.batch)
