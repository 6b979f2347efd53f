"""Options of the plugin's own compiler, by name, for one program."""

import re
from typing import Any

import torch

from torch_tpu import _C

PREFIX = "xla_"
_NAME = re.compile(r"xla_[a-z0-9_]+")
# What mode="max-autotune" adds, by platform: kernels are timed where they are compiled.
THOROUGH: dict[str, dict[str, Any]] = {
    "cuda": {"xla_gpu_autotune_level": 4, "xla_gpu_enable_triton_gemm": True}
}
# Of these the plugins' compiler dies where they are below the least.
_LEAST = {"xla_cpu_parallel_codegen_split_count": 1}


def lines(options: dict[str, Any]) -> str:
    """Returns options as the first lines of a program's text: equal ones give equal lines.

    options: values (bool, int, float, str) by names that begin with "xla_". Raises ValueError,
    which names the option, for what cannot be one, and for what the plugin does not take.
    """
    return "".join(_checked(name, options[name]) for name in sorted(options))


def _checked(name: str, value: Any) -> str:
    """An option's line, of which the plugin has compiled a small program."""
    line = _line(name, value)
    if not line:
        raise ValueError(
            f"the option {name}={value!r}: its name is {PREFIX}.. in lower case; its value is a "
            "bool, an int of 64 bits, a float, or one line of text"
        )
    least = _LEAST.get(name)
    if least is not None and isinstance(value, int) and value < least:
        raise ValueError(f"the option {name}={value!r}: it is {least} or more")
    try:
        _C.try_options(line)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        said = str(error).partition("\n")[0]
        raise ValueError(f"the option {name}={value!r}: the plugin says: {said}") from None
    return line


def _line(name: str, value: Any) -> str:
    """Empty where there is none. XLA reads floats from text, as it does names of enumerators."""
    if not _NAME.fullmatch(name):
        return ""
    if isinstance(value, bool):
        return f"// option {name} bool {str(value).lower()}\n"
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return f"// option {name} int {value}\n"
    if isinstance(value, float) or (isinstance(value, str) and value.isprintable()):
        return f"// option {name} str {value}\n"
    return ""
