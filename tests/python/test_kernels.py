"""Programs that order PyTorch's kernels until code for their operators is there."""

import os
import threading

import pytest
import torch
from support import DEVICE, programs_of, python, slow_but
from torch import nn

pytestmark = [
    pytest.mark.skipif(DEVICE != "tpu", reason="about Fused mode"),
    pytest.mark.skipif(
        bool(os.environ.get("TORCH_TPU_PLUGIN")), reason="about the CPU plugin's programs"
    ),
    pytest.mark.tier("kernels"),
]


@pytest.fixture(autouse=True)
def fused():
    with torch.tpu.set_eager_mode("fused"):
        yield


def ordered(fn):
    """Returns fn's result, and how many operators were ordered meanwhile."""
    torch.tpu.synchronize()
    before = torch.tpu.metrics()["tiers"]["kernels"]
    result = fn()
    torch.tpu.synchronize()
    return result, torch.tpu.metrics()["tiers"]["kernels"] - before


def image(device, dtype=torch.float32):
    return torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8).to(device, dtype)


def of_views(device):
    x = torch.arange(24.0).reshape(4, 6).to(device)
    x[1:3, ::2] *= 3
    x.t()[2].add_(x[0, 1], alpha=2)
    x[:, 1:].copy_(x[:, :-1].clone())
    return x, x.flip(0)[1:], torch.cat([x, x[:0], x[1:2]])


def of_numbers(device):
    x = torch.tensor([1, 2, -3], dtype=torch.int16).to(device)
    half = torch.tensor([0.1, -2.5, 3.25], dtype=torch.bfloat16).to(device)
    one = torch.tensor(2.5)
    return x * 2, x * 1.5, half + 0.3, half * x, half * one, x > 0, -half, x.bool().logical_not()


def of_reductions(device):
    x = image(device)
    return x.mean((0, 2)), x.amax(1), x.var(0), x.softmax(1), x.sum(dtype=torch.float64), x.all(2)


def of_lists(device):
    lists = [[torch.full((i + 1, 2), float(i + j)).to(device) for i in range(3)] for j in range(2)]
    torch._foreach_addcmul_(lists[0], lists[1], lists[1], [0.5, 2.0, 3.0])
    torch._foreach_mul_(lists[0], 0.25)
    return torch._foreach_add(lists[0], lists[1], alpha=2), torch._foreach_norm(lists[0])


def of_layers(device):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    ).to(device)
    out = net(image(device))
    nn.functional.cross_entropy(out, torch.tensor([1, 3]).to(device)).backward()
    return out, [p.grad for p in net.parameters()], net[1].running_var


def of_indices(device):
    table = torch.arange(20.0).reshape(5, 4).to(device).requires_grad_()
    at = torch.tensor([[1, 4], [2, 1]]).to(device)
    picked = nn.functional.embedding(at, table, padding_idx=2)
    picked.square().sum().backward()
    with torch.no_grad():
        return picked, table.grad, table.gather(1, at - 1), table[at[0], at[1]], table[at]


def of_results(device):
    x, out = image(device), torch.empty(2, 8).to(device)
    torch.sum(x, (1, 2), out=out)
    made = (
        torch.ones(3, device=device),
        torch.arange(1, 7, 2, device=device),
        torch.eye(2, device=device),
    )
    return out, x.new_full((2,), 7), *made


@pytest.mark.parametrize(
    "work",
    [of_views, of_numbers, of_reductions, of_lists, of_layers, of_indices, of_results],
    ids=lambda work: work.__name__,
)
def test_what_is_ordered_is_the_cpu_s(work):
    got, count = ordered(lambda: work("tpu"))
    assert count >= 4
    torch.testing.assert_close(
        torch.utils._pytree.tree_map(lambda x: x.detach().cpu(), got),
        torch.utils._pytree.tree_map(torch.Tensor.detach, work("cpu")),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_draws_the_numbers_of_its_row(dtype):
    x = torch.linspace(-3, 3, 1001).to("tpu", dtype)

    def dropped(mode):
        torch.manual_seed(5)
        with torch.tpu.set_eager_mode(mode):
            return [nn.functional.dropout(x, p).cpu() for p in (0.1, 0.5, 1.0)]

    got, count = ordered(lambda: dropped("fused"))
    assert count >= 3
    for one, expected in zip(got, dropped("strict"), strict=True):
        assert torch.equal(one, expected)


def attended(device, lead, heads, mask, options):
    torch.manual_seed(3)
    rows, columns, size = 6, 5, 4
    q = torch.randn(*lead, heads, rows, size)
    k, v = torch.randn(2, *lead, 2, columns, size)
    q, k, v = (one.to(device).requires_grad_() for one in (q, k, v))
    if mask is not None:
        mask = mask(rows, columns).to(device)
        mask.requires_grad_(mask.is_floating_point())
    attention = nn.functional.scaled_dot_product_attention
    y = attention(q, k, v, attn_mask=mask, enable_gqa=heads > 2, **options)
    weights = torch.linspace(0, 1, y.numel()).reshape(y.shape).to(device)
    (y * weights).sum().backward()
    grads = [one.grad for one in (q, k, v)] + ([mask.grad] if mask is not None else [])
    return [y.detach().cpu(), *(one.cpu() for one in grads if one is not None)]


MASKS = {
    "no mask": None,
    "of booleans": lambda rows, columns: (
        torch.arange(rows * columns).reshape(rows, columns) % 5 > 1
    ),
    "of a row": lambda rows, columns: torch.linspace(-1, 1, columns)[None],
    "of nothing": lambda rows, columns: (torch.arange(rows) > 0)[:, None].expand(rows, columns),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"dropout_p": 0.4}], ids=str)
