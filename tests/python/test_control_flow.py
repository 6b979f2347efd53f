"""Control flow on tpu: branches, loops and attention within a program, forward and backward."""

import math

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, LOOSE, counted, move, only_tpu, python, same, slow_but
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as hop_map
from torch._higher_order_ops.cond import cond_op
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from torch_tpu import compiler

pytestmark = [only_tpu, pytest.mark.usefixtures("fresh_dynamo")]


def tensors(tree):
    return [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]


def gradients(results, args):
    """Of the results' squares; and how many launches they took."""
    wanted = [one for one in tensors(args) if one.requires_grad]
    used = [one for one in tensors(results) if one.requires_grad]
    given = [2 * one.detach() for one in used]
    return counted(lambda: torch.autograd.grad(used, wanted, given, allow_unused=True), "launches")


def check_native(function, *args, calls=1, reference=None):
    """One launch forward and one backward, and what the CPU computes, twice; returns the results.

    `calls`: how many graphs it is, if not one. `reference`: what computes the same on the CPU.
    """
    known = set(compiler.compiled())
    host = move(args, "cpu")
    want = (reference or function)(*host)
    trains = any(one.requires_grad for one in tensors(want))
    want_gradients = gradients(want, host)[1] if trains else []
    compiled = torch.compile(function, fullgraph=True)
    for _ in range(2):
        device = move(args)
        [launches], got = counted(lambda d=device: compiled(*d), "launches")
        backward, got_gradients = gradients(got, device) if trains else ([calls], [])
        same(got, want, **LOOSE)
        same(got_gradients, want_gradients, **LOOSE)
        same(device, host, **LOOSE)
    assert [launches, *backward] == [calls, calls]
    made = [one for one in compiler.compiled() if one not in known]
    assert made and not any(one.why for one in made), [one.why for one in made]
    return got


def check_eager(function, *args, reference=None):
    """Outside of torch.compile it computes what the CPU does, too."""
    host, device = move(args, "cpu"), move(args)
    want, got = (reference or function)(*host), function(*device)
    same(got, want, **LOOSE)
    if any(one.requires_grad for one in tensors(want)):
        same(gradients(got, device)[1], gradients(want, host)[1], **LOOSE)


@pytest.fixture
def reasons():
    """Says why graphs of this test are run operator by operator."""
    known = set(compiler.compiled())
    return lambda: [one.why for one in compiler.compiled() if one.why and one not in known]


# -- torch.cond --


def choose(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: (x * y).sin(), lambda x, y: x + y.cos(), (x, y))


def several(x, y):
    return torch.cond(
        x.sum() > 0,
        lambda x: {"a": x.t() * 2, "b": (x.sum(), y @ x)},
        lambda x: {"a": x.t().cos(), "b": (x[0, 0] * 3, x - 1)},
        (x,),
    )


def within(x, y):
    def inner(x):
        return torch.cond(y.sum() > 0, lambda x: x * y, lambda x: x - y, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: x.exp(), (x,)) + x


CONDS = {"choose": choose, "several": several, "within": within}


@pytest.mark.parametrize("name", slow_but(CONDS, "within"))
@pytest.mark.parametrize("sign", slow_but([1, -1], 1))
def test_cond(name, sign):
    torch.manual_seed(0)
    function = CONDS[name]
    x = sign * torch.rand(3, 3) + sign * 0.1
    y = torch.randn(3, 3)
    check_native(function, x.requires_grad_(), y.requires_grad_())


