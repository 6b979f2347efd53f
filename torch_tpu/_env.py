"""The environment variables, whose one registry is the engine's."""

from torch_tpu import _C


def value(name: str) -> str:
    """What `TORCH_TPU_<name>` is, or its default."""
    return {variable: value for variable, _, _, value in _C.env_vars()}[f"TORCH_TPU_{name}"]
