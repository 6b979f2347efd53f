"""Libraries that take `tpu` by themselves where nobody has named a device.

Some libraries choose a device from a list that is fixed in their code and has no hook. For each of
them, a module of this package says which functions it changes, and why; it is loaded when the
library is, and not before. What a user names (`cpu=True`, `device="cpu"`) counts as ever.

`TORCH_TPU_INTEGRATIONS=off` leaves all libraries as they are, and a list of names changes those
only; so does `disable()`, before the library is imported.
"""

import importlib
import sys
import warnings
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import Literal

import torch

from torch_tpu import _C, tpu
from torch_tpu.integrations._imports import Watcher, replace

# Each library's modules whose import calls for a change. A library imports them after PyTorch, and
# what is to be changed before them.
TRIGGERS = {
    "accelerate": ["accelerate.launchers"],
    "bitsandbytes": ["bitsandbytes.backends.default.ops"],
    "lightning": [
        "lightning.fabric.connector",
        "lightning.pytorch.trainer.trainer",
        "lightning_fabric.connector",
        "pytorch_lightning.trainer.trainer",
    ],
    "peft": ["peft.peft_model"],
    "safetensors": ["safetensors"],
    "sentence_transformers": ["sentence_transformers.util"],
    "stable_baselines3": ["stable_baselines3.common.utils"],
    "transformers": ["transformers.pipelines.base", "transformers.trainer"],
}

State = Literal["waiting", "applied", "off", "failed"]


@dataclass
class Integration:
    """A library that is changed when it is imported.

    `state`: "waiting" for the library, "applied", "off", or "failed"; `problem` says what failed.
    """

    library: str
    state: State = "waiting"
    problem: str = ""

    @property
    def reason(self) -> str:
        """What the library does otherwise, in one sentence."""
        return (self._module().__doc__ or "").partition("\n")[0]

    @property
    def tested(self) -> str:
        """The version of the library that this was tested with."""
        return str(self._module().TESTED)

    def _module(self) -> ModuleType:
        return importlib.import_module(f"torch_tpu.integrations.{self.library}")

    def apply(self, module: str) -> None:
        """Changes what this module of the library is about, which has been imported.

        A library that has another shape than is expected is a warning.
        """
        if self.state in ("off", "failed"):
            return
        try:
            self._module().apply(module)
            self.state = "applied"
        except Exception as error:
            self.state, self.problem = "failed", f"{type(error).__name__}: {error}"
            warnings.warn(
                f"torchtpu: {self.library} is not made to choose device 'tpu' by itself "
                f"({self.problem}); version {self.tested} was tested. Name the device, and set "
                "TORCH_TPU_INTEGRATIONS=off to be rid of this warning",
                RuntimeWarning,
                stacklevel=2,
            )


_integrations = {library: Integration(library) for library in TRIGGERS}
_library_of = {module: library for library, modules in TRIGGERS.items() for module in modules}


def integrations() -> list[Integration]:
    """All of them, by name."""
    return [_integrations[library] for library in sorted(_integrations)]


def disable(*libraries: str) -> None:
    """Leaves these libraries as they are (all, if none is named). Call it before their import.

    Raises ValueError if there is no such integration, RuntimeError if it was applied already.
    """
    for library in libraries or tuple(_integrations):
        if library not in _integrations:
            raise ValueError(f"{library!r} is none of {', '.join(sorted(_integrations))}")
        if _integrations[library].state == "applied":
            raise RuntimeError(f"{library} has been imported and changed already")
        _integrations[library].state = "off"


def chosen(index: int | None = None) -> torch.device | None:
    """What a library takes that would take a GPU if there was one; None: no such device.

    index: where it is given; else the current device's, which is a rank's own.
    """
    if not tpu.is_available() or (index is not None and index >= tpu.device_count()):
        return None
    return torch.device("tpu", _C.current_device() if index is None else index)


def have_found(library: str, module: str, name: str) -> None:
    """Has a library's function of this name, which says "cpu" of unknown devices, find `tpu`."""
    original = getattr(sys.modules[module], name)

    @wraps(original)
    def find() -> str:
        found: str = original()
        return str(chosen() or found) if found == "cpu" else found

    replace(library, name, original, find)


def _imported(module: str) -> None:
    _integrations[_library_of[module]].apply(module)


def watch(setting: str) -> None:
    """Called once: `setting` is `on`, `off`, or the libraries' names, separated by commas.

    Raises ValueError for a name that is none of them.
    """
    wanted = set(_integrations) if setting == "on" else set(setting.split(",")) - {"off", ""}
    if unknown := wanted - set(_integrations):
        raise ValueError(
            f"TORCH_TPU_INTEGRATIONS: {', '.join(sorted(unknown))}: expected on, off, or some of "
            f"{','.join(sorted(_integrations))}"
        )
    for library in set(_integrations) - wanted:
        _integrations[library].state = "off"
    Watcher(_imported).watch([name for library in sorted(wanted) for name in TRIGGERS[library]])
