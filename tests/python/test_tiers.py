"""What chunks are launched as in Fused mode: operators, pieces, or whole; the numbers are equal."""

import subprocess
import sys
import time

import pytest
import torch
from support import DEVICE, TIERS, programs_of, slow_but
from torch import nn

import torch_tpu._C as glue

pytestmark = pytest.mark.skipif(DEVICE != "tpu", reason="about Fused mode")


@pytest.fixture(autouse=True)
def fused():
    with torch.tpu.set_eager_mode("fused"):
        yield


def train(device, steps=4):
    """Returns the losses of a small model of equal layers, and its weights."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(11, 16), *layers, nn.Linear(16, 11)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randint(0, 11, (3, 5)).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("tier", slow_but(TIERS, "auto", "pieces"))
def test_training_is_the_cpu_s_in_every_tier(tier):
    glue._force_tier(TIERS.index(tier))
    try:
        losses, weights = train("tpu")
    finally:
        glue._force_tier(TIERS.index("auto"))
    expected, expected_weights = train("cpu")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    for got, one in zip(weights, expected_weights, strict=True):
        torch.testing.assert_close(got, one, rtol=1e-3, atol=1e-5)


def test_a_chunk_that_comes_seldom_has_no_program():
    """Its operators have; else each of many that never come again would be compiled.

    In f64, which no kernel of the host's computes.
    """
    x = torch.rand(7, 7, dtype=torch.float64, device="tpu")
    operators = [lambda t: t @ t, lambda t: t.cumsum(0), lambda t: t.sort(0).values]

    for i in range(3):
        programs_of(operators, x, [i])
    orders = [[i, j, k, 0] for i in range(3) for j in range(3) for k in range(3)]
    for expected in (0, 0, 0, 1):
        assert [programs_of(operators, x, order) for order in orders] == [expected] * len(orders)


def launched_as(fn):
    """Returns how many operators were launched in each tier meanwhile."""
    torch.tpu.synchronize()
    before = torch.tpu.metrics()["tiers"]
    fn()
    torch.tpu.synchronize()
    return {name: n - before[name] for name, n in torch.tpu.metrics()["tiers"].items()}


def needs_kernels():
    """Skips where the host has none, as beside an accelerator."""
    x = torch.ones(3, device="tpu")
    if launched_as(lambda: x * 2)["kernels"] == 0:
        pytest.skip("no kernels of the host's")


LOOPS = {
    "row": lambda x, out, row, i: x[i] * 2,
    "fill": lambda x, out, row, i: out[i].fill_(1.5),
    "write": lambda x, out, row, i: out[i].copy_(row),
    "add": lambda x, out, row, i: out[i].add_(row),
    "part": lambda x, out, row, i: x[: i + 1].sum(),
}


@pytest.mark.tier("auto")
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_compiles_nothing_where_the_host_has_kernels(name):
    needs_kernels()

    def run(device):
        x = torch.arange(512.0).reshape(64, 8).to(device)
        out, row = torch.zeros(64, 8, device=device), torch.ones(8).to(device)
        results = [LOOPS[name](x, out, row, i) for i in range(50)]
        return [one.cpu() for one in (*results, out)]

    before = torch.tpu.metrics()["programs"]
    got = run("tpu")
    assert torch.tpu.metrics()["programs"] == before
    for one, expected in zip(got, run("cpu"), strict=True):
        torch.testing.assert_close(one, expected)


@pytest.mark.tier("auto")
def test_what_is_ordered_is_known_only_afterwards():
    """no_recompile() is about what is new, whether a compiler would take its time for it or not."""
    needs_kernels()
    x = torch.ones(5, 3, device="tpu")
    with torch.tpu.no_recompile(), pytest.raises(RuntimeError, match="forbids"):
        (x.sin() + x.cos()).tolist()
    (x.sin() + x.cos()).tolist()
    with torch.tpu.no_recompile():
        assert (x.sin() + x.cos()).shape == (5, 3)


@pytest.mark.slow
@pytest.mark.tier("auto")
def test_a_chunk_s_own_program_is_taken_when_it_is_ready():
    x, weight = torch.rand(7, 23, device="tpu"), torch.rand(23, 23, device="tpu")

    def step():
        return torch.softmax((x @ weight).tanh() * 2, -1).sum().item()

    first = launched_as(step)
    assert first["chunks"] == 0 and sum(first.values()) >= 2, first
    deadline = time.monotonic() + 60
    while not launched_as(step)["chunks"] and time.monotonic() < deadline:
        time.sleep(0.1)  # the background compiles when the processor is left to it
    whole = {"operators": 0, "pieces": 0, "kernels": 0, "chunks": sum(first.values())}
    assert launched_as(step) == whole


def programs_asked_for():
    metrics = torch.tpu.metrics()
    return metrics["programs"] + metrics["program_hits"]


@pytest.mark.tier("auto")
def test_an_operator_that_is_launched_alone_is_compiled_while_its_chunk_is_recorded():
    x = torch.rand(7, 29, dtype=torch.float64, device="tpu")
    torch.tpu.synchronize()
    before = programs_asked_for()
    torch.softmax(x @ x.T, -1)
    assert programs_asked_for() - before == 2  # and nothing was read or launched
    x + 1
    assert programs_asked_for() - before == 2  # it may become a part of a piece
    x @ x.T
    assert programs_asked_for() - before == 2  # its call has a program


@pytest.mark.tier("auto")
def test_an_operator_has_one_program_whichever_of_its_results_are_held():
    x = torch.rand(7, 31, device="tpu")
    torch.tpu.synchronize()
    before = torch.tpu.metrics()["programs"]
    for wanted in ((0,), (1,), (0, 1), (0, 2)):
        results = torch.ops.aten.native_layer_norm(x, (31,), None, None, 1e-5)
        held = [results[i] for i in wanted]
        del results
        torch.tpu.synchronize()
        del held
    assert torch.tpu.metrics()["programs"] - before == 1


@pytest.mark.tier("auto")
def test_lists_of_other_lengths_are_pieces_of_their_own():
    """As of an optimizer's groups of parameters: each has a program for each kind of element."""
    like = {"dtype": torch.float64, "device": "tpu"}
    groups = [[torch.ones(n, **like) for _ in range(n)] for n in (6, 9)]

    def step():
        for group in groups:
            torch._foreach_mul_(group, 3)
            torch._foreach_add_(group, 2)

    before = torch.tpu.metrics()["launches"]
    assert launched_as(step) == {"operators": 0, "pieces": 4, "kernels": 0, "chunks": 0}
    assert torch.tpu.metrics()["launches"] - before >= 6 + 9  # each element by itself
    assert all(x.tolist() == [5.0] * len(group) for group in groups for x in group)


