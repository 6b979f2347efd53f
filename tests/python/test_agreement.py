"""What the package knows of single operators: does the installed PyTorch still need to be told?

Each row of `torch_tpu/_agreement/table.py` is held against PyTorch's own kernels for the CPU and
for the meta device. A test that fails names a row that may go.
"""

import functools
import json
import os
import subprocess
import sys
import warnings
from unittest.mock import patch

import pytest
import torch
from support import DEVICE, only_tpu
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_impls import op_implementations_dict
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from torch_tpu._agreement import operators, results, table

pytestmark = only_tpu

ROWS = table.ROWS
OPERATORS = [(row, name) for row in ROWS for name in row.operators.split()]
KEYS = ("CPU", "SparseCPU", "SparseCsrCPU", "NestedTensorCPU", "QuantizedCPU")
LISTING = f"""
import json, torch
has = torch._C._dispatch_has_kernel_for_dispatch_key
names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
keys = {KEYS + tuple(key.replace("CPU", "") + "PrivateUse1" for key in KEYS)}
print(json.dumps({{key: [name[6:] for name in names if has(name, key)] for key in keys}}))
"""


@pytest.fixture(scope="module")
def kernels():
    """The overloads for which PyTorch itself has kernels, by dispatch key."""
    environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    done = subprocess.run(
        [sys.executable, "-c", LISTING], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def overload(name):
    """The overload of a name as the table has it."""
    return operators.overload(f"aten::{name}")


def numbers(*shape, dtype=torch.float32):
    return torch.linspace(0.1, 0.9, torch.Size(shape).numel()).reshape(shape).to(dtype)


def of_results(results, what):
    return [what(one) for one in tree_leaves(results) if isinstance(one, torch.Tensor)]


def meta(name, args, what, hint="cpu"):
    """What the Meta kernel says of the results, asked about the CPU as the glue does."""
    args = tree_map(lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, args)
    with patch("torch._meta_registrations.device_hint", lambda _: hint):
        return of_results(overload(name)(*args), what)


def differs(name, args, what):
    return meta(name, args, what) != of_results(overload(name)(*args), what)


def refuses(function, *args):
    try:
        function(*args)
    except (RuntimeError, ValueError, IndexError):
        return True
    return False


def only_the_cpu_refuses(name, *args):
    return refuses(overload(name), *args) and not refuses(meta, name, args, torch.Tensor.size)


# -- For each kind: is a row still needed? --


def without_meta(name):
    image, geometry = numbers(1, 1, 4, 4), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    channel = numbers(1)
    args = {
        "batch_norm_elemt": (image, None, None, channel, channel, 1e-5),
        "batch_norm_backward_elemt": (image, image, *[channel] * 5, channel.int()),
        "geqrf": (numbers(3, 3),),
        "convolution_overrideable": (image, image, None, *geometry),
        "convolution_backward_overrideable": (image, image, image, *geometry, [True] * 3),
    }[name]
    try:
        meta(name, args, torch.Tensor.size)
    except NotImplementedError:
        return True
    return False


def without_meta_for_floats(name):
    args = numbers(4, 4), numbers(1, 4, 4), torch.tensor([4], dtype=torch.int32)
    return refuses(meta, name, args, torch.Tensor.size) and not refuses(overload(name), *args)


def norm_of_none(name):
    args = numbers(0, 5), float("inf"), [-1]
    return refuses(meta, name, args, torch.Tensor.size) and not refuses(overload(name), *args)


def gradient_of_none(name):
    none = numbers(0, 3)
    args = none.sum(), none, none, 1, *([] if name.startswith("mse") else [1.0])
    try:
        meta(name, args, torch.Tensor.size)
    except ZeroDivisionError:
        return not refuses(overload(name), *args)
    return False


def other_on_cuda(name):
    if name == "histc":
        x = torch.arange(3)
        return refuses(meta, name, (x,), torch.Tensor.size) and not refuses(
            meta, name, (x,), torch.Tensor.size, "cuda"
        )
    args = numbers(5, 3), torch.tensor([1, 2, 4]), torch.tensor([0, 2]), False, 1
    kinds = [meta(name, args, lambda x: (x.shape, x.dtype), hint) for hint in ("cpu", "cuda")]
    return kinds[0] != kinds[1]


def refuses_dtype(name, dtype):
    fitting = {"Tensor": torch.ones(3, dtype=dtype), "int": 0, "Optional[List[int]]": [0]}
    arguments = [one for one in overload(name)._schema.arguments if not one.has_default_value()]
    return refuses(overload(name), *(fitting[str(one.type)] for one in arguments))


def refuses_a_fraction(name):
    args = [torch.arange(3), 0, torch.tensor([0]), torch.tensor([2])]
    twins = [one.to("meta") if isinstance(one, torch.Tensor) else one for one in args]
    function = functools.partial(overload(name), alpha=1.5)
    return refuses(function, *twins) and not refuses(function, *args)


def makes_its_target_a_line(name):
    target = torch.empty(2, 3, device="meta")
    function = getattr(torch, name.partition(".")[0])
    with warnings.catch_warnings(action="ignore"):
        function(*((1, 6) if name.startswith("arange") else (1, 6, 6)), out=target)
    return target.dim() == 1


def normalization(name, dtype):
    """The arguments in evaluation, where there are statistics; all parameters are of one dtype."""
    x, three = numbers(2, 3, 4, dtype=dtype), numbers(3, dtype=dtype)
    last = 0.1, 1e-5
    return {
        "native_layer_norm": (x, [4], numbers(4, dtype=dtype), numbers(4, dtype=dtype), 1e-5),
        "native_batch_norm": (x, three, three, three, three, False, *last),
        "_native_batch_norm_legit": (x, three, three, three, three, False, *last),
        "_native_batch_norm_legit.no_stats": (x, three, three, True, *last),
        "_native_batch_norm_legit_no_training": (x, three, three, three, three, *last),
        "_native_batch_norm_legit_functional": (x, three, three, three, three, False, *last),
    }[name]


def forgets_format(name):
    if name == "roll":
        image = numbers(2, 3, 1, 1).to(memory_format=torch.channels_last)
        return differs(name, (image, [1], [0]), torch.Tensor.stride)
    if "batch_norm" in name and not name.endswith("backward"):
        x, *rest = normalization(name, torch.float32)
        lain = x.transpose(0, 1).contiguous().transpose(0, 1)
        return differs(name, (lain, *rest), torch.Tensor.stride)
    x = numbers(2, 4, 2, 2).to(memory_format=torch.channels_last)
    if "3d" in name:
        x = numbers(2, 4, 2, 2, 2).to(memory_format=torch.channels_last_3d)
    padding, wide = [1] * 2 * (x.dim() - 2), torch.nn.functional.pad
    args = {
        "channel_shuffle": lambda: (x, 2),
        "max_unpool2d": lambda: (x, torch.zeros_like(x, dtype=torch.int64), [4, 4]),
        "native_batch_norm_backward": lambda: (
            *(x.contiguous(), x, *[numbers(4)] * 5),
            *(True, 1e-5, [True, False, False]),
        ),
    }.get(name) or (lambda: (x, padding))
    if name.endswith("_pad2d_backward") or name.endswith("_pad3d_backward"):
        return differs(name, (wide(x, padding).contiguous(), x, padding), torch.Tensor.stride)
    return differs(name, args(), torch.Tensor.stride)


def laid_by_rows(name):
    x = numbers(3, 2).t()
    args = {
        "pow.Scalar": (2.0, x),
        "masked_fill.Scalar": (x, x > 0, 2.0),
        "masked_fill.Tensor": (x, x > 0, x.sum()),
        "isin.Tensor_Tensor": (x, x[0]),
        "isin.Tensor_Scalar": (x, 1.0),
        "normal.float_Tensor": (0.0, x.abs()),
        "normal.Tensor_Tensor": (x, x.abs()),
        "mse_loss_backward": (x, x, x, 1),
        "smooth_l1_loss_backward": (x, x, x, 1, 1.0),
        "huber_loss_backward": (x, x, x, 1, 1.0),
    }.get(name, (x,))
    results = overload(name)(*args)
    return any(one != torch.exp(x).stride() for one in of_results(results, torch.Tensor.stride))


def lies_as_its_first(name):
    if name != "log_sigmoid_backward":
        image = numbers(2, 3, 1, 1).to(memory_format=torch.channels_last)
        found = overload(name)(image).stride()
        return found == image.stride() != image.exp().stride()
    first, second = numbers(2, 3), numbers(3, 2).t()
    iterated = torch.addcmul(second, second, first).stride()
    found = overload(name)(first, second, second).stride()
    return found == first.stride() != iterated


def depends_on_training(name):
    """Of operands that lie nowhere in particular, the layout is that of the one that counts."""
    anywhere, noise = numbers(1, 1).expand(2, 3), numbers(3, 2).t()
    found = [
        overload(name)(anywhere, anywhere, noise, 0.1, 0.3, training, False).stride()
        for training in (True, False)
    ]
    return found == [noise.stride(), torch.empty(2, 3).stride()]


def lies_as_its_second(name):
    first, second = numbers(3, 2).t(), numbers(2, 3)
    more = {
        "rsub.Tensor": (),
        "leaky_relu_backward": (0.1, False),
        "threshold_backward": (0.1,),
    }[name]
    return overload(name)(first, second, *more).stride() == second.stride() != first.stride()


BYTES = torch.zeros(2, dtype=torch.uint8)
BAD_NUMBERS = {
    "fill.Scalar": (BYTES, 300),
    "masked_fill.Scalar": (BYTES, torch.tensor([True, False]), 300),
    "index_fill.int_Scalar": (BYTES, 0, torch.tensor([0]), 300),
    "scatter.value": (BYTES, 0, torch.tensor([0]), 300),
    "threshold": (BYTES, 1, 300),
    "constant_pad_nd": (BYTES, [1, 1], 300),
    "full_like": (BYTES, 300),
    "new_full": (BYTES, [2], 300),
    "uniform": (numbers(4), 2.0, 1.0),
    "normal_functional": (numbers(4), 0.0, -1.0),
    "normal.float_float": (0.0, -1.0, [4]),
    "normal.Tensor_float": (numbers(4), -1.0),
    "log_normal": (numbers(4), 0.0, -1.0),
    "exponential": (numbers(4), -1.0),
    "cauchy": (numbers(4), 0.0, -1.0),
    "geometric": (numbers(4), 1.5),
    "bernoulli.p": (numbers(4), 1.5),
}


def refused_number(name):
    return refuses(overload(name), *BAD_NUMBERS[name])


def number_not_held(name):
    if name in BAD_NUMBERS:
        return refused_number(name)
    sizes = [[2]] * (name == "full")
    return refuses(functools.partial(overload(name), dtype=torch.uint8), *sizes, 300)


def warns_of_bounds(name):
    bounds = (0, 5000) if name == "random.from" else (5000,)
    with warnings.catch_warnings(record=True, action="always") as seen:
        numbers(4, dtype=torch.float16).random_(*bounds)
    return bool(seen)


def wide_summand(name):
    matrix = numbers(3, 3)
    return only_the_cpu_refuses(
        name, numbers(2, 3, 3), matrix, matrix if name == "addmm" else matrix[0]
    )


def other_dtype(name):
    more = [True] * (name != "index_put")
    return only_the_cpu_refuses(
        name, numbers(3), [torch.tensor([0, 1])], numbers(2).double(), *more
    )


def classes_in_int32(name):
    """Forward and backward are tried together, as losses take them."""
    pixels = (2,) * 2 * ("2d" in name)
    scores, classes = numbers(3, 4, *pixels), torch.zeros(3, *pixels, dtype=torch.int32)
    function = torch.nn.functional.nll_loss
    return refuses(function, scores, classes) and not refuses(
        function, scores.to("meta"), classes.to("meta")
    )


def overlapping_target(name):
    return only_the_cpu_refuses(f"{name}_", numbers(1).expand(3), numbers(3))


def casts_what_is_not_promoted(name):
    small, other = torch.ones(3, dtype=torch.uint16), torch.ones(3, dtype=torch.int16)
    return refuses(torch.result_type, small, other) and not refuses(overload(name), small, other)


def not_as_its_schema(name):
    if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CompositeExplicitAutograd"):
        return True
    running = [a for a in overload(name)._schema.arguments if a.name.startswith("running_")]
    return bool(running) and not any(argument.alias_info for argument in running)


def fakes_lie_by_rows(name):
    """Whether PyTorch's fake convolution of an image with channels last has them first."""
    with FakeTensorMode() as mode:
        x = torch.empty(2, 3, 8, 8, device=DEVICE).to(memory_format=torch.channels_last)
        w = torch.empty(3, 3, 1, 1, device=DEVICE)
        rest = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        args = [x, w, None, *rest] if name == "convolution" else [x, x, w, [3], *rest, [True] * 3]
        found = op_implementations_dict[overload(name)](mode, overload(name), *args)
    return (found if name == "convolution" else found[0]).is_contiguous()


NEEDED = {
    "Convolved": without_meta,
    "ConvolvedBack": without_meta,
    "AsConvolved": fakes_lie_by_rows,
    "Reflected": without_meta,
    "Normalized": without_meta,
    "Grouped": without_meta_for_floats,
    "NormOfNone": norm_of_none,
    "GradientOfNone": gradient_of_none,
    "AsOnCuda": other_on_cuda,
    "BoolOnCuda": lambda name: refuses_dtype(name, torch.bool),
    "ComplexOnCuda": lambda name: refuses_dtype(name, torch.complex64),
    "HalvesOnCuda": lambda name: refuses_dtype(name, torch.complex32),
    "FillsTarget": makes_its_target_a_line,
    "NarrowStatistics": lambda name: differs(
        name, normalization(name, torch.bfloat16), lambda x: x.dtype
    ),
    "NoStatistics": lambda name: differs(
        name, normalization(name, torch.float32), torch.Tensor.size
    ),
    "NoSampleDim": lambda name: differs(
        name, (numbers(3), torch.tensor([0, 1, 2]), 0), torch.Tensor.dim
    ),
    "Promotes": lambda name: differs(
        name, (torch.arange(3), numbers(dtype=torch.bfloat16)), lambda x: x.dtype
    ),
    "KeepsFormat": forgets_format,
    "Contiguous": laid_by_rows,
    "LikeFirst": lies_as_its_first,
    "Gathers": lambda name: differs(
        name, (numbers(4), [torch.arange(4).reshape(2, 2).T]), torch.Tensor.stride
    ),
    "WithNoise": depends_on_training,
    "SecondFirst": lies_as_its_second,
    "Held": number_not_held,
    "Ordered": refused_number,
    "WholeNumbers": warns_of_bounds,
    "NonNegative": refused_number,
    "Positive": refused_number,
    "Probability": refused_number,
    "ProperProbability": refused_number,
    "NarrowSummand": wide_summand,
    "OneDtype": other_dtype,
    "ClassNumbers": classes_in_int32,
    "WholeFactor": refuses_a_fraction,
    "NoDimsAreAll": lambda name: differs(name, (numbers(2, 3), [], False), torch.Tensor.dim),
    "ApartFromSource": overlapping_target,
    "Overwrites": casts_what_is_not_promoted,
    "ByHand": not_as_its_schema,
}
LENT = {
    "LentSparse": ("SparseCPU", "SparseCsrCPU"),
    "DirectCoo": ("SparseCPU",),
    "DirectCsr": ("SparseCsrCPU",),
    "DirectNested": ("NestedTensorCPU",),
    "LentDense": ("CPU",),
    "LentQuantised": ("QuantizedCPU",),
}


def served_by(kernels, key, name, by_packet):
    """Whether PyTorch has a kernel of its own for the operator under the key."""
    return any(
        name in ((full.partition(".")[0], full.partition(".")[0][:-1]) if by_packet else (full,))
        for full in kernels[key]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "name"), OPERATORS, ids=[f"{row.kind}-{name}" for row, name in OPERATORS]
)
def test_the_row_is_still_needed(row, name, kernels):
    if row.kind in NEEDED:
        needed = NEEDED[row.kind](name)
    else:
        by_packet = not row.kind.startswith("DirectC")
        needed = any(
            served_by(kernels, key, name, by_packet)
            and not served_by(kernels, key.replace("CPU", "") + "PrivateUse1", name, by_packet)
            for key in LENT[row.kind]
        )
    assert needed, (
        f"PyTorch {torch.__version__} does without it: take '{name}' out of the rows of kind "
        f"{row.kind} in torch_tpu/_agreement/table.py (it said that the operator {row.reason})"
    )


