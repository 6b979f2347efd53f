"""Programs that leave Python: StableHLO for other runtimes, and files that `tt_run` runs.

`stablehlo` gives a program's portable text; `save` writes one file with the compiled program, its
StableHLO and its weights, which `load` makes a function of again and the command `tt_run` runs
without Python (docs/export.md).
"""

from torch_tpu.export.files import Loaded, load, save
from torch_tpu.export.program import Port, Program
from torch_tpu.export.stablehlo import stablehlo

__all__ = ["Loaded", "Port", "Program", "load", "save", "stablehlo"]
