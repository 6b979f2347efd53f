"""torch.tpu.compiler.inspect: what became of the graphs of torch.compile."""

import json
import re

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, only_tpu, python
from torch._higher_order_ops import scan, while_loop
from torch.utils.flop_counter import FlopCounterMode

import torch_tpu._C as glue
from torch_tpu.compiler import hlo

pytestmark = [only_tpu, pytest.mark.usefixtures("fresh_dynamo")]
inspect = torch.tpu.compiler.inspect


class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x):
        y = self.linear(x)
        torch._dynamo.graph_break()
        return y.relu() * 2


def test_a_program_is_told(tmp_path):
    def function(x, y):
        return (x @ y).relu() + 1

    compiled = torch.compile(function)
    compiled(torch.ones(3, 5, device=DEVICE), torch.ones(5, 7, device=DEVICE))
    report = inspect(compiled)
    [one] = report.programs
    assert report.eager == ()
    assert one.function == "function" and re.search(r"test_inspect\.py:\d+$", one.place)
    assert one.operators == {"aten.mm.default": 1, "aten.relu.default": 1, "aten.add.Tensor": 1}
    assert one.calls == 3 and one.flops == 2 * 3 * 5 * 7
    assert "stablehlo.dot_general" in one.stablehlo and "func.func public @main" in one.stablehlo
    assert one.optimized.startswith("HloModule") and "ENTRY %" in one.optimized
    library = glue.platform() == "cuda"  # which multiplies, and is not counted
    assert library or re.search(r"= f32\[3,7\]\{1,0\} dot\(%", one.optimized)
    assert one.memory["arguments"] >= 4 * (15 + 35) and one.memory["outputs"] == 4 * 21
    assert library or one.bytes == one.memory["arguments"] + one.memory["outputs"]
    assert one.source in ("compiled", "memory") and one.compile_ms > 0
    assert inspect(function) == report
    page = tmp_path / "page.html"
    report.html(page)
    text = page.read_text()
    assert "&quot;stablehlo.dot_general&quot;" in text and text.endswith("</html>\n")
    assert json.loads(report.json())["programs"][0]["flops"] == one.flops
    for words in (
        "1 programs",
        "aten.mm.default",
        "210 (of products and convolutions)",
        "temporaries",
    ):
        assert words in str(report)


@pytest.mark.cpu_plugin("which copies what it could have computed in place")
def test_what_is_written_over_inputs_is_computed_there():
    def step(weight, average, gradient):
        average.mul_(0.9).add_(gradient)
        weight.addcdiv_(average, average.square().sqrt() + 1, value=-0.1)

    compiled = torch.compile(step)
    compiled(*(torch.ones(24, 40, device=DEVICE) for _ in range(3)))
    [one] = inspect(compiled).programs
    assert " copy(" not in one.optimized and one.memory["temporaries"] <= 4 * 24 * 40


def convolved_and_multiplied(x, weight, y):
    z = torch.nn.functional.conv2d(x, weight, padding=1, stride=2, groups=2)
    return z, torch.einsum("bij,bkj->bik", y, y)


def convolved_both_ways(x, weight, y):
    z = torch.conv_transpose2d(x.relu(), y, stride=2)
    return (torch.conv2d(z, weight) * 2).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)  # of the host, of XLA
def test_flops_are_those_of_pytorchs_formulas(dtype):
    args = [torch.ones(size, dtype=dtype) for size in ((2, 4, 9, 8), (6, 2, 3, 3), (3, 5, 7))]
    with FlopCounterMode(display=False) as counter:
        convolved_and_multiplied(*args)
    compiled = torch.compile(convolved_and_multiplied)
    compiled(*(one.to(DEVICE) for one in args))
    [one] = inspect(compiled).programs
    assert one.flops == counter.get_total_flops()


@pytest.mark.cpu_plugin("XLA's gradients are convolutions of what is padded")
def test_flops_of_gradients_are_those_of_pytorchs_formulas():
    sizes = (2, 4, 9, 8), (6, 3, 3, 3), (4, 3, 2, 2)
    args = [torch.ones(size, requires_grad=True) for size in sizes]
    with FlopCounterMode(display=False) as counter:
        convolved_both_ways(*args).backward()
    compiled = torch.compile(convolved_both_ways)
    compiled(*(one.detach().to(DEVICE).requires_grad_() for one in args)).backward()
    assert sum(one.flops for one in inspect(compiled).programs) == counter.get_total_flops()


