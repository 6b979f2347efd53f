"""Runs a program on a device and compares what became of it with what the CPU made of it."""

import copy
import dataclasses
import functools
import math
import random
import re
from collections import Counter

import torch
from functorch.compile import make_boxed_func
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd

from .pool import EXACT, LOOSE, RAW

MODES = ("strict", "debug", "fused", "mixed")
# Modes as well: by torch.compile, and so that one program serves sizes that vary.
COMPILED = {"compiled": {}, "dynamic": {"dynamic": True}}
# Relative to the largest number that a program may hold after each step.
TOLERANCES = {torch.bfloat16: 3e-2, torch.float16: 4e-3, torch.float64: 1e-4}
VIEWS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
NAME = re.compile(r"v\d+")
# What `check` counts, but for sets of numbers that were compared.
LEFT_OUT = "left out"  # a program was not written for these numbers
PYTORCHS = "PyTorch's own"  # torch.compile makes something else of a program on the CPU, too


def make_data(key, shape, dtype, salt):
    """Small integers, which are exact in every dtype and so are their sums and products."""
    generator = torch.Generator().manual_seed(1000 * salt + key)
    low, high = {torch.bool: (0, 2), torch.uint8: (0, 6)}.get(dtype, (-4, 5))
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def namespace(device, salt):
    """What a program's lines may name."""

    def sync():
        if device == "tpu":
            torch.tpu.synchronize()

    return {
        "torch": torch,
        "copy": copy,
        "functools": functools,
        "nan": math.nan,
        "inf": math.inf,
        "device": device,
        "data": lambda key, shape, dtype: make_data(key, shape, dtype, salt).to(device),
        "read": lambda tensor: round(tensor.item()),
        "sync": sync,
    }


@dataclasses.dataclass
class Outcome:
    errors: list  # of each line: the exception, or None
    tensors: dict


def run(lines, device, mode=None, salt=0):
    """Runs the lines; one that raises is recorded and the next one goes on."""
    env, errors, switch = namespace(device, salt), [], random.Random(len(lines))
    if device == "tpu" and mode != "mixed":
        torch.tpu.eager_mode = mode
    for line in lines:
        if device == "tpu" and mode == "mixed":
            torch.tpu.eager_mode = switch.choice(MODES[:3])
        try:
            exec(line, env)
            errors.append(None)
        except Exception as error:
            errors.append(error.with_traceback(None))
    tensors = {k: v for k, v in env.items() if NAME.fullmatch(k) and isinstance(v, torch.Tensor)}
    return Outcome(errors, tensors)


DATA = re.compile(r"data\(\d+, \([^)]*\), [\w.]+\)")


def function_of(lines, results):
    """The source of a function of the data that the lines name, and the expressions of these."""
    given = []

    def argument(match):
        given.append(match[0])
        return f"data{len(given)}"

    body = [DATA.sub(argument, line) for line in lines]
    answer = ", ".join(f"{name!r}: {name}" for name in results)
    names = ", ".join(f"data{i + 1}" for i in range(len(given)))
    return "\n    ".join([f"def program({names}):", *body, f"return {{{answer}}}"]), given


def run_compiled(lines, results, device="tpu", salt=0, **options):
    """Runs the lines as one function that torch.compile takes."""
    torch._dynamo.reset()
    torch.tpu.eager_mode = "strict"
    env = namespace(device, salt)
    if device == "cpu":
        env["sync"] = torch._dynamo.graph_break  # as where a device is waited for
    source, given = function_of(lines, results)
    exec(source, env)
    try:
        made = torch.compile(env["program"], **options)(*(eval(one, env) for one in given))
    except Exception as error:
        return Outcome([error.with_traceback(None)], {})
    return Outcome([], made)


def on_host(tensor):
    return tensor.detach().cpu().resolve_conj().resolve_neg()


def bytes_of(tensor):
    # Not `contiguous`, which leaves a single element its stride.
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def same_numbers(got, want, mark):
    if want.dtype == torch.complex32:  # which the CPU compares in no way
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    if torch.equal(got, want):
        return True
    if mark == RAW or not (want.is_floating_point() or want.is_complex()):
        return torch.equal(bytes_of(got), bytes_of(want))
    if mark == EXACT:
        return torch.equal(got.nan_to_num(12345.0), want.nan_to_num(12345.0)) and torch.equal(
            got.isnan(), want.isnan()
        )
    limit = TOLERANCES.get(want.dtype, 1e-4)
    largest = float(want[want.isfinite()].abs().max()) if bool(want.isfinite().any()) else 1.0
    return torch.allclose(got, want, rtol=limit, atol=limit * max(1.0, largest), equal_nan=True)


def strides(tensor):
    """The strides that matter."""
    if tensor.numel() == 0:
        return ()
    return tuple(s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1)


def layout(tensor):
    return {
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "strides": strides(tensor),
        "offset": tensor.storage_offset(),
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
    }


