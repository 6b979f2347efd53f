"""Each row of the op table within its tolerance, on the operands that op_db's samples give it."""

import math
from collections import defaultdict

import pytest
import torch
from support import DEVICE, only_tpu
from test_ops import OPS, differentiable, full_name, gradients, move, on_device
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

pytestmark = only_tpu
SAMPLES = 4
ROWS = {}
if DEVICE == "tpu":
    import torch_tpu._C as glue

    FIELDS = ("name", "class", "statics", "doc", "tolerance", "why", "sizes")
    ROWS = {row[0]: dict(zip(FIELDS, row, strict=True)) for row in glue.op_rows()}
# What the CPU has under another name.
TWINS = {"convolution_overrideable": torch.ops.aten.convolution.default}
WORST: dict[str, float] = defaultdict(float)


def to_host(tree):
    """The same operands in double precision."""

    def one(x):
        if isinstance(x, torch.Tensor):
            host = x.detach().cpu()
            wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}
            return host.to(wide.get(host.dtype, host.dtype))
        if isinstance(x, torch.device):
            return torch.device("cpu")
        return {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(x, x)

    return tree_map(one, tree)


def squares(tree):
    """The sum of squares of the tensor that has the greatest."""
    floats = [t for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor)]
    floats = [t for t in floats if t.is_floating_point() or t.is_complex()]
    sums = [t.abs().nan_to_num(0, 0, 0).double().square().sum().item() for t in floats]
    return max(sums, default=0.0)


def error_of(got, exact, least):
    """The squared error beside the squared values, where both are finite.

    least: what the squared values count as at least, where sums may cancel.
    """
    got, exact = got.detach().cpu().to(exact.dtype), exact.detach()
    if got.shape != exact.shape or not (exact.is_floating_point() or exact.is_complex()):
        return 0.0
    most, tiny = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
    exact = torch.where(exact.abs() < tiny, 0, exact)  # XLA has no subnormal numbers
    fine = exact.isfinite() & got.isfinite() & (exact.abs() <= most)
    got, exact = got[fine], exact[fine]
    size = exact.abs().square().sum().item()
    error = (got - exact).abs().square().sum().item()
    size = max(size, least)
    return 0.0 if error == 0 else error / size if size else math.inf


def is_the_cpus(results, func, args, kwargs):
    """Whether the results are, bit for bit, what the CPU makes of the same operands.

    A matrix has eigenvectors of either sign, and LAPACK's choice differs with the precision.
    """
    here = tree_map(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x, (args, kwargs))
    own = tree_flatten(func(*here[0], **here[1]))[0]
    return all(torch.equal(x.cpu(), y) for x, y in zip(tree_flatten(results)[0], own, strict=True))


class Compare(TorchDispatchMode):
    """Repeats each operator that has a row on the host, in double precision."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.name().removeprefix("aten::")
        row = ROWS.get(name)
        if row is None or row["class"] in ("random", "create") or func._schema.is_mutable:
            return func(*args, **kwargs)
        operands = to_host((args, kwargs))
        results = func(*args, **kwargs)
        floats = [t for t in tree_flatten(results)[0] if isinstance(t, torch.Tensor)]
        if not any(t.dtype in (torch.float32, torch.complex64) for t in floats):
            return results
        try:
            exact = TWINS.get(name, func)(*operands[0], **operands[1])
        except (RuntimeError, NotImplementedError):
            return results  # such as _overrideable operators, which the CPU does not have
        least = 0.0 if row["class"] == "pointwise" else 1e-6 * squares(operands)
        for got, wanted in zip(tree_flatten(results)[0], tree_flatten(exact)[0], strict=False):
            if isinstance(got, torch.Tensor) and isinstance(wanted, torch.Tensor):
                error = error_of(got, wanted, least)
                if error > row["tolerance"] and is_the_cpus(results, func, args, kwargs):
                    error = 0.0
                WORST[name] = max(WORST[name], error)
        return results


def wanted_rows():
    """Which rows have an error that their tolerance does not allow."""
    return {
        name: (error, ROWS[name]["tolerance"])
        for name, error in WORST.items()
        if error > ROWS[name]["tolerance"]
    }


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in OPS if torch.float32 in op.dtypes], ids=full_name)
def test_tolerance(op):
    WORST.clear()
    needs = differentiable(op, torch.float32)
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=needs)
    for _, sample in zip(range(SAMPLES), samples, strict=False):
        inputs = (move(sample.input), move(sample.args), on_device(sample.kwargs))
        with Compare():
            result = op(inputs[0], *inputs[1], **inputs[2])
            if needs:
                try:
                    gradients(result, inputs)
                except RuntimeError:
                    continue  # of empty matrices, some
    assert not wanted_rows()


def test_reasons():
    """Every other tolerance is a row's, and says why; the page of operators shows it."""
    loose = [row for row in ROWS.values() if row["tolerance"] != 1e-7]
    assert loose and all(row["why"].endswith(".") for row in loose)
