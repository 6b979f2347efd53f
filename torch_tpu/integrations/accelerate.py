"""The device, its memory, its random numbers and fp16 go by lists of the devices that it knows.

`PartialState.default_device` says "cpu" of any other, and with it `Accelerator` and the `Trainer`
of transformers; `get_max_memory` counts no other, and with it `device_map="auto"`; checkpoints hold
no other's generators; and `mixed_precision="fp16"` is refused on any other.
"""

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from torch_tpu import _C, tpu
from torch_tpu.integrations import _random, chosen
from torch_tpu.integrations._imports import replace

TESTED = "1.15"


def apply(module: str) -> None:
    """Adds `tpu` to these lists, behind all that is there."""
    _device(sys.modules["accelerate.state"].PartialState)
    _memory(sys.modules["accelerate.utils.modeling"])
    _checkpoints(sys.modules["accelerate.checkpointing"])
    _fp16(sys.modules["accelerate.accelerator"].Accelerator)


def _device(cls: Any) -> None:
    original = cls.default_device.fget

    def default_device(self: Any) -> torch.device:
        found: torch.device = original(self)
        return chosen() or found if found.type == "cpu" else found

    cls.default_device = property(default_device, doc=original.__doc__)


def _memory(modeling: Any) -> None:
    original, bytes_of = modeling.get_max_memory, modeling.convert_file_size_to_int

    @wraps(original)
    def get_max_memory(max_memory: Any = None) -> Any:
        if chosen() is None:
            return original(max_memory)
        own = [i for i in range(tpu.device_count()) if not _C.is_of_another(i)]
        if max_memory is None:
            devices = {i: tpu.mem_get_info(i)[0] for i in own}
        else:
            devices = {i: max_memory[i] for i in own if i in max_memory}
            max_memory = {key: value for key, value in max_memory.items() if key not in devices}
        devices = {i: bytes_of(v) if isinstance(v, str) else v for i, v in devices.items()}
        return devices | original(max_memory)

    replace("accelerate", "get_max_memory", original, get_max_memory)


def _checkpoints(checkpointing: Any) -> None:
    save, load = checkpointing.save_accelerator_state, checkpointing.load_accelerator_state

    def path(folder: str, process: int) -> Path:
        return Path(folder) / f"random_states_tpu_{process}.pt"

    @wraps(save)
    def save_accelerator_state(*args: Any, **named: Any) -> Any:
        given = signature(save).bind(*args, **named).arguments
        output = save(*args, **named)
        if chosen() is not None:
            _random.save(path(given["output_dir"], given["process_index"]))
        return output

    @wraps(load)
    def load_accelerator_state(*args: Any, **named: Any) -> Any:
        given = signature(load).bind(*args, **named).arguments
        attributes = load(*args, **named)
        if chosen() is not None:
            _random.load(path(given["input_dir"], given["process_index"]))
        return attributes

    replace("accelerate", "save_accelerator_state", save, save_accelerator_state)
    replace("accelerate", "load_accelerator_state", load, load_accelerator_state)


# Whether this context is in the constructor, whose list of devices for fp16 is in its body: there
# fp16 reads as bf16, for which nothing but autocast is prepared.
_in_constructor = contextvars.ContextVar("_in_constructor", default=False)


@contextlib.contextmanager
def _constructing() -> Iterator[None]:
    token = _in_constructor.set(True)
    try:
        yield
    finally:
        _in_constructor.reset(token)


def _fp16(cls: Any) -> None:
    state = sys.modules["accelerate.state"].AcceleratorState
    precision, init = state.mixed_precision.fget, cls.__init__

    def mixed_precision(self: Any) -> str:
        asked: str = precision(self)
        hidden = asked == "fp16" and _in_constructor.get() and self.device.type == "tpu"
        return "bf16" if hidden else asked

    @wraps(init)
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807
        with _constructing():
            init(self, *args, **named)
        if self.device.type == "tpu" and self.state.mixed_precision == "fp16":
            options = self.scaler_handler.to_kwargs() if self.scaler_handler else {}
            self.scaler = torch.amp.GradScaler("tpu", **options)

    state.mixed_precision = property(mixed_precision, doc=precision.__doc__)
    cls.__init__ = __init__
