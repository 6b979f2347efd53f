"""Graphs that serve all sizes up to a bound (docs/compile.md, "Sizes that vary")."""

from torch_tpu.compiler.padding import (  # noqa: F401 # their rules
    attention,
    create,
    indexing,
    nn,
    reductions,
    views,
)
from torch_tpu.compiler.padding.dims import Dim, RefusedError
from torch_tpu.compiler.padding.graph import Padding, Result

__all__ = ["Dim", "Padding", "RefusedError", "Result"]
