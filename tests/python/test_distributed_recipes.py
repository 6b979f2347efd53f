"""Other libraries' ranks: the recipes of docs/distributed.md as they stand there, and FairScale.

The libraries are not this package's; where one is not installed, its test is skipped.
"""

import ast
import os
import re
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
import trainee
from ranks import Ranks
from support import ROOT, only_tpu

pytestmark = [
    only_tpu,
    pytest.mark.slow,
    pytest.mark.cpu_plugin("the transport is called from host memory"),
]


def run_recipe(title, folder):
    """What the section's program prints, which is run as it stands."""
    page = (ROOT / "docs" / "distributed.md").read_text()
    program = re.search(rf"\n### {title}\n.*?```python\n(.*?)```", page, re.DOTALL).group(1)
    (folder / "recipe.py").write_text(program)
    (folder / "train.py").write_text(
        f"import trainee\ndef main(): return trainee.main([{str(folder)!r}])\n"
    )
    path = [str(folder), str(ROOT / "tests/python"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, folder / "recipe.py"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [line for line in done.stdout.splitlines() if line.startswith("[[")]
    assert len(answers) == 1, done.stdout  # among what the ranks print
    return ast.literal_eval(answers[0])


@pytest.mark.parametrize("title, module", [("Ray", "ray"), ("Monarch", "monarch")])
def test_recipe(title, module, tmp_path):
    pytest.importorskip(module)
    found = run_recipe(title, tmp_path)
    assert len(found) == 2
    for losses in found:
        torch.testing.assert_close(losses, trainee.alone(8), rtol=1e-4, atol=1e-5)


VOCABULARY, WIDTH = 32, 16


def plain_weights():
    torch.manual_seed(0)
    shapes = (VOCABULARY, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (VOCABULARY, WIDTH)
    return [torch.randn(shape) * 0.2 for shape in shapes]


def batch(step):
    generator = torch.Generator().manual_seed(step % 3)
    return torch.randint(0, VOCABULARY, (2, 4, 8), generator=generator).unbind()


def train_alone(steps):
    weights = [one.requires_grad_() for one in plain_weights()]
    embed, up, down, head = weights
    optimizer, losses = torch.optim.SGD(weights, 0.5), []
    for step in range(steps):
        ids, wanted = batch(step)
        x = F.embedding(ids, embed)
        x = x + F.gelu(x @ up.t()) @ down.t()
        loss = F.cross_entropy((x @ head.t()).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_fairscale(rank, size, steps):
    """The same by model-parallel layers, each rank with its part of each weight."""
    from fairscale.nn import model_parallel as mp

    mp.initialize_model_parallel(size)
    layers = [
        mp.VocabParallelEmbedding(VOCABULARY, WIDTH),
        mp.ColumnParallelLinear(WIDTH, 4 * WIDTH, bias=False, gather_output=False),
        mp.RowParallelLinear(4 * WIDTH, WIDTH, bias=False, input_is_parallel=True),
        mp.ColumnParallelLinear(WIDTH, VOCABULARY, bias=False, gather_output=False),
    ]
    with torch.no_grad():
        for layer, weight, dim in zip(layers, plain_weights(), (0, 0, 1, 0), strict=True):
            layer.weight.copy_(weight.chunk(size, dim)[rank])
            layer.to("tpu")
    tokens, up, down, head = layers
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    optimizer, losses = torch.optim.SGD(parameters, 0.5), []
    for step in range(steps):
        ids, wanted = (one.to("tpu") for one in batch(step))
        x = tokens(ids)
        x = x + down(F.gelu(up(x)))
        loss = mp.vocab_parallel_cross_entropy(head(x), wanted).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mp.destroy_model_parallel()
    dist.barrier()
    return losses


def test_fairscale():
    pytest.importorskip("fairscale")
    with Ranks(backend="tpu") as ranks:
        for losses in ranks.run(train_fairscale, 20):
            torch.testing.assert_close(losses, train_alone(20), rtol=1e-4, atol=1e-5)