@pytest.mark.slow
def test_dynamo_may_be_there_before_the_device():
    code = """
import torch, torch._dynamo
torch._import_device_backends()
f = torch.compile(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
print(f(torch.zeros(2, device="tpu")).tolist())
from torch_tpu import compiler
print([one.why for one in compiler.compiled()])
"""
    status, output, errors = python(code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert (status, output.split("\n")[:2]) == (0, ["[1.0, 1.0]", "['']"]), errors


def test_a_program_chooses_anew():
    compiled = torch.compile(choose)
    y = torch.randn(4)
    compiled(torch.ones(4, device=DEVICE), y.to(DEVICE))
    for sign in (1, -1, -1, 1):
        x = torch.full((4,), float(sign))
        [launches, programs], got = counted(
            lambda x=x: compiled(x.to(DEVICE), y.to(DEVICE)), "launches", "programs"
        )
        same(got, choose(x, y), **LOOSE)
        assert (launches, programs) == (1, 0)


@pytest.mark.slow
def test_cond_in_a_module(reasons):
    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.cond(x.mean() > 0, lambda x: self.one(x), lambda x: self.other(x), (x,))

    torch.manual_seed(0)
    host = Gate()
    device = Gate().to(DEVICE)
    device.load_state_dict(host.state_dict())
    compiled = torch.compile(device, fullgraph=True)
    for sign in (1, -1):
        x = sign * torch.rand(2, 4)
        for model, run in ((host, host), (device, compiled)):
            model.zero_grad()
            run(x.to(next(model.parameters()).device)).square().sum().backward()
        same([p.grad for p in device.parameters()], [p.grad for p in host.parameters()], **LOOSE)
    assert not reasons()


def test_cond_outside_of_compile():
    check_eager(choose, torch.ones(4, requires_grad=True), torch.randn(4, requires_grad=True))
    check_eager(choose, -torch.ones(4, requires_grad=True), torch.randn(4, requires_grad=True))


def test_branches_that_draw(reasons):
    """The numbers of eager mode; the generator moves on by what the greedier branch draws."""

    def function(x):
        y = torch.cond(
            x.sum() > 0,
            lambda x: F.dropout(x, 0.5) + torch.rand_like(x),
            lambda x: torch.rand_like(x),
            (x,),
        )
        return y, torch.rand_like(x)

    x = torch.ones(8, device=DEVICE)
    torch.manual_seed(5)
    want = F.dropout(x, 0.5) + torch.rand_like(x), torch.rand_like(x)
    compiled = torch.compile(function, fullgraph=True)
    torch.manual_seed(5)
    same(compiled(x), want)
    torch.manual_seed(5)
    same(compiled(-x)[1], want[1])
    torch.manual_seed(5)
    same(compiled(-x)[0], (torch.manual_seed(5), torch.rand_like(x))[1])
    assert not reasons()


@pytest.mark.slow
def test_autocast_casts_what_is_within(reasons):
    def function(x, xs):
        y = torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x.t() @ x, (x,))
        return (
            y,
            scan(lambda h, x: ((h @ x).float(), h @ x), x, xs),
            flex_attention(*[xs[None]] * 3),
        )

    args = torch.rand(4, 4, device=DEVICE), torch.rand(3, 4, 4, device=DEVICE)
    compiled = torch.compile(function, fullgraph=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        got, want = compiled(*args), function(*args)
    same(got, want)
    assert got[0].dtype == got[1][1].dtype == got[2].dtype == torch.bfloat16
    assert not reasons()


def test_checks_within_a_branch(reasons):
    def function(x, i):
        return torch.cond(x.sum() > 0, lambda x, i: x[i], lambda x, i: x[i * 0] * 2, (x, i))

    compiled = torch.compile(function, fullgraph=True)
    with torch.tpu.set_eager_mode("debug"):
        x, bad = torch.ones(4, device=DEVICE), torch.tensor([1, 9]).to(DEVICE)
        same(compiled(x, bad % 4), torch.ones(2))
        same(compiled(-x, bad), torch.full((2,), -2.0))
        compiled(x, bad)
        with pytest.raises(IndexError, match="out of range for a dimension of size 4"):
            torch.tpu.synchronize()
    assert not reasons()


def write_in_a_branch(x, buffer):
    return torch.cond(x.sum() > 0, lambda x: buffer.add_(1) + x, lambda x: buffer.mul_(2) + x, (x,))


def write_in_a_loop(x, buffer):
    def step(i, x):
        buffer.index_copy_(0, i.reshape(1), (x + buffer[0]).reshape(1))
        return i + 1, x * 2

    return while_loop(
        lambda i, x: i < 3, step, (torch.zeros((), dtype=torch.int64, device=x.device), x)
    )


WRITES = {"branch": write_in_a_branch, "loop": write_in_a_loop}


@pytest.mark.parametrize("name", slow_but(WRITES, "branch"))
def test_what_is_written_from_within(name):
    for x in (torch.tensor(1.0), torch.tensor(-1.0)):
        torch._dynamo.reset()
        with torch.no_grad():
            check_native(WRITES[name], x, torch.ones(4))


def test_within_a_captured_graph():
    """Where Dynamo and AOTAutograd take no part."""
    x, buffer = torch.ones(3, device=DEVICE), torch.ones(2, 3, device=DEVICE)
    branches = lambda b, x: b.add_(x)[1] * 2, lambda b, x: b[0] - x
    graph = torch.tpu.Graph()
    with torch.no_grad(), torch.tpu.graph(graph):
        y = cond_op(x.sum() > 0, *branches, (buffer, x))
    want = torch.ones(2, 3)
    for value in (1.0, -1.0, 2.0):
        x.fill_(value)
        [launches], _ = counted(graph.replay, "launches")
        same(y, branches[value < 0](want, torch.full((3,), value)))
        same(buffer, want)
        assert launches == 1
    with torch.no_grad(), torch.tpu.graph(torch.tpu.Graph()):
        with pytest.raises(NotImplementedError, match="shares its memory with another"):
            cond_op(x.sum() > 0, lambda b, x: b.mul_(2) + x, branches[1], (buffer, buffer[0]))
        with pytest.raises(RuntimeError, match="expected tensor<2x3xf32>"):
            cond_op(x.sum() > 0, lambda b: b * 2, lambda b: b[0] * 2, (buffer,))
        with pytest.raises(RuntimeError, match="not on cpu"):
            cond_op(x.sum() > 0, lambda x: torch.zeros(3), lambda x: x * 2, (x,))


# -- torch.while_loop --


def until(x, limit):
    return while_loop(
        lambda i, x: (x.sum() < limit) & (i < 20),
        lambda i, x: (i + 1, x * 1.5 + limit.sin()),
        (torch.zeros((), dtype=torch.int64, device=x.device), x),
    )


@pytest.mark.parametrize("limit", slow_but([50.0, -1.0], 50.0))
def test_while_loop(limit):
    x = torch.tensor([1.0, 2, 3])
    check_native(until, x, torch.tensor(limit))
    check_eager(until, x, torch.tensor(limit))


def test_numbers_that_a_loop_changes(reasons):
    def function(x, all_of_it):
        i, y = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * i + 1), (0, x))
        return (i, y) if all_of_it else y

    x = torch.randn(3)
    check_native(lambda x: function(x, False), x)
    same(torch.compile(lambda x: function(x, True))(x.to(DEVICE)), function(x, True), **LOOSE)
    assert reasons() == ["a result is a number of Python's that a loop changes"]


