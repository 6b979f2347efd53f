"""Graphs that serve all sizes up to a bound (docs/compile.md, "Sizes that vary")."""

from torch_tpu.compiler.padding import create, mixing, views  # noqa: F401 # register their rules
from torch_tpu.compiler.padding.dims import Dim
from torch_tpu.compiler.padding.graph import Padding, RefusedError, Result

__all__ = ["Dim", "Padding", "RefusedError", "Result"]
