"""Kernels that PyTorch has for the CPU's sparse, nested or quantised tensors, and that serve any
device.

They are made of operators on dense tensors, and registered for this device as they are. A sparse
tensor's indices and values, and a strided nested tensor's buffer, are dense tensors of the device.
The other kernels are in `_sparse`, `_nested.py` and `_quantised.py`. Imported with the device.
"""

import torch

from torch_tpu import _C
from torch_tpu._agreement import table


def _is_lent(overload: str, key: str) -> bool:
    operator = overload.partition(".")[0]
    kinds = table.known(operator, operator.removesuffix("_")).kinds
    if key == "SparseCPU":
        return "LentSparse" in kinds and "DirectCoo" not in table.known(overload).kinds
    if key == "SparseCsrCPU":
        return "LentSparse" in kinds and "DirectCsr" not in table.known(overload).kinds
    if key == "QuantizedCPU":
        return "LentQuantised" in kinds
    return "DirectNested" not in kinds if key == "NestedTensorCPU" else "LentDense" in kinds


for _key in ("SparseCPU", "SparseCsrCPU", "NestedTensorCPU", "QuantizedCPU", "CPU"):
    _names = torch._C._dispatch_get_registrations_for_dispatch_key(_key)
    _overloads = [_name.removeprefix("aten::") for _name in _names if _name.startswith("aten::")]
    _chosen = [_name for _name in _overloads if _is_lent(_name, _key)]
    _C.lend(_chosen, _key, _key.replace("CPU", "") + "PrivateUse1")
