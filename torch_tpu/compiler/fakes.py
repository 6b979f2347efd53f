"""Results of fake tensors on `tpu`, where PyTorch's Meta kernels know less than the device does."""

from typing import Any

import torch
from torch._subclasses.fake_impls import register_op_impl

from torch_tpu._agreement import operators, results

OVERLOADS = (torch.ops.aten._grouped_mm.default, torch.ops.aten.geqrf.default)


def install() -> None:
    """Has fake tensors of the device have the results that `_agreement` states."""
    register_op_impl(OVERLOADS)(_state)


def _state(mode: Any, overload: Any, *args: Any, **kwargs: Any) -> Any:
    schema = overload._schema
    given = dict(zip((one.name for one in schema.arguments), args, strict=False)) | kwargs
    ordered = [given.get(one.name, one.default_value) for one in schema.arguments]
    if not any(one.device.type == "tpu" for one in operators.tensors_of(ordered)):
        return NotImplemented
    with mode:
        found = results.state(operators.operator(schema.name, ""), ordered)
    if not found:
        return NotImplemented  # Meta then says why not
    return found[0] if len(schema.returns) == 1 else tuple(found)