def test_every_kind_has_a_row_and_a_test():
    assert {row.kind for row in ROWS} == set(NEEDED) | set(LENT)
    assert {row.kind for row in ROWS} == set(table.KINDS)
    assert all(row.reason and row.torch for row in ROWS)


def test_arguments_are_those_of_the_schemas():
    for row, name in OPERATORS:
        if row.argument:
            assert row.argument in [one.name for one in overload(name)._schema.arguments]


# -- Meta kernels in Python are slow, and asked no more than is needed --


def shaped(*sizes, dtype=torch.float32):
    return torch.empty(sizes, device="meta", dtype=dtype)


def forms(found):
    return [None if one is None else (one.dtype, one.shape, one.stride()) for one in found]


def plain_calls(sizes, dtype):
    """The row, the overload, and its arguments."""
    x, few = shaped(*sizes, dtype=dtype), shaped(sizes[1], dtype=dtype)
    last, line = [sizes[-1]], shaped(sizes[-1], dtype=dtype)
    mean = shaped(*sizes[:-1], 1, dtype=dtype)
    batch, layer = "native_batch_norm_backward", "native_layer_norm_backward"
    legit, mask = "_native_batch_norm_legit", [True, True, True]
    for weight in (few, None):
        for name in (legit, f"{legit}_functional"):
            yield f"{legit}_functional", name, [x, weight, weight, few, few, True, 0.1, 1e-5]
        yield batch, batch, [x, x, weight, few, few, few, few, True, 1e-5, mask]
    yield "native_layer_norm", "native_layer_norm", [x, last, line, line, 1e-5]
    yield "native_layer_norm", "native_layer_norm", [x, list(sizes), None, None, 1e-5]
    yield layer, layer, [x, x, last, mean, mean, line, line, mask]
    yield "relu", "relu", [x]
    yield "threshold_backward", "threshold_backward", [x, x, 0]