def foreach(device, shapes, rounds=3):
    """Returns an optimizer's weights after steps of operators on lists, with a number a weight."""
    torch.manual_seed(0)
    weights = [torch.rand(shape).to(device) for shape in shapes]
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for i in range(rounds):
        grads = [w * (i + 2) for w in weights]
        torch._foreach_lerp_(first, grads, 0.1)
        torch._foreach_mul_(second, 0.99)
        torch._foreach_addcmul_(second, grads, grads, 0.5)
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, [1.0 + k / 7 + i for k in range(len(weights))])
        torch._foreach_add_(roots, 1e-8)
        torch._foreach_addcdiv_(weights, first, roots, [-0.01 * k for k in range(len(weights))])
    return [w.cpu() for w in weights]


@pytest.mark.tier("pieces")
def test_parameters_that_are_alike_share_programs():
    shapes = [(3, 31)] * 6 + [(37,)] * 7 + [(2, 41)] * 5
    compiles = torch.tpu.metrics()["compiles"]
    got = foreach("tpu", shapes)
    assert torch.tpu.metrics()["compiles"] - compiles < 2 * len(set(shapes)) + 8
    for one, expected in zip(got, foreach("cpu", shapes), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-6)
    compiles = torch.tpu.metrics()["compiles"]
    foreach("tpu", shapes * 2)
    assert torch.tpu.metrics()["compiles"] - compiles <= 2  # a list may be cut elsewhere


