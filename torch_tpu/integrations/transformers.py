"""`pipeline` looks for seven kinds of devices, and `Trainer` saves the random numbers of five.

Where `pipeline` finds none of them it takes the CPU. (`TrainingArguments` asks accelerate.)
"""

import sys
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

from torch_tpu.integrations import _random, chosen

TESTED = "5.23"


def apply(module: str) -> None:
    """Has pipelines take `tpu`, and the trainer's checkpoints hold its generators."""
    loaded = sys.modules[module]
    if module == "transformers.trainer":
        _trainer(loaded.Trainer)
    else:
        _pipeline(loaded.Pipeline)


def _pipeline(cls: Any) -> None:
    init = cls.__init__

    @wraps(init)
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807
        given = signature(init).bind(self, *args, **named)
        device = given.arguments.get("device")
        spread = getattr(given.arguments["model"], "hf_device_map", None) is not None
        if not spread and (device is None or (isinstance(device, int) and device >= 0)):
            given.arguments["device"] = chosen(device) or device
        init(*given.args, **given.kwargs)

    cls.__init__ = __init__


def _trainer(cls: Any) -> None:
    save, load = cls._save_rng_state, cls._load_rng_state

    def path(self: Any, folder: str) -> Path:
        return Path(folder) / f"rng_state_tpu_{self.args.process_index}.pth"

    @wraps(save)
    def save_rng_state(self: Any, output_dir: str) -> None:
        save(self, output_dir)
        if chosen() is not None:
            _random.save(path(self, output_dir))

    @wraps(load)
    def load_rng_state(self: Any, checkpoint: str | None) -> None:
        load(self, checkpoint)
        if checkpoint is not None and chosen() is not None:
            _random.load(path(self, checkpoint))

    cls._save_rng_state, cls._load_rng_state = save_rng_state, load_rng_state
