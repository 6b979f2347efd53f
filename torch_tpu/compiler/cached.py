"""Compiled graphs as AOTAutograd's cache keeps them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import no_python_dispatcher
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._guards import detect_fake_mode
from torch._inductor.output_code import OutputCode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx._graph_pickler import GraphPickler, Options

from torch_tpu import _C, tpu
from torch_tpu.compiler import mixed
from torch_tpu.compiler.functions import Compiled


class Cached(Compiled, OutputCode):  # type: ignore[misc] # called with a list, of any kind
    """A compiled graph that AOTAutograd's cache can keep: the graph, not what was captured of it.

    The programs of the captures are in the folder of compiled programs (docs/cache.md).
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def begun(self, args: Sequence[Any]) -> "Cached":
        """Captures it for the arguments that AOTAutograd was given; returns itself.

        Its program is then being compiled while AOTAutograd makes the backward graph and writes its
        cache. Where its arguments will be others, or there is an obstacle, its first call does it.
        """
        values = list(args)
        count = len(self.whole.graph.find_nodes(op="placeholder"))
        plain = all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in values)
        apart = self.why or self._division or self._bucketed
        if apart or not plain or not values or len(values) != count:
            return self
        with unset_fake_temporarily(), no_python_dispatcher(), torch._C._DisableAutocast():
            if not _C.is_capturing(tpu.current_device()):
                with torch.no_grad():
                    self._program(self.graph, values, values)
                self.why = ""
        return self

    def prepare_for_serialization(self) -> None:
        """Leaves what is kept; PyTorch calls it of a copy. Raises what makes it keep nothing."""
        needed = mixed.is_mixed(self.whole) or self._bucketed
        keys = {"val"} if needed else set()
        options = Options(ops_filter=None, node_metadata_key_filter=keys.__contains__)
        try:
            with unset_fake_temporarily():  # constants of the graph are tensors as they are
                kept = GraphPickler.dumps(self.whole, options)
        except Exception as error:
            raise BypassAOTAutogradCache(f"a graph cannot be kept: {error}") from error
        names = ("_checks", "repeat", "pair", "is_backward", "options")
        self.__dict__ = {"_kept": kept, **{name: getattr(self, name) for name in names}}

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, settings: Any) -> None:
        """Makes a graph again of what was kept."""
        kept = self.__dict__.pop("_kept", None)
        if kept is not None:
            mode = detect_fake_mode(example_inputs)
            assert mode is not None, "AOTAutograd traces with fake tensors"
            with unset_fake_temporarily():
                graph = GraphPickler.loads(kept, mode)
            assert isinstance(graph, fx.GraphModule)
            graph.recompile()
            how = (self.repeat, self._checks, self.pair, self.is_backward, self.options)
            Compiled.__init__(self, graph, *how)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There is none."""