@pytest.mark.slow
def test_loops_in_loops():
    def function(x):
        zero = torch.zeros((), dtype=torch.int64, device=x.device)

        def row(i, x):
            inner = while_loop(lambda k, y: k < i, lambda k, y: (k + 1, y + 1), (zero.clone(), x))
            return i + 1, torch.cond(i > 1, lambda y: y * 2, lambda y: y - 1, (inner[1],))

        return while_loop(lambda i, x: i < 4, row, (zero.clone(), x))

    check_native(function, torch.randn(2, 3))


@pytest.mark.slow
def test_gradients_of_a_while_loop(reasons):
    """Backward it is a loop of known length; forward it runs operator by operator, and says why."""
    x, limit = torch.tensor([1.0, 2, 3], requires_grad=True), torch.tensor(50.0)
    host, device = move((x, limit), "cpu"), move((x, limit))
    want = until(*host)
    got = torch.compile(until, fullgraph=True)(*device)
    same(got, want, **LOOSE)
    [launches], gradient = gradients(got, device)
    same(gradient, gradients(want, host)[1], **LOOSE)
    assert launches == 1
    assert ["how many steps there are" in one for one in reasons()] == [True]


def test_a_loop_without_known_end_that_draws_runs_operator_by_operator(reasons):
    def function(x):
        return while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, x + torch.rand_like(x)),
            (torch.zeros((), dtype=torch.int64, device=x.device), x),
        )[1]

    x = torch.ones(3, device=DEVICE)
    torch.manual_seed(1)
    want = x + torch.rand_like(x) + torch.rand_like(x) + torch.rand_like(x)
    torch.manual_seed(1)
    same(torch.compile(function)(x), want)
    assert any("draws random numbers" in one for one in reasons())


# -- scan, map, associative_scan --


def recurrent(h, xs, w):
    return scan(lambda h, x: ((h @ w + x).tanh(), (h * x, x.sum(-1))), h, xs)


