"""What the CPU refuses is refused, with the same type of exception."""

import pytest
import torch
from support import DEVICE, raises_alike
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

INDEX = torch.tensor([[0, 1, 1], [1, 0, 0]])
REFUSED = {
    "gather-overlap": lambda x, i: torch.gather(x, 1, i, out=x.new_empty(1).expand(2, 3)),
    "gather-input": lambda x, i: torch.gather(x, 1, i, out=x),
    "take-index": lambda x, i: torch.take(i, i, out=i),
    "select-overlap": lambda x, i: torch.index_select(x, 0, i[0], out=x.new_empty(1).expand(3, 3)),
    "cat-input": lambda x, i: torch.cat([x, x], out=torch.cat([x, x])[:1].expand(4, 3)),
    "complex-dtypes": lambda x, i: torch.complex(x, x.double()),
    "wide-summand": lambda x, i: torch.addmm(x, x[:1], x[:1].t()),
    "wide-vector": lambda x, i: torch.addmv(x[0], x[:1], x[0]),
    "boundaries": lambda x, i: torch.bucketize(x, x),
    "byte-mask": lambda x, i: x.masked_scatter(i.byte(), x),
    "add-other-rank": lambda x, i: x.index_add(0, i[0, :2], x[0, :2]),
    "add-other-shape": lambda x, i: x.index_add(0, i[0, :2], x.reshape(3, 2)[:2]),
    "float-to-integers": lambda x, i: i.mul_(x),
    "float-to-integers-of-a-list": lambda x, i: torch._foreach_mul_([i, i.clone()], 1.5),
    "float-function-of-integers": lambda x, i: i.logit_(),
    "integers-to-bools": lambda x, i: (i > 0).mul_(i),
    "sample-integers": lambda x, i: torch.multinomial(i, 2),
    "sample-nothing": lambda x, i: torch.multinomial(x.abs(), 0),
    "sample-too-many": lambda x, i: torch.multinomial(x.abs(), 4),
    "extremes-dtype": lambda x, i: torch.aminmax(
        x, dim=0, out=(x.new_empty(3).double(), x.new_empty(3).double())
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    raises_alike(REFUSED[name], torch.arange(6.0).reshape(2, 3), INDEX)


def test_overlap_that_is_allowed():
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    torch.add(x, x, out=x)
    torch.mm(x, x.t(), out=torch.empty(2, 2, device=DEVICE))
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]


# (operator, sample, or None for all): why not.
EXCEPTIONS = {
    ("uniform", 0): "the range is a number of the running program",
    ("complex", 2): "the target's dtype is converted to",
    ("narrow_copy", 1): "the exception says more",
    ("masked_select", None): "runs on the host, which sees copies",
    ("multinomial", None): "other samples for each device",
    ("median", None): "more dims than the device has",
    ("aminmax", None): "more dims than the device has",
    ("amax", None): "more dims than the device has",
    ("amin", None): "more dims than the device has",
}
WITH_ERRORS = [op for op in op_db if op.error_inputs_func is not None]


def outcome(op, sample):
    try:
        result = op(sample.input, *sample.args, **sample.kwargs)
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, torch.Tensor):
                leaf.cpu()
    except Exception as error:
        return type(error)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("op", WITH_ERRORS, ids=lambda op: op.formatted_name)
def test_error_inputs(op):
    if (op.name, None) in EXCEPTIONS:
        pytest.skip(EXCEPTIONS[op.name, None])
    pairs = zip(op.error_inputs("cpu"), op.error_inputs(DEVICE), strict=False)
    for number, (host, device) in enumerate(pairs):
        if (op.name, number) not in EXCEPTIONS:
            assert outcome(op, device.sample_input) == outcome(op, host.sample_input), number
