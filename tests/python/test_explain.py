"""torch.tpu.explain, metrics and no_recompile: what was compiled, why, and how to forbid it."""

import json
from itertools import count
from pathlib import Path

import pytest
import torch
from support import only_tpu, python

pytestmark = only_tpu
HERE = Path(__file__).name
sizes = count(1009)  # sizes that no other test uses


def sentences(function):
    """Runs a function and returns the sentences that it added."""
    before = torch.tpu.explain().splitlines()
    function()
    after = torch.tpu.explain().splitlines()
    # The older ones may have made way.
    gone = next(i for i in range(len(before) + 1) if after[: len(before) - i] == before[i:])
    return "\n".join(after[len(before) - gone :])


@pytest.fixture
def n():
    return next(sizes)


def test_a_known_call_is_not_mentioned(n):
    x = torch.ones(n, device="tpu")
    x.mul(3.5)
    assert sentences(lambda: x.mul(4.5)) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, :3].contiguous(), "operand 0 is f32[{n},3], not f32[{n},4]"),
        (lambda x: x.int(), "operand 0 is i32[{n},4], not f32[{n},4]"),
        (lambda x: x.t().contiguous().t(), "operand 0 is another view: strides [1,{n}]"),
    ],
    ids=["shape", "dtype", "view"],
)
def test_an_operand_differs(n, change, words):
    x = torch.ones(n, 4, device="tpu")
    y = change(x)
    x.cumsum(0)
    text = sentences(lambda: y.cumsum(0))
    assert f"aten::cumsum, called at {__file__}" in text
    assert words.format(n=n) in text


def test_a_static_argument_differs(n):
    x = torch.ones(n, 4, device="tpu")
    x.cumsum(0)
    assert "argument 1 is 1, not 0" in sentences(lambda: x.cumsum(1))
    x.add(2.0)
    assert "argument 1 is 1, not a number known at run time" in sentences(lambda: x.add(1.0))


def test_the_latest_of_those_as_near_is_named(n):
    x = torch.ones(n, 4, device="tpu")
    for size in range(1, 45):  # more than are remembered, each as near as the last
        torch.ones(n, size + 4, device="tpu").add(1.0)
    x.add(2.0)
    assert "argument 1 is 1, not a number known at run time" in sentences(lambda: x.add(1.0))


def test_first_and_shared_operands(n):
    x, y = torch.ones(n, device="tpu"), torch.ones(n, device="tpu")
    x.hypot(y)
    assert "operand 1 shares the storage of operand 0" in sentences(lambda: x.hypot(x))
    text = sentences(lambda: torch.empty(n, device="tpu").hypot(y))
    assert "operand 0 was not written yet" in text


def step(x, operator=torch.relu, more=False):
    y = operator(x * 2)
    y = y - 1 if more else y
    return y.sum()


@pytest.mark.slow
@pytest.mark.tier("chunks")
def test_a_chunk_takes_another_way(n):
    with torch.tpu.set_eager_mode("fused"):
        x = torch.ones(n, 3, device="tpu")
        x.tolist()
        assert "3 operators, aten::mul.Tensor at " in sentences(lambda: step(x).item())
        text = sentences(lambda: step(x, torch.tanh).item())
        assert "operator 2 is aten::tanh at " in text
        assert "where the nearest known chunk has aten::relu" in text
        assert "ended by a read" in text
        text = sentences(lambda: step(x, more=True).item())
        assert "operator 3 is aten::sub.Tensor" in text
        text = sentences(lambda: (x * 2).relu().tolist())
        assert "the nearest known chunk goes on with aten::" in text
        assert sentences(lambda: step(x, more=True).item()) == ""


@pytest.mark.slow
def test_a_chunk_has_other_operands(n):
    with torch.tpu.set_eager_mode("fused"):
        x, short = torch.ones(n, device="tpu"), torch.ones(1, device="tpu")
        torch.tpu.synchronize()
        (x * 2 + short).tolist()
        text = sentences(lambda: (x * 2 + x).tolist())
        assert "operator 2 is aten::add.Tensor at " in text
        assert "where the nearest known chunk has it with other operands: " in text
        assert f"operand 1 is f32[{n}], not f32[1]" in text


@pytest.mark.slow
def test_a_chunk_goes_on(n):
    with torch.tpu.set_eager_mode("fused"):
        x = torch.ones(n, 3, device="tpu")
        x.tolist()
        (x * 2).tolist()
        text = sentences(lambda: (x * 2).exp().tolist())
        assert "the nearest known chunk ends after operator 1, aten::mul.Tensor at " in text


