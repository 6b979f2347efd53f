"""Which function a graph was traced from, told without keeping the function or its code alive."""

from types import CodeType
from typing import Any, NamedTuple

import torch


class Origin(NamedTuple):
    """The place where a function is defined."""

    file: str
    line: int
    name: str


MOST = 4096  # compilations that are remembered, for backwards that are compiled later

_of_compilation: dict[str, Origin] = {}


def current() -> Origin | None:
    """Of what is being compiled on this thread; None where Dynamo has no part in it."""
    from torch._guards import CompileContext

    compilation = str(CompileContext.current_compile_id())
    found = _of_frame()
    if found is None:
        return _of_compilation.get(compilation)
    if len(_of_compilation) >= MOST:
        _of_compilation.pop(next(iter(_of_compilation)), None)
    _of_compilation[compilation] = found
    return found


def _of_frame() -> Origin | None:
    """Of the frame that Dynamo is compiling."""
    from torch._dynamo.resume_execution import ContinueExecutionCache
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        frame = InstructionTranslator.current_tx().output.root_tx
    except AttributeError:
        return None
    code = frame.f_code
    resumed = ContinueExecutionCache.generated_code_metadata.get(code)
    if resumed is not None:  # what is behind a graph break
        code = resumed.code
    inner = frame.f_locals.get("fn")
    if code.co_filename.endswith("external_utils.py") and callable(inner):
        return of(inner)  # the frame that Dynamo puts around modules of PyTorch's own
    return _of_code(code)


def of(function: Any) -> Origin | None:
    """Of a function, a module, or what torch.compile returned for one; None if it has no code."""
    from torch._dynamo.eval_frame import OptimizedModule, innermost_fn

    if isinstance(function, OptimizedModule):
        function = function._orig_mod
    function = innermost_fn(function)
    if isinstance(function, torch.nn.Module):
        function = function.forward
    function = innermost_fn(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    return _of_code(code) if isinstance(code, CodeType) else None


def _of_code(code: CodeType) -> Origin:
    return Origin(code.co_filename, code.co_firstlineno, code.co_name)
