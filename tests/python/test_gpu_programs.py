"""What XLA's compiler for GPUs is told: on an accelerator-like plugin that claims to be one."""

import json
from pathlib import Path

import pytest
from support import ROOT, only_tpu, python, slow_but

PLUGIN = Path(ROOT, "build", "release", "libtt_accel_plugin.so")
pytestmark = [
    only_tpu,
    pytest.mark.skipif(not PLUGIN.exists(), reason="the accelerator-like plugin is not built"),
]
CODE = """
import json, torch
def inputs():
    {inputs}
torch.manual_seed(1)
function = lambda x, y: {function}
compiled = torch.compile(function, {options})
given = inputs()
there = compiled(*(one.to("tpu") for one in given)).cpu()
[program] = torch.tpu.compiler.inspect(compiled).programs
print(json.dumps([torch.equal(there, function(*given)), program.stablehlo]))
"""


def told(platform, function, inputs, options=""):
    """Whether a function's numbers are the CPU's, and its program."""
    code = CODE.format(function=function, inputs=inputs, options=options)
    status, out, errors = python(code, TORCH_TPU_PLUGIN=str(PLUGIN), TT_ACCEL_PLATFORM=platform)
    assert status == 0, errors
    return json.loads(out)


@pytest.mark.slow
@pytest.mark.parametrize("platform", slow_but(["cuda", "tpu"], "cuda"))
def test_a_quotient_is_one_of_f64(platform):
    """XLA's of f32 are off by a bit there."""
    equal, program = told(platform, "x / y - 1 / x", "return torch.rand(2, 99).unbind()")
    quotients = [line for line in program.splitlines() if "stablehlo.divide" in line]
    assert equal and len(quotients) == 2
    assert all(("tensor<99xf64>" in line) == (platform == "cuda") for line in quotients)


@pytest.mark.parametrize(
    "function",
    [
        "torch.conv2d(x, y, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)",
        pytest.param(
            "torch.conv_transpose2d(x, y.transpose(0, 1).repeat(2, 1, 1, 1), stride=2, padding=1)",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["forward", "transposed"],
)
def test_integers_are_convolved_by_products(function):
    """cuDNN, to which XLA leaves them, has no convolution of integers."""
    x, y = "torch.randint(-9, 9, (2, 4, 8, 9))", "torch.randint(-9, 9, (6, 2, 3, 2))"
    equal, program = told("cuda", function, f"return {x}, {y}")
    assert equal and "stablehlo.convolution" not in program


@pytest.mark.slow
def test_convolutions_are_timed():
    """Untimed they take up to sixty times as long."""
    x, y = "torch.ones(1, 2, 5, 5)", "torch.ones(3, 2, 3, 3)"
    equal, program = told("cuda", "torch.conv2d(x, y)", f"return {x}, {y}")
    assert equal and program.startswith("// option xla_gpu_autotune_level int 4\n")


@pytest.mark.slow
def test_kernels_are_timed_where_that_is_asked_for():
    inputs = "return torch.eye(8), torch.eye(8)"
    for options, lines in ("", 0), ("mode='max-autotune'", 2):
        equal, program = told("cuda", "x @ y", inputs, options)
        assert equal and program.count("// option xla_gpu_") == lines