@pytest.mark.parametrize("heads", [2, 6], ids=["", "grouped"])
def test_attention(heads, options, mask):
    """Its numbers and its draws are its row's."""
    for lead, causal in [((), False), ((3,), mask == "no mask")]:
        case = lead, heads, MASKS[mask], {**options, "is_causal": causal}
        got, count = ordered(lambda case=case: attended("tpu", *case))
        assert count >= 4
        with torch.tpu.set_eager_mode("strict"):
            torch.testing.assert_close(got, attended("tpu", *case))


@pytest.mark.slow  # 3 s
def test_attention_of_many_rows():
    """They are computed in blocks."""
    q = torch.randn(1, 2, 4100, 4)

    def attend(device):
        x = q.to(device).requires_grad_()
        nn.functional.scaled_dot_product_attention(x, x, x).square().sum().backward()
        return x.grad.cpu()

    got, _ = ordered(lambda: attend("tpu"))
    torch.testing.assert_close(got, attend("cpu"), rtol=1e-4, atol=1e-5)


def test_what_has_room_for_more_is_handed_over_as_pytorch_has_it():
    """Kernels for gradients take for granted that what the forward pass saved lies dense."""

    def train(device, length):
        table = torch.linspace(-1, 1, 40).reshape(5, 8).to(device).requires_grad_()
        ids = torch.arange(3 * length).reshape(3, length).to(device) % 5
        x = nn.functional.embedding(ids, table).sin()
        nn.functional.layer_norm(x, (8,)).pow(3).sum().backward()
        return table.grad.cpu()

    for length in (5, 9, 7, 12, 6):
        got, _ = ordered(lambda length=length: train("tpu", length))
        torch.testing.assert_close(got, train("cpu", length), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("index", [-7, 5, 2**40])
def test_an_index_out_of_range_is_no_other_than_without_orders(index):
    """PyTorch's kernels raise, or would write elsewhere."""
    at = torch.tensor([1, index]).to("tpu")
    grad = torch.ones(2, 3).to("tpu")

    def work():
        table = torch.arange(15.0).reshape(5, 3).to("tpu")
        logp = torch.zeros(2, 5).to("tpu")
        weight = torch.ones(()).to("tpu")
        return [
            (nn.functional.embedding(at, table) + 1).cpu(),
            (torch.ops.aten.embedding_dense_backward(grad, at, 5, -1, False) + 1).cpu(),
            (torch.ops.aten.nll_loss_backward(weight, logp, at, None, 1, -100, weight) + 1).cpu(),
        ]

    for _ in range(2):
        got = work()
        with torch.tpu.set_eager_mode("strict"):
            expected = work()
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_a_kernel_that_fails_is_not_asked_again():
    """The CPU refuses to divide by a whole zero, CUDA does not, and so neither do we."""
    x, zero = torch.tensor([7, 8]).to("tpu"), torch.tensor([0, 2]).to("tpu")

    def work():
        y = x * 3
        y -= 1
        return (y // zero + y).tolist()

    before = torch.tpu.metrics()["replays"]
    first = work()
    assert torch.tpu.metrics()["replays"] == before + 1
    assert [work() for _ in range(3)] == [first] * 3
    assert torch.tpu.metrics()["replays"] == before + 1
    assert first[1] == 23 // 2 + 23


@pytest.mark.tier("auto")
def test_ever_new_chunks_order_nothing_in_the_end():
    """Else each of many that never come again would have a program."""
    x = torch.rand(7, 7).to("tpu")
    operators = [lambda t: t @ t, lambda t: t.cumsum(0), lambda t: t.softmax(0)]

    orders = [[i, j, k, m] for i in range(3) for j in range(3) for k in range(3) for m in range(3)]
    counts = [programs_of(operators, x, order) for order in orders]
    assert sum(counts[60:]) <= 3


@pytest.mark.tier("auto")
def test_loops_of_any_length_order_the_same_programs():
    x = torch.ones(4, device="tpu")

    def compiled(rounds):
        before = torch.tpu.metrics()["compiles"]
        y = x
        for i in range(rounds):
            y = (y * (0.5 + i) + 0.1).tanh()
        torch.tpu.synchronize()
        return torch.tpu.metrics()["compiles"] - before

    counts = [compiled(rounds) for rounds in (3, 10, 7, 12, 33, 50, 64, 5, 6, 90)]
    assert sum(counts) <= 4 and sum(counts[5:]) == 0


def test_what_changes_its_size():
    """A cache that grows has room for more, of which kernels see what counts."""

    def grow(device):
        cache, seen = torch.ones(2, 1, 4).to(device), []
        for i in range(9):
            cache = torch.cat([cache, torch.full((2, 1, 4), float(i)).to(device)], 1)
            weights = (cache @ cache.mT).softmax(-1)
            seen.append((weights @ cache * 2).sum((1, 2)).cpu())
        return seen

    got, count = ordered(lambda: grow("tpu"))
    assert count >= 40
    torch.testing.assert_close(got, grow("cpu"))


def of_parts(ids, x):
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = ids[:, 1:]
    written = x * 2
    written[:, 1:] += x[:, :-1]
    return labels, written, x[:, 1:] * x[:, :-1], x[:, 1:].sum(1)


def test_parts_of_texts():
    """What leaves out a word is seen in a storage that is longer than the real one."""
    for length in (5, 7, 9, 12, 20, 33, 50):
        generator = torch.Generator().manual_seed(length)
        ids = torch.randint(0, 9, (3, length), generator=generator)
        x = torch.randn(3, length, 4, generator=generator)
        got, _ = ordered(lambda ids=ids, x=x: of_parts(ids.to("tpu"), x.to("tpu")))
        torch.testing.assert_close([one.cpu() for one in got], list(of_parts(ids, x)))


def test_a_kernel_with_tensors_that_are_not_given():
    def train(device):
        torch.manual_seed(0)
        net = nn.Linear(4, 3).to(device)
        optimizer = torch.optim.AdamW(net.parameters(), fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 4).to(device)).square().sum().backward()
            optimizer.step()
        return [p.detach().cpu() for p in net.parameters()]

    before = torch.tpu.metrics()["replays"]
    got, _ = ordered(lambda: train("tpu"))
    torch.testing.assert_close(got, train("cpu"))
    assert torch.tpu.metrics()["replays"] == before


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD])
def test_parameters_that_lie_apart(make):
    """The CPU's fused optimizers walk over what lies between them."""

    def train(device, fused):
        all_of_it = torch.arange(24.0).reshape(4, 6).to(device)
        parts = [all_of_it[:, ::2].detach().requires_grad_()]
        parts.append(torch.arange(12.0).reshape(3, 4).to(device).t().requires_grad_())
        for part in parts:
            part.grad = (torch.arange(12.0).reshape(4, 3) + 1).to(device)
        make(parts, lr=0.1, fused=fused).step()
        return [one.detach().cpu() for one in (all_of_it, *parts)]

    torch.testing.assert_close(train("tpu", True), train("cpu", False))