def test_scan():
    torch.manual_seed(0)
    args = torch.randn(2, 3), torch.randn(6, 2, 3), torch.randn(3, 3)
    check_eager(recurrent, *args)
    check_native(recurrent, *(one.requires_grad_() for one in args))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_scan_along_a_dim(reverse, dim):
    def function(h, xs):
        return scan(lambda h, x: (h * 0.5 + x, h.sin() + x), h, xs, dim=dim, reverse=reverse)

    torch.manual_seed(0)
    xs = torch.randn(4, 4, 2)
    check_native(function, torch.randn(4, 2).requires_grad_(), xs.requires_grad_())


@pytest.mark.slow
def test_a_long_scan_is_a_loop():
    function = torch.compile(recurrent, fullgraph=True)
    sizes = []
    for length in (8, 300):
        args = torch.zeros(2, 3), torch.randn(length, 2, 3), torch.eye(3) / 2
        known = set(compiler.compiled())
        same(function(*move(args)), recurrent(*args), **LOOSE)
        sizes += [one.operators for one in compiler.compiled() if one not in known]
    assert max(sizes) < 100


@pytest.mark.slow
def test_scan_draws_as_eager_mode_does(reasons):
    def function(xs):
        return scan(lambda c, x: (c + x, torch.rand_like(x) + F.dropout(c)), xs[0], xs)

    xs = torch.ones(5, 4, device=DEVICE)
    torch.manual_seed(4)
    want = scan(lambda c, x: (c + x, torch.rand_like(x) + F.dropout(c)), xs[0], xs)
    torch.manual_seed(4)
    same(torch.compile(function, fullgraph=True)(xs), want)
    assert not reasons()


@pytest.mark.slow
def test_map():
    def function(xs, w):
        return hop_map(lambda x, w: {"a": (x["a"] @ w).sin(), "b": x["b"] * 2}, xs, w)

    torch.manual_seed(0)
    xs = {"a": torch.randn(5, 2, 3), "b": torch.randn(5, 4)}
    w = torch.randn(3, 3)
    check_native(function, xs, w)
    check_eager(function, xs, w)
    check_native(
        lambda xs, w: hop_map(lambda x, w: (x @ w).sin(), xs, w),
        xs["a"].requires_grad_(),
        w.requires_grad_(),
    )


@pytest.mark.parametrize("mode", slow_but(["generic", "pointwise"], "pointwise"))
@pytest.mark.parametrize("trains", slow_but([False, True], False))
def test_associative_scan(mode, trains):
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    def function(a, b):
        return associative_scan(combine, (a, b), 1, reverse=True, combine_mode=mode)

    def reference(a, b):
        return associative_scan(combine, (a, b), 1, reverse=True, combine_mode="generic")

    torch.manual_seed(0)
    args = [x.requires_grad_(trains) for x in (torch.rand(2, 6), torch.randn(2, 6))]
    check_native(function, *args, reference=reference)
    check_eager(function, *args, reference=reference)


# -- flex_attention --


def attend(q, k, v, bias, causal):
    """What flex_attention computes, in plain operators."""
    k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias[:, None, :]
    if causal:
        rows, columns = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(rows, columns).tril() == 0, float("-inf"))
    return scores.softmax(-1) @ v


def flex(q, k, v, bias, causal):
    def score_mod(score, b, h, i, j):
        return score if bias is None else score + bias[h, j]

    rows, columns = q.shape[-2], k.shape[-2]
    mask = None
    if causal:
        mask = create_block_mask(
            lambda b, h, i, j: i >= j, None, None, rows, columns, device=q.device
        )
    grouped = q.shape[1] != k.shape[1]
    return flex_attention(q, k, v, score_mod=score_mod, block_mask=mask, enable_gqa=grouped)


def flex_inputs(batch, count, heads, length, biased):
    """Queries of `count` heads, keys and values of `heads`, and a bias that learns, or None."""
    torch.manual_seed(0)
    counts = (count, heads, heads)
    inputs = [torch.randn(batch, h, length, 8, requires_grad=True) for h in counts]
    return *inputs, torch.randn(count, length, requires_grad=True) if biased else None


