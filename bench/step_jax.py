"""Times JAX on the training step of bench/step_model.py; prints a line of JSON for each figure.

usage: .venv-bench/bin/python bench/step_jax.py FOLDER [--client plugin|jaxlib]
       [--cases step-s,step-m] [--steps N] [--follow]
FOLDER holds what `python bench/step_model.py FOLDER` wrote. The whole step (gradients and AdamW) is
one jitted program whose state is donated, and each step's loss is read before the next begins.
--client plugin (the default) runs it on the PJRT plugin that torch_tpu uses, jaxlib on jaxlib's
own CPU client. Losses must agree with PyTorch's to 1e-4, or the program exits with 1. With --follow
the first case is run in bursts, for bench/step_race.py.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bursts import follow

HEADS = {"step-s": 2, "step-m": 4}
LAYERS = 4
LEARNING_RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 1e-2, 0.9, 0.999, 1e-8
NORM_EPSILON = float(np.finfo(np.float32).eps)
TOLERANCE = 1e-4

Tree = dict[str, Any]


def use_client(client: str) -> None:
    """Names JAX's platform before its first computation; "cpu" is jaxlib's own."""
    if client == "jaxlib":
        os.environ["JAX_PLATFORMS"] = "cpu"
        return
    os.environ["JAX_PLATFORMS"] = "torch_tpu_plugin"
    import lammps_jax_pjrt_cpu
    from jax._src import xla_bridge

    xla_bridge.register_plugin(
        "torch_tpu_plugin", library_path=str(lammps_jax_pjrt_cpu.PLUGIN_PATH)
    )


def make_loss(heads: int) -> Callable[..., Any]:
    """Returns the model's loss as a function of its weights and a batch."""
    import jax
    import jax.numpy as jnp

    def normalise(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + NORM_EPSILON) * scale

    def block(w: Tree, prefix: str, x: Any) -> Any:
        def linear(name: str, y: Any) -> Any:
            return y @ w[f"{prefix}.{name}.weight"].T

        batch, tokens, width = x.shape
        size = width // heads
        q, k, v = (
            part.reshape(batch, tokens, heads, size).transpose(0, 2, 1, 3)
            for part in jnp.split(linear("qkv", normalise(x, w[f"{prefix}.norm1.weight"])), 3, -1)
        )
        scores = (q @ k.swapaxes(-2, -1)) * size**-0.5
        future = jnp.triu(jnp.ones((tokens, tokens), bool), 1)
        weights = jax.nn.softmax(jnp.where(future, -jnp.inf, scores), -1)
        x = x + linear("out", (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape))
        y = normalise(x, w[f"{prefix}.norm2.weight"])
        return x + linear("down", jax.nn.silu(linear("gate", y)) * linear("up", y))

    def loss(w: Tree, ids: Any, targets: Any) -> Any:
        x = w["embed.weight"][ids]
        for layer in range(LAYERS):
            x = block(w, f"blocks.{layer}", x)
        logits = normalise(x, w["norm.weight"]) @ w["head.weight"].T
        chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)

    return loss


def make_step(heads: int) -> Callable[..., Any]:
    """Returns the jitted step: (state, ids, targets) to (loss, state), the old state donated."""
    import jax
    import jax.numpy as jnp

    loss = make_loss(heads)

    def step(state: Tree, ids: Any, targets: Any) -> tuple[Any, Tree]:
        value, gradients = jax.value_and_grad(loss)(state["weights"], ids, targets)
        count = state["count"] + 1
        correction1, correction2 = 1 - BETA1**count, 1 - BETA2**count

        def update(w: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
            m, v = m + (g - m) * (1 - BETA1), v * BETA2 + g * g * (1 - BETA2)
            scale = jnp.sqrt(v) / jnp.sqrt(correction2) + EPSILON
            return w * (1 - LEARNING_RATE * DECAY) - LEARNING_RATE / correction1 * m / scale, m, v

        new: Tree = {"weights": {}, "m": {}, "v": {}, "count": count}
        for name, w in state["weights"].items():
            new["weights"][name], new["m"][name], new["v"][name] = update(
                w, gradients[name], state["m"][name], state["v"][name]
            )
        return value, new

    return jax.jit(step, donate_argnums=0)


def prepare(name: str, path: Path) -> tuple[Callable[[], float], Any]:
    """Returns a function that trains a step from the file's weights, and the file's losses."""
    import jax.numpy as jnp

    with np.load(path) as file:
        arrays = dict(file)
    expected = arrays.pop("losses")
    ids, targets = (jnp.asarray(arrays.pop(key).astype(np.int32)) for key in ("ids", "targets"))
    state: Tree = {
        "weights": {key: jnp.asarray(value) for key, value in arrays.items()},
        "m": {key: jnp.zeros_like(value) for key, value in arrays.items()},
        "v": {key: jnp.zeros_like(value) for key, value in arrays.items()},
        "count": jnp.zeros((), jnp.float32),
    }
    step = make_step(HEADS[name])

    def run() -> float:
        nonlocal state
        loss, state = step(state, ids, targets)
        return float(loss)

    return run, expected


def measure(name: str, path: Path, steps: int) -> Tree:
    """Returns times in ms, and losses beside the file's."""
    step, expected = prepare(name, path)
    losses, times = [], []
    for _ in range(len(expected) + steps):
        start = time.perf_counter()
        losses.append(step())
        times.append((time.perf_counter() - start) * 1e3)
    steady = times[len(expected) :]
    gap = float(np.abs(np.array(losses[: len(expected)]) - expected).max())
    return {
        "median": round(statistics.median(steady), 3),
        "min": round(min(steady), 3),
        "unit": "ms/step",
        "first_s": round(times[0] / 1e3, 3),
        "losses": [round(value, 4) for value in [*losses[: len(expected) - 1], losses[-1]]],
        "gap": gap,
        "agrees": gap <= TOLERANCE,
    }


def main() -> None:
    """Reads the command line and measures each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--client", choices=("plugin", "jaxlib"), default="plugin")
    parser.add_argument("--cases", default=",".join(HEADS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--follow", action="store_true")
    args = parser.parse_args()

    use_client(args.client)
    if args.follow:
        case = args.cases.partition(",")[0]
        follow(prepare(case, args.folder / f"{case}.npz")[0])
        return
    agree = True
    for case in args.cases.split(","):
        result = measure(case, args.folder / f"{case}.npz", args.steps)
        agree = agree and result["agrees"]
        print(json.dumps({"backend": f"jax-{args.client}", "mode": "jit", "case": case, **result}))
    sys.exit(not agree)


if __name__ == "__main__":
    main()