def test_the_least_integer_by_minus_one():
    """On the CPU it ends the process."""
    least = torch.iinfo(torch.int64).min
    x = torch.tensor([least, -7, 5]).to("tpu") * 1
    by = torch.tensor([-1, 2, -2]).to("tpu") * 1
    quotients = torch.div(x, by, rounding_mode="trunc"), torch.div(x, -1, rounding_mode="trunc")
    assert [one.tolist() for one in quotients] == [[least, -3, -2], [least, 7, -5]]
    assert torch.lcm(x, by)[1:].tolist() == [14, 10]


def test_a_kernel_does_not_warn():
    """Its Meta kernel has done so, and this one would print to stderr."""
    script = """
import warnings, torch
warnings.simplefilter("ignore")
print((torch.ones(1, 3, device="tpu") * 2).var(0).isnan().all().item())
"""
    assert python(script, TORCH_TPU_FUSED_TIER="kernels") == (0, "True\n", "")


def test_subnormals_are_flushed_as_by_other_programs():
    x = torch.full((9,), 1e-39).to("tpu")
    got, count = ordered(lambda: [x * 2, x.sign(), x.bfloat16().sqrt()])
    assert count >= 4
    assert not any(one.any() for one in got)


def test_threads():
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(4)]
    x = torch.rand(5, 8)
    expected = [net(x).detach() for net in nets]
    failures = []

    def work(net, result):
        for _ in range(20):
            if not torch.allclose(net(x.to("tpu")).detach().cpu(), result, atol=1e-5):
                failures.append(net)

    threads = [
        threading.Thread(target=work, args=(net.to("tpu"), result))
        for net, result in zip(nets, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("kernels", slow_but(["host", "xla"], "xla"))
def test_they_can_be_left_out(kernels):
    script = """
import torch
x = torch.rand(3, 3, device="tpu")
torch.tpu.synchronize()
((x @ x).softmax(0) @ x).tolist()
print(torch.tpu.metrics()["tiers"]["kernels"] > 0)
"""
    environment = {"TORCH_TPU_KERNELS": kernels, "TORCH_TPU_EAGER_MODE": "fused"}
    status, out, err = python(script, **environment)
    assert (status, out.split()) == (0, [str(kernels == "host")]), err