@pytest.mark.parametrize("sizes", [(4, 3), (2, 3, 5), (2, 3, 4, 5), (2, 1, 1, 1), (2, 3, 2, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_plain_results_are_what_meta_says(sizes, dtype):
    for row, name, args in plain_calls(sizes, dtype):
        op = operators.operator(f"aten::{name}", row)
        said = op.call_meta(args)
        results.correct(op, args, said)
        assert forms(results.state(op, args)) == forms(said), name


def test_unusual_tensors_are_left_to_meta():
    few, x = shaped(3), shaped(2, 3, 4, 5)
    row = "_native_batch_norm_legit_functional"
    op = operators.operator(f"aten::{row}", row)
    for one, weight, training in (
        (x.to(memory_format=torch.channels_last), few, True),
        (x, few.double(), True),
        (x, shaped(4), True),
        (x.half(), None, True),
        (shaped(0, 3, 4), few, True),
        (shaped(1, 3), few, True),
        (x, few, False),
    ):
        assert not results.state(op, [one, weight, few, few, few, training, 0.1, 1e-5])


def test_meta_is_asked_once_of_elements_that_are_alike():
    lists = [[torch.ones(2 + k % 3, device=DEVICE) for k in range(30)] for _ in range(3)]
    asked = []
    call = operators.Operator._call_meta

    def record(op, args):
        asked.append(len(args[0]))
        return call(op, args)

    with patch.object(operators.Operator, "_call_meta", record):
        found = torch._foreach_add(lists[0], lists[1], alpha=2)
        more = torch._foreach_addcdiv(lists[0], lists[1], lists[2], [1.0] * 29 + [2.0])
        torch._foreach_addcdiv_(lists[0], lists[1], lists[2], [1.0] * 29 + [2.0])  # is plain
    assert asked == [3, 4]
    assert [one.shape for one in found] == [one.shape for one in lists[0]]
    assert all(torch.equal(one.cpu(), torch.full(one.shape, 3.0)) for one in found)
    assert more[-1].cpu().tolist() == lists[0][-1].cpu().tolist() == [3.0] * 4


def test_elements_that_do_not_fit_are_refused_as_by_the_cpu():
    for device in ("cpu", DEVICE):
        some = [torch.ones(3, device=device) for _ in range(5)]
        others = [*some[:4], torch.ones(2, device=device)]
        with pytest.raises(RuntimeError, match="must match the size"):
            torch._foreach_add_(some, others)
        with pytest.raises(RuntimeError, match=r"same size|same number"):
            torch._foreach_add_(some, others[:4])


# -- What asks is not seen, and sees nothing of what surrounds the operator --


class Seen(TorchFunctionMode):
    def __init__(self):
        self.functions = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.functions.append(function)
        return function(*args, **(kwargs or {}))


def test_the_users_modes_do_not_see_what_the_glue_asks():
    x = torch.ones(3, 17, device=DEVICE)
    with Seen() as seen:
        x.add(x)  # a row
        torch.logcumsumexp(x, 1)  # a decomposition
    assert seen.functions == [torch.Tensor.add, torch.logcumsumexp]


def test_defaults_do_not_disturb_a_new_key():
    x = torch.arange(38.0).reshape(2, 19)
    device_x = x.to(DEVICE)
    with torch.device(DEVICE), torch.autocast("cpu", torch.bfloat16), torch.autocast(DEVICE):
        assert (device_x.add(1.5)).cpu().tolist() == (x + 1.5).tolist()
        with pytest.raises(RuntimeError, match="must match the size"):
            device_x.add(torch.ones(3, 4))
    with torch.inference_mode():
        assert device_x.mul(device_x[:1]).cpu().tolist() == (x * x[:1]).tolist()
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.empty(2, 23, device=DEVICE)
        assert (fake + fake).shape == (2, 23)


def test_a_new_key_on_autograds_thread():
    x = torch.ones(3, 29, device=DEVICE, requires_grad=True)
    (x.transpose(0, 1) * 2.5).square().sum().backward()
    assert x.grad.cpu().eq(12.5).all()


def test_errors_keep_their_types_and_texts():
    def refused(device):
        found = []
        for call in (
            lambda: torch.ones(2, 3, device=device).sum(5),
            lambda: torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device),
            lambda: torch.ones(3, dtype=torch.int32, device=device).add_(1.5),
            lambda: torch.ones(3, device=device).index_select(0, torch.ones(1, device=device)),
            lambda: torch.ones(3, device=device).uniform_(2, 1),
            lambda: torch.linalg.cholesky(torch.ones(2, 3, device=device)),
        ):
            with pytest.raises((RuntimeError, IndexError)) as caught:
                call()
            found.append((caught.type, str(caught.value).partition("\n")[0]))
        return found

    assert refused(DEVICE) == refused("cpu")
