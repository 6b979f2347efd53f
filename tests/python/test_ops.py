"""PyTorch's own samples of its operators (op_db), on the device against the CPU."""

import contextlib

import pytest
import torch
from support import DEVICE, check, modes, move, raises_alike, same, slow_but
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten

SAMPLES = 3
# Left to random tests, or without a value to compare.
SKIP = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
SKIP |= {"as_strided.partial_views"}  # its operands are cut out of storages that are not moved
SKIP |= {op.name for op in op_db if op.name.startswith("jiterator")}  # a compiler of CUDA's
RANDOM = (
    "cauchy",
    "uniform",
    "rand",
    "dropout",
    "bernoulli",
    "multinomial",
    "normal",
    "exponential",
    "geometric",
    "rrelu",
)
QUICK = set(
    """
abs add addmm all amax arange argmax atan2 baddbmm bitwise_and bmm cat ceil chunk clamp clone
contiguous copysign cos cumsum diagonal div dot eq exp expand expm1 fill flip floor_divide fmod
gather ge index_add index_put index_select isnan lerp log log1p log_softmax logaddexp logical_and
logsumexp masked_fill matmul max maximum mean min mm mul narrow neg nn.functional.avg_pool2d
nn.functional.conv2d nn.functional.cross_entropy nn.functional.embedding nn.functional.gelu
nn.functional.layer_norm nn.functional.linear nn.functional.max_pool2d nn.functional.mse_loss
nn.functional.nll_loss nn.functional.pad nn.functional.relu
nn.functional.scaled_dot_product_attention nn.functional.silu nonzero outer permute pow prod
reciprocal remainder repeat reshape roll round rsqrt scatter scatter_add select sigmoid sign sin
softmax sort split sqrt squeeze stack std sub sum t take_along_dim tan tanh topk transpose tril
triu unbind unfold unsqueeze var view where zeros_like
""".split()
)


def full_name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def comparable(op):
    name = op.name.replace("normalize", "")
    return full_name(op) not in SKIP and not any(word in name for word in RANDOM)


def draws(op, sample):
    dropout = "multi_head_attention" in op.name and sample.kwargs.get("training")
    return dropout or sample.kwargs.get("dropout_p")


def chosen_dtype(op):
    return next((d for d in (torch.float32, torch.int64, torch.bool) if d in op.dtypes), None)


OPS = [op for op in op_db if comparable(op) and chosen_dtype(op)]


def on_device(tree):
    """Moves the tensors of a tree, and turns a mention of the CPU into one of the device."""
    moved = move(tree)
    if isinstance(moved, dict):
        return {k: (DEVICE if k == "device" else v) for k, v in moved.items()}
    return moved


def differentiable(op, dtype):
    return op.supports_autograd and dtype.is_floating_point


