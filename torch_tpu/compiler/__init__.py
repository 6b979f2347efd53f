"""`torch.compile` on `tpu`: Dynamo and AOTAutograd give graphs, each becomes one program.

A graph is not translated: it is run once, on tensors that hold nothing, while its stream is being
captured (docs/architecture.md, "Captures"). So what works eagerly works compiled.
"""

from torch_tpu.compiler.backend import tpu
from torch_tpu.compiler.functions import Compiled, compiled

__all__ = ["Compiled", "compiled", "tpu"]