@pytest.mark.tier("pieces")
def test_lists_whose_elements_meet_stay_whole():
    """Element 0 of the second operator needs element 1 of the first."""
    for device in ("tpu", "cpu"):
        x = [torch.full((5, 3), float(k)).to(device) for k in range(6)]
        y = torch._foreach_add(x, 1.0)
        z = torch._foreach_mul(y[::-1], 2.0)
        torch._foreach_mul_([x[0], x[1], x[2]], [x[1], x[2], x[0]])  # reads what it writes
        got = [t.cpu() for t in [*x, *y, *z]]
        if device == "tpu":
            ours = got
    assert all(torch.equal(a, b) for a, b in zip(ours, got, strict=True))


@pytest.mark.tier("pieces")
@pytest.mark.parametrize("name", ["max", "exp", "add", "addcmul"])
def test_lists_with_targets_are_taken_apart(name):
    """A target of out= is among no argument's tensors."""
    alike = [torch.randn(4, 3) for _ in range(9)]
    function = getattr(torch.ops.aten, f"_foreach_{name}")

    def work(device):
        x = [one.to(device) for one in alike]
        more = {"add": (2.0,), "addcmul": (x, x)}.get(name, ())
        flat = [torch.empty_like(one) for one in function(x, *more)]
        function(x, *more, out=flat)
        results = flat
        if name != "max":
            wide = torch.zeros(9, 8, 3, device=device)
            function(x, *more, out=[wide[i, 2:6] for i in range(9)])
            results = [*flat, wide]
        return [one.cpu() for one in results]

    for one, expected in zip(work("tpu"), work("cpu"), strict=True):
        torch.testing.assert_close(one, expected)


@pytest.mark.tier("auto")
def test_explain_says_what_was_waited_for():
    x = torch.rand(3, 29, device="tpu")
    torch.linalg.vector_norm(x.logsumexp(0)).item()
    assert "waited: " in torch.tpu.explain()
    assert " ms for the program of aten::" in torch.tpu.explain()


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_bits_do_not_depend_on_where_the_stream_was_cut(deterministic):
    x, weight = torch.rand(37, 64).to("tpu"), torch.rand(64, 64).to("tpu")

    def run(read):
        y = x
        for i in range(12):
            y = torch.softmax(y @ weight, -1) + x.sum(1, keepdim=True) / 7
            if i in read:
                y.sum().item()
        return y.cpu()

    expected = run(())
    for read in ((3,), (0, 1, 2), (11,), (), tuple(range(12))):
        assert torch.equal(run(read), expected), read


def test_gradcheck_finds_a_backward_reentrant(deterministic):
    torch.manual_seed(0)
    x = torch.rand(5, 6, dtype=torch.float64).to("tpu").requires_grad_()
    w = torch.rand(6, 6, dtype=torch.float64).to("tpu").requires_grad_()

    def function(x, w):
        y = torch.tanh(x @ w)
        for _ in range(3):
            y = torch.softmax(y @ w, -1) * y.sum(0)
        return y

    assert torch.autograd.gradcheck(function, (x, w), nondet_tol=0.0)


SHORT = """
import torch
torch.tpu.eager_mode = "fused"
x = torch.rand(64, 64, device="tpu")
for _ in range(3):
    y = x
    for i in range(60):
        y = torch.softmax(y @ x, -1).tanh() * (i + 1)
    y.sum().item()
print("done", flush=True)
"""


def test_a_process_ends_while_a_compiler_runs_in_the_background(monkeypatch):
    monkeypatch.setenv("TORCH_TPU_CACHE", "off")
    done = subprocess.run(
        [sys.executable, "-c", SHORT], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "done\n"
    assert done.stderr == ""