def gradients(output, inputs):
    outputs = [
        t for t in tree_flatten(output)[0] if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    leaves = [t for t in tree_flatten(inputs)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not leaves:
        return []
    return torch.autograd.grad(sum(t.abs().sum() for t in outputs), leaves, allow_unused=True)


def compare_gradients(expected, actual, limits):
    try:
        wanted = gradients(*expected)
    except RuntimeError:  # of empty matrices, some
        with pytest.raises(RuntimeError):
            gradients(*actual)
        return
    same(gradients(*actual), wanted, **limits)


def fix_places(op, sample):
    """Gives fractional pooling the random places that each device would draw for itself."""
    spatial = {"fractional_max_pool2d": 2, "fractional_max_pool3d": 3}.get(op.name.split(".")[-1])
    if spatial:
        planes = (1, *sample.input.shape)[-2 - spatial : -spatial]
        sample.kwargs["_random_samples"] = torch.rand(*planes, spatial, dtype=sample.input.dtype)


def compare(op, dtype, samples):
    limits = {torch.float32: {"rtol": 1e-3, "atol": 1e-4}}.get(dtype, {})
    wanted = op.sample_inputs("cpu", dtype, requires_grad=differentiable(op, dtype))
    exact = (sample for sample in wanted if not draws(op, sample))
    for _, sample in zip(range(samples), exact, strict=False):
        fix_places(op, sample)
        inputs = (sample.input, sample.args, sample.kwargs)
        moved = (move(sample.input), move(sample.args), on_device(sample.kwargs))
        unique = sample.output_process_fn_grad  # eigenvectors, say, without their signs
        expected = unique(op(inputs[0], *inputs[1], **inputs[2]))
        actual = unique(op(moved[0], *moved[1], **moved[2]))
        same(actual, expected, **limits)
        if differentiable(op, dtype):
            compare_gradients((expected, inputs), (actual, moved), limits)


OFTEN = [op for op in OPS if op.name in QUICK]


@pytest.mark.parametrize(
    "op",
    [*OFTEN[::2], *(pytest.param(op, marks=pytest.mark.slow) for op in OFTEN[1::2])],
    ids=full_name,
)
def test_operator(op):
    compare(op, chosen_dtype(op), SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("op", [op for op in OPS if op.name not in QUICK], ids=full_name)
def test_every_other_operator(op):
    compare(op, chosen_dtype(op), SAMPLES)


EQUAL = "which of equal elements comes first is open"
UNSETTLED = {
    ("sort", torch.bfloat16): EQUAL,
    ("sort", torch.uint8): EQUAL,
    ("topk", torch.bfloat16): EQUAL,
    ("topk", torch.int64): EQUAL,
    ("topk", torch.uint8): EQUAL,
    ("nn.functional.scaled_dot_product_attention", torch.bfloat16): "gradients are differences of "
    "rounded numbers, on the CPU as here: both are as far from the exact ones",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.complex64], ids=str
)
@pytest.mark.parametrize("op", OFTEN, ids=full_name)
def test_other_dtypes(op, dtype):
    if dtype not in op.dtypes:
        pytest.skip("not a dtype of this operator")
    if (op.name, dtype) in UNSETTLED:
        pytest.skip(UNSETTLED[op.name, dtype])
    compare(op, dtype, 2)


FUNCTIONS = """
acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp exp2 expm1 lgamma log log10
log1p log2 logit reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh
""".split()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_more_than_a_vector(name):
    """Long enough for the compiler's vectors, and for the rest."""
    x = torch.linspace(0.05, 0.95, 100) + (name == "acosh")
    check(getattr(torch, name), x)


def test_an_angle_whose_side_is_one():
    """LLVM calls atan for it, which in XLA's CPU compiler may return anything."""

    def work(x):
        return torch.atan2(x, torch.ones_like(x)), torch.angle(torch.complex(torch.ones_like(x), x))

    for mode in modes():
        with torch.tpu.set_eager_mode(mode) if DEVICE == "tpu" else contextlib.nullcontext():
            x = torch.linspace(-4, 4, 101)
            x[50] = torch.nan
            check(work, x)


@pytest.mark.parametrize("exponent", [0.9 + 0.05j, -1 + 1j, 1j, 0j, 2 + 0j, 0.5])
def test_powers_of_a_complex_zero(exponent):
    x = torch.tensor([0, 2, -2], dtype=torch.complex64)
    check(lambda x: (x**exponent, x**x, exponent**x), x)


def test_the_list_names_operators():
    assert {op.name for op in op_db} >= QUICK


@pytest.mark.parametrize(
    "dtype",
    slow_but([torch.uint8, torch.int8, torch.int32, torch.int64], torch.int64),
    ids=str,
)
def test_large_powers_of_whole_numbers(dtype):
    """XLA looks at six bits of an exponent."""
    most = torch.iinfo(dtype).max
    x = torch.tensor([0, 1, 2, 3, 7, 97, most], dtype=dtype)
    for exponent in (5, 63, 64, 65, 100, 127):
        check(torch.pow, x, exponent)
        check(torch.pow, x, torch.full_like(x, exponent))
    check(torch.pow, x, torch.full_like(x, most))
    check(lambda one: torch.pow(3, one), torch.tensor([2, 63, 64, 127, most], dtype=dtype))


@pytest.mark.parametrize(
    "function", [torch.add, torch.sub, torch.mul, torch.div], ids=lambda one: one.__name__
)
def test_what_is_written_to_a_wider_dtype_was_rounded_before(function):
    x = torch.tensor([33000.0, 1.0003, 5e-8], dtype=torch.float16)
    y = torch.tensor([-33000.0, 3.0, 3e-5], dtype=torch.float16)
    here = function(x, y, out=torch.empty(3, dtype=torch.float64))
    there = torch.empty(3, dtype=torch.float64, device=DEVICE)
    same(function(x.to(DEVICE), y.to(DEVICE), out=there), here, rtol=0, atol=0)


def test_bools_that_are_added():
    x = torch.tensor([True, True, False])
    for out in (torch.bool, torch.int32, torch.float32):
        there = torch.empty(3, dtype=out, device=DEVICE)
        torch.add(x.to(DEVICE), x.to(DEVICE), out=there)
        same(there, torch.add(x, x, out=torch.empty(3, dtype=out)))


@pytest.mark.parametrize("function", [torch.abs, torch.angle], ids=["abs", "angle"])
def test_sizes_of_complex_numbers_in_wider_targets(function):
    """Meta kernels in Python want float32 alone; the CPU casts to what holds it."""
    x = torch.tensor([3 + 4j, 1 - 1j])
    for dtype in (torch.float32, torch.float64, torch.complex64):
        there = torch.empty(2, dtype=dtype, device=DEVICE)
        function(x.to(DEVICE), out=there)
        same(there, function(x, out=torch.empty(2, dtype=dtype)))
    raises_alike(lambda x: function(x, out=torch.empty(2, dtype=torch.int64, device=x.device)), x)


@pytest.mark.parametrize("count", [1, 20, 33, 257])
def test_sequences_that_end_with_nan(count):
    """Sorting puts NaN last, which a search finds by PyTorch's own bisection."""
    generator = torch.Generator().manual_seed(count)
    sequence = torch.randn(count, generator=generator).sort()[0]
    sequence[count - count // 7 :] = torch.nan
    values = torch.cat([torch.randn(40, generator=generator), torch.tensor([torch.nan, torch.inf])])
    check(lambda s, v: torch.searchsorted(s, v), sequence, values)
    check(lambda s, v: torch.bucketize(v, s, right=True), sequence, values)
    check(lambda s, v: torch.searchsorted(s.flip(0), v), sequence, values)  # no order at all
    check(lambda s, v: torch.isin(torch.cat([v, s[:3]]), s.flip(0)), sequence, values)


def test_the_most_frequent_beside_nan():
    """Each NaN is alone."""
    nan = torch.nan
    for values in ([1.0, 2, 2, nan], [nan, nan, nan, 1, 2, 2], [nan]):
        check(torch.mode, torch.tensor(values))


@pytest.mark.parametrize("k", [0, 1])
def test_the_largest_of_a_number(k):
    check(lambda x: torch.topk(x, k), torch.tensor(4.0))