def test_flops_within_loops_count_as_often_as_these_run():
    def scanned(x, weight, rows):
        step = lambda sum, row: ((sum @ weight) + row, row * 2)  # noqa: E731
        return scan(step, x, rows)[0]

    def forever(x, weight):
        more = lambda x: x.sum() < 100  # noqa: E731
        return while_loop(more, lambda x: (x @ weight + 1,), (x,))[0]

    x, weight, rows = (torch.ones(*s, device=DEVICE) for s in ((4, 5), (5, 5), (7, 5)))
    for function, args, times in ((scanned, (x, weight, rows), 7), (forever, (x, weight), 1)):
        compiled = torch.compile(function)
        compiled(*args)
        [one] = inspect(compiled).programs
        assert one.flops == times * 2 * 4 * 5 * 5


@pytest.mark.parametrize("causal", [False, True])
def test_long_attention_keeps_a_block_of_its_logits(causal):
    """Forward and backward: of 8 heads, 1,100 rows by 1,100 numbers, or by those that they see."""

    def attend(q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=causal)

    compiled = torch.compile(attend)
    q = torch.randn(1, 8, 1100, 16, device=DEVICE, requires_grad=True)
    compiled(q).sum().backward()
    for one, products in zip(inspect(compiled).programs[-2:], (2, 5), strict=True):
        assert one.memory["temporaries"] < 8 * 1100 * 1100 * 4
        padded = 1152  # to whole blocks
        whole = products * 2 * 8 * padded * 1100 * 16
        assert one.flops < 0.75 * whole if causal else one.flops == whole


def test_programs_are_told_apart_by_function():
    model = torch.compile(Halves().to(DEVICE))
    builtin = torch.compile(torch.nn.Linear(8, 3).to(DEVICE))
    model(torch.ones(2, 8, device=DEVICE)).sum().backward()
    builtin(torch.ones(2, 8, device=DEVICE))
    names = [one.function for one in inspect(model).programs]
    assert sorted(names) == ["forward", "forward", "forward, backward", "forward, backward"]
    assert all("test_inspect.py" in one.place for one in inspect(model).programs)
    [linear] = inspect(builtin).programs
    assert "linear.py" in linear.place
    assert len(inspect().programs) >= 5
    with pytest.raises(TypeError, match="a function or module that was compiled, not 3"):
        inspect(3)
    assert inspect(lambda x: x).programs == ()


def test_what_runs_by_operators_says_why():
    compiled = torch.compile(lambda x: x * 2)
    compiled(torch.ones(3, dtype=torch.complex64, device=DEVICE).conj())
    report = inspect(compiled)
    assert not report.programs and "plain tensors" in report.eager[0]["why"] in str(report)


@pytest.mark.slow
def test_where_a_program_came_from(tmp_path):
    code = """
import torch
import torch.nn.functional as F
def f(x): return x * 3 + 1
for _ in range({}):
    torch._dynamo.reset()
    torch.compile(f)(torch.ones(5, device="tpu"))
print([one.source for one in torch.tpu.compiler.inspect(f).programs][-1])
"""
    environment = {"TORCH_TPU_CACHE_DIR": str(tmp_path), "TORCH_TPU_CACHE": "on"}
    for times, source in ((1, "compiled"), (1, "disk"), (2, "memory")):
        assert python(code.format(times), **environment)[1].strip() == source


def test_what_is_no_hlo_is_refused():
    for data in (b"", b"nonsense", b"\x0a\x01\xff", b"\x0a\xff\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="not understood"):
            hlo.text(data)


@pytest.mark.slow
def test_logs_show_programs(tmp_path):
    code = "import torch; torch.compile(lambda x: x.sin() + 1)(torch.ones(3, device='tpu')).cpu()"
    status, _, err = python(code, fresh=True, TORCH_LOGS="output_code", TORCH_TRACE=str(tmp_path))
    assert status == 0 and "StableHLO (from: " in err and "stablehlo.sine" in err, err
    [trace] = tmp_path.iterdir()
    assert "tpu_stablehlo" in trace.read_text() and "stablehlo.sine" in trace.read_text()


def test_pytorchs_flop_counter_knows_attention():
    """What CUDA's fused kernels count: two products forward, five backward; heads may be shared."""
    batch, heads, length, width = 2, 4, 8, 16
    product = 2 * batch * heads * length * length * width
    q = torch.randn(batch, heads, length, width, device=DEVICE, requires_grad=True)
    for count in (heads, 2):
        k = torch.randn(batch, count, length, width, device=DEVICE, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            F.scaled_dot_product_attention(q, k, k, enable_gqa=count < heads).sum().backward()
        assert counter.get_total_flops() == 7 * product