FLEX = {
    "plain": (2, False, False),
    "a bias that learns": (2, True, False),
    "causal": (2, False, True),
    "groups, bias, causal": (1, True, True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(FLEX, "groups, bias, causal"))
def test_flex_attention(name):
    heads, biased, causal = FLEX[name]
    inputs = flex_inputs(2, 2, heads, 32, biased)
    check_native(flex, *inputs, causal, reference=attend)
    check_eager(flex, *inputs, causal, reference=attend)


LONG_FLEX = {
    "a bias that learns": (4, True, False),
    "groups, bias, causal": (2, True, True),
    "half, causal": (4, False, True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_FLEX)
def test_long_flex_attention(name):
    """A block of the scores at a time: of 4 heads, 1,536 rows by 1,536 numbers."""
    heads, biased, causal = LONG_FLEX[name]
    inputs = flex_inputs(1, 4, heads, 1536, biased)
    known = len(torch.tpu.compiler.inspect(flex).programs)
    if name.startswith("half"):
        args = [one.detach().half() for one in inputs[:3]]
        got = torch.compile(flex)(*move(args), None, causal)
        want = attend(*(one.float() for one in args), None, causal)
        same(got.float(), want, rtol=1e-2, atol=1e-2)
    else:
        check_native(flex, *inputs, causal, reference=attend)
    programs = torch.tpu.compiler.inspect(flex).programs[known:]
    assert programs
    for one in programs:
        assert one.memory["temporaries"] < 2 * 4 * 1536 * 1536 * 4


@pytest.mark.slow
def test_a_block_mask_made_before():
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 256, 256, device=DEVICE)
    host = create_block_mask(lambda b, h, i, j: i >= j, None, None, 256, 256, device="cpu")
    same(mask.to_dense(), host.to_dense())
    compiled = torch.compile(create_block_mask)
    again = compiled(lambda b, h, i, j: i >= j, None, None, 256, 256, device=DEVICE)
    same(again.to_dense(), host.to_dense())
    q = torch.randn(1, 1, 256, 8)
    got = torch.compile(flex_attention)(*[q.to(DEVICE)] * 3, block_mask=mask)
    same(got, attend(q, q, q, None, True), **LOOSE)


# -- Checkpoints --


def test_checkpoint():
    def block(x, w):
        return torch.relu(x @ w).sin()

    def function(x, w):
        for _ in range(2):
            x = checkpoint(block, x, w, use_reentrant=False)
        return x

    torch.manual_seed(0)
    check_native(
        function, torch.randn(4, 8, requires_grad=True), torch.randn(8, 8).requires_grad_()
    )


def test_what_a_checkpoint_computes_again_draws_the_same(reasons):
    """Gradients are there where the forward's dropout left something, and differ each time."""

    def function(x):
        return checkpoint(lambda x: F.dropout(F.dropout(x, 0.5) * x, 0.5), x, use_reentrant=False)

    compiled = torch.compile(function, fullgraph=True)
    x = torch.rand(64, device=DEVICE).add_(1).requires_grad_()
    outs = [compiled(x), compiled(x)]
    assert not torch.equal(outs[0], outs[1])
    for out in reversed(outs):  # the later one first: the states of both are kept
        [[launches], [grad]] = gradients(out, [x])
        assert launches == 1
        same(grad, 4 * out.detach() ** 2 / x.detach(), **LOOSE)
    assert not reasons()


def test_a_checkpoint_in_eager_mode_draws_the_same():
    for reentrant in (False, True):
        x = torch.rand(64, device=DEVICE).add_(1).requires_grad_()
        out = checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=reentrant)
        out.backward(torch.ones_like(out))
        same(x.grad, 2 * out.detach() / x.detach(), **LOOSE)


def test_a_generator_that_takes_another_ones_state():
    one, other = torch.Generator(DEVICE), torch.Generator(DEVICE)
    one.manual_seed(3), other.manual_seed(4)
    want = torch.rand(3, generator=one, device=DEVICE)
    one.manual_seed(3)
    kept = other.graphsafe_get_state()
    other.graphsafe_set_state(one)
    same(torch.rand(3, generator=other, device=DEVICE), want)
    assert one.get_offset() == other.get_offset() != kept.get_offset()
    assert one.clone_state().get_offset() == one.get_offset()
    assert torch.tpu.default_generators[0].device.type == DEVICE
    assert len(torch.tpu.default_generators) == torch.tpu.device_count()


# -- torch.func --


