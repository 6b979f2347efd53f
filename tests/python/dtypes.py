"""PyTorch's operators by dtype: what its database lists for the CPU or CUDA, on the device.

Samples are PyTorch's own. What the CPU computes in the dtype is expected; where only CUDA has the
dtype, what the CPU computes in a wider one, rounded (complex sums without NaN it has in none, and
tests/python/test_on_cuda.py looks at them). Of half precision a result may also be as near
to the wider one as the CPU's is.

usage: dtypes.py [--samples N] [--gradients] [--record FILE] [DTYPE...]
It prints for each dtype how many of the listed entries pass, and what the others do instead.
--record: adds the counts to a file, which `make docs` puts into docs/ops.md.
"""

import argparse
import contextlib
import itertools
import json
import signal
import sys
import warnings
from pathlib import Path

import torch
from rich.progress import track
from support import DEVICE, move
from test_ops import draws, fix_places, full_name, gradients, on_device
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

HELD = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    torch.complex32, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip
WIDER = (
    torch.uint8, torch.int64, torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
"""Each holds what the ones before it do, or nearly."""
HALVES = (torch.bfloat16, torch.float16, torch.complex32)
SECONDS = 60
"""An entry that takes longer has failed."""
NEITHER = ("jiterator", "as_strided.partial_views")
"""A compiler of CUDA's, and operands cut out of storages that are not moved."""
RANDOM = (
    "bernoulli", "cauchy", "dropout", "empty", "exponential", "geometric", "multinomial", "normal",
    "pca_lowrank", "rand", "rrelu", "svd_lowrank", "uniform",
)  # fmt: skip
"""Words of names whose results are not determined: only their kinds are compared."""


class SlowError(Exception):
    """An entry took too long."""


@contextlib.contextmanager
def in_time():
    def late(*_):
        raise SlowError(f"not done after {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def widened(op, tree, dtype):
    """A tree whose tensors of a dtype are of the narrowest wider one that the CPU computes in."""
    first = WIDER.index(torch.complex64) if dtype.is_complex else 0
    first = WIDER.index(torch.float32) if dtype.is_floating_point else first
    wide = next((one for one in WIDER[first:] if one in op.dtypes and one != dtype), dtype)
    return tree_map(
        lambda x: x.to(wide) if isinstance(x, torch.Tensor) and x.dtype == dtype else x, tree
    )


def of_wider(op, dtype, sample, actual):
    """What the CPU computes in a wider dtype, rounded to the dtypes of the device's results."""
    x, args, kwargs = widened(op, (sample.input, sample.args, sample.kwargs), dtype)
    results = iter(tree_flatten(sample.output_process_fn_grad(op(x, *args, **kwargs)))[0])

    def rounded(mine):
        wide = next(results)
        return wide.to(mine.dtype) if isinstance(mine, torch.Tensor) else wide

    return tree_map(rounded, actual)


def check_as_near(actual, wanted, wide):
    """Asserts that no result is further from the wider dtype's than the CPU's in this one."""
    trees = zip(*(tree_flatten(tree)[0] for tree in (actual, wanted, wide)), strict=True)
    for mine, theirs, exact in trees:
        if isinstance(mine, torch.Tensor):
            ours, cpus = error(mine.detach().cpu(), exact), error(theirs.detach(), exact)
            assert ours <= cpus, f"{ours} from what {exact.dtype} has, the CPU {cpus}"


def error(x, exact):
    wide = torch.complex128 if exact.is_complex() else torch.float64
    apart = (x.to(wide) - exact.to(wide)).abs()
    return apart.nan_to_num(torch.inf).max().item() if apart.numel() else 0.0


def compare(actual, wanted, values):
    got, want = tree_flatten(actual)[0], tree_flatten(wanted)[0]
    assert len(got) == len(want), f"{len(got)} results, expected {len(want)}"
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b or (a != a and b != b), f"{a!r}, expected {b!r}"
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape), (a, b)
        if not values:
            continue
        limit = 2e-2 if b.dtype in HALVES else 1e-3
        exact = not (b.is_floating_point() or b.is_complex())
        limits = {"rtol": 0, "atol": 0} if exact else {"rtol": limit, "atol": limit}
        if b.dtype == torch.complex32:
            a, b = a.to(torch.complex64), b.to(torch.complex64)
        torch.testing.assert_close(a.detach().cpu(), b.detach(), equal_nan=True, **limits)


def try_sample(op, dtype, sample, derive):
    fix_places(op, sample)
    settled = not draws(op, sample) and not any(word in full_name(op) for word in RANDOM)
    moved = (move(sample.input), move(sample.args), on_device(sample.kwargs))
    finish = sample.output_process_fn_grad  # eigenvectors, say, without their signs
    actual = finish(op(moved[0], *moved[1], **moved[2]))
    if dtype not in op.dtypes:
        computed = not (dtype.is_complex and "nan" in op.name)
        return computed and compare(actual, of_wider(op, dtype, sample, actual), settled)
    inputs = (sample.input, sample.args, sample.kwargs)
    wanted = finish(op(inputs[0], *inputs[1], **inputs[2]))
    try:
        compare(actual, wanted, settled)
    except AssertionError:
        if dtype not in HALVES:
            raise
        check_as_near(actual, wanted, of_wider(op, dtype, sample, actual))
    if derive and settled:
        compare(gradients(actual, moved), gradients(wanted, inputs), True)


def try_entry(op, dtype, count, derive):
    """Returns what goes wrong with an entry of the database, None if nothing does."""
    derive = derive and op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(1)
    try:
        with in_time():
            samples = op.sample_inputs("cpu", dtype, requires_grad=derive)
            for sample in itertools.islice(samples, count):
                try_sample(op, dtype, sample, derive)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def listed(dtype):
    return [
        op
        for op in op_db
        if not full_name(op).startswith(NEITHER) and dtype in (*op.dtypes, *op.dtypesIfCUDA)
    ]


def record(path, dtype, counts):
    known = json.loads(path.read_text()) if path.exists() else {}
    counted = {**known, str(dtype).removeprefix("torch."): counts}
    path.write_text(json.dumps(counted, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dtypes", nargs="*", metavar="DTYPE")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for dtype in [getattr(torch, name) for name in args.dtypes] or HELD:
        entries, passed = listed(dtype), 0
        for op in track(entries, str(dtype), disable=not sys.stderr.isatty()):
            trouble = try_entry(op, dtype, args.samples, args.gradients)
            passed += trouble is None
            if trouble:
                on = "" if dtype in op.dtypes else " (CUDA's)"
                print(f"{dtype} {full_name(op)}{on}: {trouble[:300]!r}", flush=True)
        print(f"{dtype}: {passed} of {len(entries)}, on {DEVICE}", flush=True)
        if args.record:
            record(args.record, dtype, {"listed": len(entries), "passed": passed})


if __name__ == "__main__":
    main()
