"""What runs on the host is known, said, and counted; the page of operators tells the truth."""

import pytest
import torch
from support import only_tpu

from torch_tpu import _decompositions, _host

pytestmark = only_tpu
ROWLESS = {name for name, path in _host.paths() if path == "none"}


def test_every_operator_has_a_path_or_a_reason():
    known = set(_host.named(_host.ON_HOST)) | set(_host.named(_host.OTHER_TENSORS))
    assert known == ROWLESS
    assert not set(_host.named(_host.ON_HOST)) & set(_host.named(_host.OTHER_TENSORS))


def test_few_operators_run_on_the_host():
    operators = {name.partition(".")[0] for name in _host.named(_host.ON_HOST)}
    assert len(operators) <= 15


def test_every_decomposition_belongs_to_an_overload_and_is_described():
    every = set(torch._C._dispatch_get_all_op_names())
    for name, function in _decompositions.table().items():
        assert name in every
        assert function.__doc__ and function.__doc__.split("\n")[0].endswith(".")


def test_running_on_the_host_is_counted_and_can_be_refused():
    args = torch.ones(1, 2, device="tpu"), torch.tensor([0]), (2, 2)
    with (
        torch.tpu.set_host_fallback("error"),
        pytest.raises(NotImplementedError, match="_spdiags"),
    ):
        torch.sparse.spdiags(*args)
    with torch.tpu.set_host_fallback("silent"):
        before = torch.tpu.metrics()["host_operators"].get("aten::_spdiags", 0)
        matrix = torch.sparse.spdiags(*args)
        assert matrix.device.type == "tpu" and matrix.to_dense().tolist() == [[1, 0], [0, 1]]
        assert torch.tpu.metrics()["host_operators"]["aten::_spdiags"] == before + 1