LINEAR = torch.nn.Linear(4, 4)
TRANSFORMS = {
    "vmap of grad": lambda x: torch.func.vmap(torch.func.grad(lambda x: (x.sin() * x).sum()))(x),
    "jacrev": lambda x: torch.func.jacrev(lambda x: x.sin() * x)(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(lambda x: x.sin() * x)(x[0]),
    "hessian": lambda x: torch.func.hessian(lambda x: (x.sin() * x).sum())(x[0]),
    "jvp": lambda x: torch.func.jvp(lambda x: x.sin() * x, (x,), (x.cos(),)),
    "vjp": lambda x: torch.func.vjp(lambda x: x.sin() * x, x)[1](x),
    "vmap of cond": lambda x: torch.func.vmap(
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    )(x),
    "functional_call": lambda x: torch.func.functional_call(
        LINEAR, {"weight": x.t() @ x, "bias": x[0]}, (x,)
    ),
}


@pytest.mark.parametrize("name", slow_but(TRANSFORMS, "vmap of cond"))
def test_transforms(name):
    torch.manual_seed(0)
    check_native(TRANSFORMS[name], torch.randn(3, 4))


# -- Operators of the user's --


@torch.library.custom_op("control_flow::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("control_flow::on_host", mutates_args=())
def on_host(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.cpu().numpy() * 2).to(x.device)


@torch.library.custom_op("control_flow::halve", mutates_args={"x"})
def halve(x: torch.Tensor) -> None:
    x.div_(2)


@torch.library.triton_op("control_flow::plain", mutates_args={})
def plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


twice.register_fake(torch.empty_like)
on_host.register_fake(torch.empty_like)
twice.register_autograd(lambda context, grad: grad * 2)


def halved(x):
    y = x.sin()
    halve(y)
    return y


def test_custom_operators_are_part_of_the_program():
    check_native(lambda x: twice(x.sin()).cos(), torch.randn(4, requires_grad=True))
    check_native(halved, torch.randn(4))
    check_native(lambda x: plain(x) * 2, torch.randn(4))


def test_one_that_computes_on_the_host_runs_operator_by_operator(reasons):
    x = torch.randn(4)
    same(
        torch.compile(lambda x: on_host(x.sin()).cos())(x.to(DEVICE)), (x.sin() * 2).cos(), **LOOSE
    )
    assert any("value is asked for" in one for one in reasons())


def test_triton_is_refused():
    from torch._higher_order_ops import triton_kernel_wrap as wrap

    class Kernel:
        @staticmethod
        def fn():
            pass

    index = wrap.kernel_side_table.add_kernel(Kernel)
    arguments = {
        "kernel_idx": index,
        "constant_args_idx": 0,
        "grid": [(1, 1, 1)],
        "tma_descriptor_metadata": {},
        "kwargs": {"x": torch.ones(2, device=DEVICE)},
    }
    with pytest.raises(NotImplementedError, match="fn: Triton has no compiler for tpu; write it"):
        wrap.triton_kernel_wrapper_mutation(**arguments)
    with pytest.raises(NotImplementedError, match="Triton has no compiler for tpu"):
        wrap.triton_kernel_wrapper_functional(**arguments, tensors_to_clone=["x"])


SIZED = {
    "cond": lambda x, w: torch.cond(
        x.mean() > 0, lambda x, w: (x @ w).sum(), lambda x, w: (x @ w).cos().sum(), (x, w)
    ),
    "while_loop": lambda x, w: while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (x.new_zeros((), dtype=torch.int64), x @ w)
    )[1],
    "scan": lambda x, w: scan(lambda c, y: (c + y @ w, c.sin()), x[0] * 0, x)[1],
    "map": lambda x, w: hop_map(lambda y, w: (y @ w).sin(), x, w),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(SIZED, "scan"))
def test_sizes_that_vary_around_branches_and_loops(name):
    """Each size is a program then, forward and backward."""
    function = torch.compile(SIZED[name], fullgraph=True, dynamic=True)
    for size in (3, 6):
        x, w = torch.randn(size, 4), torch.randn(4, 4, requires_grad=name != "while_loop")
        expected = SIZED[name](x, w)
        there = move((x, w), DEVICE)
        actual = function(*there)
        same(actual, expected, **LOOSE)
        if w.requires_grad:
            found = torch.autograd.grad(actual.sum(), there[1])
            same(found, torch.autograd.grad(expected.sum(), w), **LOOSE)