def partition(tensors):
    """Which tensors share a storage: each name's first fellow."""
    first = {}
    return {
        name: first.setdefault(tensor.untyped_storage()._cdata, name)
        for name, tensor in tensors.items()
    }


def unsure(outcome, lines):
    """Names of tensors that a line which raised may have written in part, or not at all."""
    failed = [line for line, error in zip(lines, outcome.errors, strict=True) if error]
    names = {name for line in failed for name in NAME.findall(line)}
    places = {t.untyped_storage()._cdata for n, t in outcome.tensors.items() if n in names}
    return {n for n, t in outcome.tensors.items() if t.untyped_storage()._cdata in places}


def differences(got, want, marks, lines):
    """Sentences about what is not as it should be; none if all is well."""
    found, skipped = [], unsure(want, lines)
    for line, ours, theirs in zip(lines, got.errors, want.errors, strict=True):
        if type(ours) is not type(theirs):
            found.append(f"`{line}` raised {ours!r:.300}, on the CPU {theirs!r:.300}")
    if got.tensors.keys() != want.tensors.keys():
        return [*found, f"made {list(got.tensors)}, on the CPU {list(want.tensors)}"]
    for name, expected in want.tensors.items():
        actual = got.tensors[name]
        if layout(actual) != layout(expected):
            found.append(f"{name}: {layout(actual)}, on the CPU {layout(expected)}")
        if expected._is_view() and not actual._is_view():
            found.append(f"{name}: is not a view, as it is on the CPU")
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            continue
        try:
            ours, theirs = on_host(actual), on_host(expected)
        except Exception as error:
            found.append(f"{name}: reading it raised {error!r:.300}")
            continue
        if name not in skipped and not same_numbers(ours, theirs, marks.get(name, LOOSE)):
            found.append(f"{name}: {ours.tolist()}, on the CPU {theirs.tolist()}")
    if partition(got.tensors) != partition(want.tensors):
        found.append(
            f"share storages as {partition(got.tensors)}, on the CPU {partition(want.tensors)}"
        )
    return found


def differences_of_numbers(got, want, marks):
    """The same, for who promises values, dtypes and sizes alone."""
    if got.errors:
        return [f"compiled: raised {got.errors[0]!r:.400}"]
    found = []
    for name, expected in want.tensors.items():
        actual = got.tensors[name]
        if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
            found.append(f"{name}: {layout(actual)}, on the CPU {layout(expected)}")
            continue
        ours, theirs = on_host(actual), on_host(expected)
        if not same_numbers(ours, theirs, marks.get(name, LOOSE)):
            found.append(f"{name}: {ours.tolist()}, on the CPU {theirs.tolist()}")
    return found


@register_backend(tags=("debug",))
def traced_only(graph, inputs):
    """Computes what AOTAutograd traced; results are, like a program's, no views of autograd's."""

    def compiler(graph, _):
        def run(*args):
            with torch._C._ExcludeDispatchKeyGuard(VIEWS):
                return graph(*args)

        return make_boxed_func(run)

    made = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
    return made(graph, inputs)


def is_pytorchs(made, lines, want, marks, salt, **options):
    """Tells if the CPU, given the program by torch.compile, makes of it what the device made."""
    traced = run_compiled(lines, [*want.tensors], "cpu", salt, backend=traced_only, **options)
    if made.errors or traced.errors:
        return [*map(type, made.errors)] == [*map(type, traced.errors)]
    return not differences_of_numbers(made, traced, marks)


def outline(outcome):
    """What is known of a program when it is written, with the first set of numbers."""
    shapes = {name: tensor.shape for name, tensor in outcome.tensors.items()}
    return shapes, partition(outcome.tensors), [type(error) for error in outcome.errors]


def check(lines, marks, modes=MODES, salt=0, tally=None):
    """Returns (mode, sentences) for the first mode that does something else than the CPU, or None.

    With numbers for which sizes, errors or shared storages are others than those that the program
    was written for, an index may be out of range, and marks are not true: those are left out.
    tally, a Counter, is told what became of the numbers.
    """
    tally = Counter() if tally is None else tally
    with torch.random.fork_rng(devices=[]):
        want = run(lines, "cpu", salt=salt)
        if salt and outline(want) != outline(run(lines, "cpu")):
            tally[LEFT_OUT] += 1
            return None
        tally["compared"] += 1
        for mode in modes:
            if mode in COMPILED:
                found = check_compiled(lines, marks, want, salt, tally, **COMPILED[mode])
            else:
                found = differences(run(lines, "tpu", mode, salt), want, marks, lines)
            if found:
                return mode, found
    return None


def check_compiled(lines, marks, want, salt, tally, **options):
    """Sentences about what torch.compile makes of a program that is not as it should be."""
    if any(want.errors):
        return []  # what is left undone after an error is another program
    made = run_compiled(lines, [*want.tensors], salt=salt, **options)
    found = differences_of_numbers(made, want, marks)
    if found and is_pytorchs(made, lines, want, marks, salt, **options):
        tally[PYTORCHS] += 1
        return []
    return found