def test_other_results_are_needed(n):
    def run(keep):
        y = x * 2
        z = y.exp()
        if not keep:
            del y
        z.sum().item()

    with torch.tpu.set_eager_mode("fused"):
        x = torch.ones(n, 128, device="tpu")
        x[0, 0].item()
        run(False)
        text = sentences(lambda: run(True))
        assert "the same operators are known, but 1 result differs in being needed" in text
        assert "that of operator 1, aten::mul.Tensor at " in text
        assert "is now needed afterwards" in text
        assert sentences(lambda: run(False)) == ""


def test_only_the_last_sentences(n):
    torch.ones(n, device="tpu").exp2()
    lines = torch.tpu.explain(2).splitlines()
    assert len(lines) == 2 and "aten::exp2" in lines[-1]
    assert torch.tpu.explain(0) == ""
    with pytest.raises(ValueError, match="-1"):
        torch.tpu.explain(-1)


def test_the_log_says_the_same():
    code = """
import torch
torch.ones(7, 3, device="tpu").atan()
print(torch.tpu.explain(1))
"""
    status, out, err = python(code, TORCH_TPU_LOG="compile")
    assert status == 0, err
    assert "aten::atan, called at <string>:3" in out or "aten::atan" in out
    assert out.strip() in err


# -- metrics --


def test_metrics_count_operators_by_path():
    torch.tpu.reset_metrics()
    x = torch.tensor([1.0, 3.0], device="tpu")
    x + x
    with torch.tpu.set_host_fallback("silent"):
        torch.sparse.spdiags(torch.ones(1, 2, device="tpu"), torch.tensor([0]), (2, 2))
    metrics = torch.tpu.metrics()
    assert metrics["ops_row"] >= 1
    assert metrics["ops_host"] == 1 and metrics["host_operators"]
    torch.tpu.reset_metrics()
    assert not torch.tpu.metrics()["host_operators"]


def test_metrics_count_decompositions(n):
    x = torch.arange(n, device="tpu")
    torch.tpu.reset_metrics()
    for _ in range(3):
        x <<= 1
    metrics = torch.tpu.metrics()
    assert metrics["ops_decomposed"] == 3 and metrics["ops_host"] == 0


def test_metrics_count_chunks():
    with torch.tpu.set_eager_mode("fused"):
        torch.tpu.synchronize()
        torch.tpu.reset_metrics()
        x = torch.ones(5, device="tpu")
        y = x * 2
        y.tolist()
        z = y * 2
        torch.tpu.synchronize()
        w = z * 2
        with torch.tpu.set_eager_mode("strict"):
            w * 2
    metrics = torch.tpu.metrics()
    assert metrics["cuts"] == {
        "content": 0,
        "length": 0,
        "bytes": 0,
        "read": 1,
        "synchronise": 1,
        "mode": 1,
    }
    assert metrics["chunks"] == 3 and metrics["chunk_ops"] == 4
    assert metrics["chunk_sizes"] == {"1": 2, "2-3": 1}


def test_metrics_count_waits_by_line(n):
    torch.tpu.reset_metrics()
    x = torch.ones(n, device="tpu")
    for _ in range(3):
        x.sum().item()
    torch.tpu.synchronize()
    waits = torch.tpu.metrics()["synchronisations"]
    assert sorted(waits.values()) == [1, 3]
    assert all(HERE in line and "test_metrics_count_waits_by_line" in line for line in waits)


def test_metrics_count_waits_for_events(n):
    x = torch.ones(n, device="tpu")
    event = torch.tpu.Event()
    torch.tpu.reset_metrics()
    event.record()
    event.synchronize()  # has passed: no wait
    waits = torch.tpu.metrics()["synchronisations"]
    assert list(waits.values()) == [1]
    assert all(f"{HERE}:" in line and "for_events" in line for line in waits)
    del x


CACHED = """
import json, torch
x = torch.ones(5, device="tpu")
for _ in range(4):
    x = x * 2
x.tolist()
print(json.dumps(torch.tpu.metrics()))
"""


@pytest.mark.slow
def test_metrics_count_hits_by_tier(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()

    def tiers(name):
        folders = {"CACHE_DIR": tmp_path / name, "SHARED_CACHE_DIR": shared}
        here = {f"TORCH_TPU_{key}": str(value) for key, value in folders.items()}
        status, out, err = python(CACHED, TORCH_TPU_EAGER_MODE="strict", **here)
        assert status == 0, err
        metrics = json.loads(out)
        assert (metrics["compile_seconds"] > 0) == (metrics["cache"]["compiled"] > 0)
        assert (metrics["load_seconds"] > 0) == (metrics["cache"]["compiled"] == 0)
        return metrics["cache"]

    first = tiers("a")
    compiled, memory = first["compiled"], first["memory"]
    assert compiled > 0 and memory == 3  # of four products
    nothing = {"memory": memory, "disk": 0, "shared": 0, "compiled": 0}
    assert first == nothing | {"compiled": compiled}
    assert tiers("a") == nothing | {"disk": compiled}
    assert tiers("b") == nothing | {"shared": compiled}


def test_metrics_count_bytes_and_time():
    torch.tpu.synchronize()
    before = torch.tpu.metrics()["bytes_held"]
    x = torch.ones(1000, device="tpu")
    torch.tpu.synchronize()
    metrics = torch.tpu.metrics()
    assert metrics["bytes_held"] - before == 4000
    assert metrics["compile_seconds"] >= 0
    assert {"programs", "program_hits", "disk_hits", "compiles", "launches"} <= set(metrics)
    del x


def test_cuts_by_length_and_content():
    with torch.tpu.set_eager_mode("fused"):
        x = torch.ones(3, device="tpu")
        torch.tpu.synchronize()
        torch.tpu.reset_metrics()
        for _ in range(900):
            x = x + 1
        x.tolist()
    metrics = torch.tpu.metrics()
    cuts = metrics["cuts"]
    assert cuts["content"] + cuts["length"] >= 1 and cuts["read"] <= 1
    assert sum(cuts.values()) == metrics["chunks"] == sum(metrics["chunk_sizes"].values())


def test_cuts_by_bytes():
    with torch.tpu.set_eager_mode("fused"):
        x = torch.ones(1 << 24, device="tpu")
        torch.tpu.synchronize()
        torch.tpu.reset_metrics()
        for _ in range(6):
            x = x + 1
        assert torch.tpu.metrics()["cuts"]["bytes"] >= 1
        assert x[:2].tolist() == [7.0, 7.0]


def test_results_that_others_replace_are_no_bytes_of_a_chunk():
    """An optimizer's lists were cut elsewhere in each step, and compiled anew each time."""
    with torch.tpu.set_eager_mode("fused"):
        xs = [torch.ones(1 << 23, device="tpu") for _ in range(2)]
        torch.tpu.synchronize()
        torch.tpu.reset_metrics()
        for _ in range(10):
            torch._foreach_add_(xs, 1)
        xs[0].mul_(2)
        assert torch.tpu.metrics()["cuts"]["bytes"] == 0
        assert [x[-2:].tolist() for x in xs] == [[22.0, 22.0], [11.0, 11.0]]


# -- no_recompile --


@pytest.mark.parametrize("mode", ["strict", "debug"])
def test_a_new_program_is_refused(n, mode):
    with torch.tpu.set_eager_mode(mode):
        x = torch.ones(n, device="tpu")
        with torch.tpu.no_recompile():
            with pytest.raises(RuntimeError, match=r"no_recompile\(\) forbids") as error:
                x.acosh()
            assert "aten::acosh, called at " in str(error.value)
        assert x.acosh().sum().item() == 0
        with torch.tpu.no_recompile():
            assert x.acosh().tolist() == [0.0] * n


def test_a_refused_chunk_stays(n):
    with torch.tpu.set_eager_mode("fused"):
        x = torch.zeros(n, device="tpu")
        x.tolist()
        with torch.tpu.no_recompile():
            x += 3
            with pytest.raises(RuntimeError, match="1 operators, aten::add_"):
                x.tolist()
            with pytest.raises(RuntimeError, match="forbids"):
                torch.tpu.synchronize()
        assert x.tolist() == [3.0] * n


def test_a_refused_chunk_in_mid_stream(n):
    with torch.tpu.set_eager_mode("fused"):
        x, done = torch.zeros(n, device="tpu"), 0
        x.tolist()
        with torch.tpu.no_recompile(), pytest.raises(RuntimeError, match="forbids"):
            for _ in range(500):
                x = x + 1
                done += 1
        assert 0 < done < 500
        assert x.tolist() == [float(done)] * n


def test_it_nests_and_decorates(n):
    torch.tpu.eager_mode = "strict"

    @torch.tpu.no_recompile()
    def inside(x):
        with torch.tpu.no_recompile():
            pass
        return x.asinh()

    x = torch.ones(n, device="tpu")
    with pytest.raises(RuntimeError, match="forbids"):
        inside(x)
    x.asinh()
    inside(x)


def test_a_settled_loop_passes(n):
    model = torch.nn.Linear(4, 2).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(n % 7 + 3, 4, device="tpu")

    def iterate():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with torch.tpu.set_eager_mode("fused"):
        for _ in range(5):
            first = iterate().item()
        with torch.tpu.no_recompile():
            for _ in range(5):
                last = iterate().item()
    assert last < first


def test_lines_are_known_however_much_code_there_is():
    """Code that is compiled again and again, as by exec, takes no room for its lines."""
    x = torch.ones(2, device="tpu")
    for _ in range(70_000):
        exec(compile("x.neg_()", "again.py", "exec"), {"x": x})
    torch.tpu.reset_metrics()
    assert x.tolist() == [1.0, 1.0]
    waited = torch.tpu.metrics()["synchronisations"]
    assert any("test_explain.py" in line for line in waited), waited
