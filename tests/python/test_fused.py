"""Fused mode: the same values as in other modes, and no new programs once a loop has settled."""

import contextlib
import gc
import inspect
import random
import re
import time
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from support import only_tpu, python, slow_but
from torch import nn

import torch_tpu._C as glue

pytestmark = only_tpu
MODES = ["strict", "fused"]


@pytest.fixture(autouse=True)
def fused(known_state):
    torch.tpu.eager_mode = "fused"
    yield
    torch.tpu.eager_mode = "strict"
    torch.tpu.synchronize()


def counted(*names):
    metrics = torch.tpu.metrics()
    return [metrics[name] for name in names]


def asked():
    """Programs asked for so far, whether they were new or not."""
    return sum(counted("programs", "program_hits"))


# -- The same losses as on the CPU --


def perceptron():
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


def convolutions():
    return nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)), nn.Conv2d(2, 4, 2, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        tokens = x.abs().mul(3).long().clamp(max=7)
        return self.last(self.layer(self.embedding(tokens)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(2, 8, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        return self.last(self.rnn(x.unflatten(1, (4, 2)))[0][:, -1])


MODELS = {
    "perceptron": (perceptron, lambda p: torch.optim.AdamW(p, lr=1e-2)),
    "convolutions": (convolutions, lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9)),
    "decoder": (Decoder, lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False)),
    "recurrent": (Recurrent, lambda p: torch.optim.RMSprop(p, lr=1e-3)),
}


def losses(make, optimize, device, steps=8):
    torch.manual_seed(7)
    model = make().to(device)
    optimizer = optimize(model.parameters())
    data = [(torch.randn(6, 8), torch.randint(4, (6,))) for _ in range(steps)]
    kept = []
    for x, y in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        kept.append(loss.detach())
    return torch.stack(kept).cpu()


@pytest.mark.parametrize("name", slow_but(MODELS, "perceptron", "convolutions"))
def test_losses_are_the_cpu_s(name):
    torch.testing.assert_close(
        losses(*MODELS[name], "tpu"), losses(*MODELS[name], "cpu"), rtol=1e-4, atol=1e-5
    )


def test_losses_are_strict_s():
    fused = losses(*MODELS["perceptron"], "tpu")
    with torch.tpu.set_eager_mode("strict"):
        strict = losses(*MODELS["perceptron"], "tpu")
    torch.testing.assert_close(fused, strict, rtol=1e-5, atol=1e-6)


# -- Loops settle --

OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD momentum": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 1e-3},
    "Adam for-loop": {"lr": 1e-3, "foreach": False},
    "AdamW": {"lr": 1e-3},
    "AdamW fused": {"lr": 1e-3, "fused": True},
    "RMSprop": {"lr": 1e-3},
    "Adagrad": {"lr": 1e-2},
}


def iterations(optimizer_name, period, parts=1, clip=False, schedule=True):
    """Yields after each iteration of a training loop that reads its loss every `period` ones."""
    model = perceptron().to("tpu")
    kind = getattr(torch.optim, optimizer_name.split()[0])
    optimizer = kind(model.parameters(), **OPTIMIZERS[optimizer_name])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    i = 0
    while True:
        optimizer.zero_grad()
        for _ in range(parts):
            x, y = torch.randn(6, 8).to("tpu"), torch.randint(4, (6,)).to("tpu")
            loss = F.cross_entropy(model(x), y)
            loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if schedule:
            scheduler.step()
        if period and i % period == 0:
            loss.item()
        i += 1
        yield


def settles(steps, warmup=8, more=20):
    """Chunks have programs of their own from the fourth time on."""
    for _ in range(warmup):
        next(steps)
    before = asked()
    for _ in range(more):
        next(steps)
    assert asked() == before, torch.tpu.explain(asked() - before)


@pytest.mark.parametrize("name", slow_but(OPTIMIZERS, "SGD momentum", "Adam", "AdamW fused"))
def test_every_optimizer_settles(name):
    settles(iterations(name, period=1))


@pytest.mark.parametrize("period", [0, 1, 2, 7, 10])
def test_every_pattern_of_reads_settles(period):
    settles(iterations("AdamW", period), warmup=8 + 3 * period)


@pytest.mark.parametrize("period", slow_but([0, 1, 10], 1))
def test_accumulation_and_clipping_settle(period):
    settles(iterations("SGD momentum", period, parts=3, clip=True), warmup=8 + 3 * period)


def test_a_settled_loop_does_not_care_where_it_began():
    settles(iterations("SGD", 0, schedule=False), warmup=12)
    x = torch.ones(3, device="tpu")
    for _ in range(5):
        x = x * 1.5
    steps = iterations("SGD", 0, schedule=False)
    for _ in range(5):
        next(steps)
    before = counted("programs")
    for _ in range(10):
        next(steps)
    assert counted("programs") == before


def test_a_loop_in_place_settles():
    def steps():
        state = torch.linspace(-1, 1, 36, device="tpu").reshape(6, 6)
        while True:
            state[1:-1, 1:-1].add_(state[:-2, 1:-1], alpha=0.5)
            state.t()[0].mul_(0.5)
            state.clamp_(-1, 1)
            yield

    settles(steps(), warmup=60, more=40)


# -- Few programs, and nothing that nobody needs --


def test_first_step_of_an_optimizer_makes_the_programs_of_the_next():
    """Moments begin as equal zeros, which are no operands of their own kind."""
    weights = [torch.ones(6, 3, device="tpu"), torch.ones(6, 3, device="tpu")]
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    torch.tpu.synchronize()
    new = []
    for i in range(5):
        grads = [w * (i + 2) for w in weights]
        torch._foreach_lerp_(first, grads, 0.1)
        torch._foreach_addcmul_(second, grads, grads, 0.5)
        torch._foreach_addcdiv_(weights, first, second, -0.01)
        before = asked()
        torch.tpu.synchronize()
        new.append(asked() - before)
    assert new[1:] == [0, 0, 1, 0]  # that of the chunk, which comes often


def test_storages_that_share_zeros_keep_them():
    a, b = torch.zeros(8, device="tpu"), torch.zeros(8, device="tpu")
    torch.tpu.synchronize()
    a.add_(1)
    torch.tpu.synchronize()
    assert b.tolist() == [0.0] * 8
    assert torch.zeros(8, device="tpu").tolist() == [0.0] * 8
    assert a.tolist() == [1.0] * 8


def test_zeros_of_any_layout_are_values():
    """As those of an optimizer's moments, whose weights are [n, m, 1, 1] or transposed."""
    weights = [torch.randn(8, 32, 1, 1, device="tpu"), torch.randn(5, 6, 7, device="tpu").mT]
    torch.tpu.synchronize()
    before = asked()
    zeros = [torch.zeros_like(w, memory_format=torch.preserve_format) for w in weights]
    torch.tpu.synchronize()
    assert asked() == before
    assert [z.stride() for z in zeros] == [torch.zeros_like(w.cpu()).stride() for w in weights]
    assert [z.abs().sum().item() for z in zeros] == [0, 0]


@pytest.mark.tier("chunks")
def test_equal_operators_make_few_programs():
    x = torch.zeros(5, 7, device="tpu")
    x.tolist()
    before, launches = asked(), counted("launches")[0]
    for _ in range(500):
        x = x + 1
    assert x.tolist() == [[500.0] * 7] * 5
    assert asked() - before <= 4
    assert counted("launches")[0] - launches < 60


def test_dead_results_are_not_computed():
    x = torch.randn(64, 64, device="tpu")
    x.tolist()
    torch.tpu.synchronize()
    launches, *bytes_before = counted("launches", "bytes_held")
    for _ in range(10):
        y = (x @ x).softmax(-1)
        del y
    torch.tpu.synchronize()
    assert counted("launches", "bytes_held") == [launches, *bytes_before]


def test_only_what_lives_is_written():
    x = torch.ones(1000, device="tpu")
    x.sum().item()
    torch.tpu.reset_peak_memory_stats()
    start = torch.tpu.memory_reserved()
    y = x
    for _ in range(20):
        y = y * 1.01 + 0.5
    y.sum().item()
    assert torch.tpu.max_memory_reserved() - start < 3 * 4096
    assert counted("bytes_held")[0] - start == 4000


def test_memory_comes_back():
    def work():
        x = torch.ones(100, device="tpu", requires_grad=True)
        for _ in range(3):
            (x * 2).relu().sum().backward()
        return x.grad.sum().item()

    work()
    gc.collect()
    torch.tpu.synchronize()
    start = torch.tpu.memory_reserved()
    for _ in range(5):
        assert work() == 600
    torch.tpu.synchronize()
    assert torch.tpu.memory_reserved() == start


# -- Writes through views, inside a chunk --


def on_both(function):
    torch.testing.assert_close(function("tpu").cpu(), function("cpu"), rtol=1e-5, atol=1e-6)


def test_views_see_writes_and_writes_reach_views():
    def run(device):
        x = torch.arange(24.0, device=device).reshape(4, 6)
        row, column, block = x[1], x[:, 2], x[1:3, 1:4]
        row.mul_(2)
        column.add_(row[2].clone())
        block.copy_(block.flip(1))
        before = x.clone()
        x.zero_()
        x.t()[3].fill_(1)
        x.diagonal().add_(before[:, 0])
        return torch.cat([x, before, row[None] + block[0].sum()])

    on_both(run)


def test_an_old_value_survives_its_overwriting():
    def run(device):
        x = torch.ones(8, device=device)
        y = x * 3
        z = y.clone()
        y.add_(x)
        w = y * 2
        y.zero_()
        x.sub_(z)
        return torch.stack([x, y, z, w])

    on_both(run)


def test_chains_of_writes_across_chunks():
    def run(device):
        x = torch.zeros(6, 6, device=device)
        for i in range(120):
            x[i % 6, (i * 5) % 6] += i
            x[:, i % 6].mul_(0.9)
        return x

    on_both(run)


def test_shared_storage_and_resizing():
    def run(device):
        x = torch.arange(6.0, device=device)
        y = x.view(2, 3)
        x += 1
        x.resize_(9)
        x[6:] = 5
        y.mul_(2)
        return x

    on_both(run)


@pytest.mark.slow
def test_random_numbers_are_strict_s():
    def run():
        torch.manual_seed(11)
        x = torch.randn(50, device="tpu")
        for _ in range(30):
            x = F.dropout(x, 0.1) + torch.rand_like(x)
        return x.cpu()

    fused = run()
    with torch.tpu.set_eager_mode("strict"):
        torch.testing.assert_close(fused, run())


def test_a_list_of_small_tensors():
    tensors = [torch.full((3,), float(i), device="tpu") for i in range(300)]
    tensors = [t * 2 + 1 for t in tensors]
    assert torch.stack(tensors)[:, 0].tolist() == [2.0 * i + 1 for i in range(300)]


# -- Modes in turn, errors --


def test_modes_change_in_mid_stream():
    x = torch.ones(4, device="tpu")
    y = x[1:]
    for mode in ("fused", "strict", "fused", "debug", "fused"):
        torch.tpu.eager_mode = mode
        x = x * 2
        y.add_(1)
    assert x.tolist() == [32.0] * 4
    assert y.tolist() == [6.0] * 3


def test_an_error_in_an_argument_leaves_the_chunk_alone():
    x = torch.ones(3, device="tpu") * 2
    with pytest.raises(RuntimeError, match="must match"):
        x + torch.ones(4, device="tpu")
    with pytest.raises(IndexError):
        x.sum(5)
    x += 1
    assert x.tolist() == [3.0] * 3


# -- A chunk that fails is run again operator by operator --


def line_of(function, text):
    """The line of the function that contains the text, as errors name it."""
    lines, first = inspect.getsourcelines(function)
    number = next(i for i, line in enumerate(lines) if text in line)
    return f"test_fused.py:{first + number} in {function.__name__}"


@pytest.mark.tier("pieces")
def test_out_of_memory_names_the_line_and_the_largest_tensors():
    (replays,) = counted("replays")
    large = torch.ones(3000, 1000).to("tpu")

    def run():
        a = torch.arange(4.0, device="tpu") * 3
        b = a - 1
        c = torch.empty(2**42, device="tpu") + b[0]
        return b, c, a.sum() + b

    b, c, d = run()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.tpu.synchronize()
    text = str(caught.value)
    assert text.startswith(f"aten::add.Tensor, called at {__file__[: -len('test_fused.py')]}")
    assert line_of(run, "2**42") in text.splitlines()[0]
    made = line_of(test_out_of_memory_names_the_line_and_the_largest_tensors, "large =")
    assert "The program needs " in text and "16.0 TiB of results" in text
    assert any("11.4 MiB, f32[3000,1000], made at" in s and made in s for s in text.splitlines())
    assert counted("replays") == [replays + 1]
    assert b.tolist() == [-1.0, 2.0, 5.0, 8.0]
    assert d.tolist() == [17.0, 20.0, 23.0, 26.0]
    with pytest.raises(torch.OutOfMemoryError):
        c[:1].tolist()
    torch.tpu.synchronize()
    assert large.sum().item() == 3e6


@pytest.mark.tier("chunks")
def test_replays_compute_what_the_cpu_does():
    """A program that cannot be built for want of memory is replaced by its operators."""

    def run(device, x, y):
        y = y.clone()
        z = (x @ y).tanh() * 0.5
        y[1:3].mul_(z[1:3] + 2)
        y.t()[0].add_(z.sum(1))
        w = F.softmax(y, 1)
        y -= w * 3
        return torch.stack([y, z.relu_(), w])

    (replays,) = counted("replays")
    nth, refused, happened = 1, 0, True
    while happened:
        torch.manual_seed(nth)
        x, y = torch.randn(5, 5), torch.randn(5, 5)
        inputs = x.to("tpu"), y.to("tpu")
        run("tpu", *inputs).cpu()  # every operator is known; and so is, in the end, the program
        torch.tpu.synchronize()
        extra = torch.zeros(nth + 1, device="tpu")  # so that the next chunk is a new one
        glue._fail_allocation_at(nth, False)
        try:
            result = run("tpu", *inputs)
            extra += 1
            got = result.cpu()
            torch.testing.assert_close(got, run("cpu", x, y), rtol=1e-4, atol=1e-5)
        except torch.OutOfMemoryError:
            refused += 1
        finally:
            happened = glue._allocation_count() >= nth
            glue._fail_allocation_at(0, False)
        del extra
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.tpu.synchronize()
        nth += max(1, nth // 12)
    assert counted("replays")[0] - replays > 5
    assert refused > 5


def test_host_operators_in_mid_stream():
    x = torch.tensor([3.0, -1.0, 2.0], device="tpu")
    y = x * 2
    picked = y[y > 0]
    z = picked + 1
    assert z.tolist() == [7.0, 5.0]


def test_backward_through_chunks_and_hooks():
    def run(device):
        torch.manual_seed(3)
        x = torch.randn(4, 5).to(device).requires_grad_()
        seen = []
        y = x
        for i in range(40):
            y = torch.tanh(y + 0.1 * i) * 1.1
            if i == 20:
                y.register_hook(lambda g: seen.append(g.norm()))
        y.sum().backward()
        return torch.cat([x.grad.flatten(), seen[0][None]])

    on_both(run)


def test_threads_record_into_one_stream():
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        x = torch.full((5,), float(seed), device="tpu")
        for _ in range(60):
            x = x + 1
        return x.sum().item()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [5.0 * (i + 60) for i in range(8)]


def test_events_and_synchronisation_end_a_chunk():
    x = torch.ones(3, device="tpu") + 1
    event = torch.tpu.Event()
    event.record()
    event.synchronize()
    assert event.query()
    y = x + 1
    torch.tpu.synchronize()
    assert y.tolist() == [3.0] * 3


# -- Chunks that follow one another again and again are fused --


class Layers:
    """A loop body of many different operators, on which the device is slower than Python."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.weights = [torch.randn(256, 256).div(16).to(device) for _ in range(30)]
        self.x = torch.randn(256, 256).to(device)

    def __call__(self, read_at=None):
        x = self.x
        for i, weight in enumerate(self.weights):
            x = torch.tanh(x @ weight)
            for k in range(i * i % 7):
                x = x * 1.01 + 0.1 if k % 2 else x - 0.1 * k
            if i == read_at:
                x[0, 0].item()
        self.x = x.clamp(-0.9, 0.9)


def fused_after(layers, iterations, read_at=None):
    """The chunks that were fused meanwhile."""
    before = counted("fused")[0]
    for _ in range(iterations):
        layers(read_at)
    torch.tpu.synchronize()
    return counted("fused")[0] - before


@pytest.mark.slow  # it waits for what the background compiles
def test_recurring_chunks_are_fused_and_compute_the_same():
    layers, reference = Layers("tpu"), Layers("cpu")
    deadline, fused = time.monotonic() + 120, 0
    while fused == 0 and time.monotonic() < deadline:  # until the fused programs are there
        fused = fused_after(layers, 8)
        for _ in range(8):
            reference()
        time.sleep(0.5)  # the background compiles when the processor is left to it
        torch.testing.assert_close(layers.x.cpu(), reference.x, rtol=1e-4, atol=1e-4)
    assert fused > 0
    launches = counted("launches")[0]
    for read_at in (11, None, 23, None):  # groups that end before their time
        fused_after(layers, 4, read_at)
        for _ in range(4):
            reference()
        torch.testing.assert_close(layers.x.cpu(), reference.x, rtol=1e-4, atol=1e-4)
    assert counted("launches")[0] > launches


def test_joining_asks_for_nothing_later():
    layers = Layers("tpu")

    def steps():
        while True:
            layers()
            yield

    settles(steps(), more=60)


def test_nothing_is_fused_under_deterministic_algorithms():
    results = []
    for _ in range(2):
        layers = Layers("tpu")
        torch.use_deterministic_algorithms(True)
        try:
            assert sum(fused_after(layers, 8) for _ in range(4)) == 0
        finally:
            torch.use_deterministic_algorithms(False)
        results.append(layers.x.cpu())
    assert torch.equal(*results)


def test_no_recompile_lets_fused_chunks_run():
    layers = Layers("tpu")
    fused_after(layers, 16)
    with torch.tpu.no_recompile():
        fused_after(layers, 16)


def random_step(rng):
    """An operator on some of the tensors; it brings them nearer to each other, so errors fade."""
    a, b, c = (rng.randrange(5) for _ in range(3))
    rows = slice(rng.randrange(32), rng.randrange(33, 64))
    factor = rng.choice([0.5, 0.7, 0.9])

    def apply(tensors):
        match kind:
            case "product":
                tensors[a] = torch.tanh(tensors[b] @ tensors[c]) * 0.5
            case "mean":
                tensors[a] = tensors[b] * factor + tensors[c] * (1 - factor)
            case "add in place":
                tensors[a].mul_(factor).add_(tensors[b].clone(), alpha=1 - factor)
            case "rows in place":
                tensors[a][rows].mul_(factor)
            case "view":
                tensors[a] = tensors[b].t()
            case "choose":
                tensors[a] = torch.maximum(tensors[b], tensors[c])

    kinds = ["product", "mean", "add in place", "rows in place", "view", "choose"]
    kind = rng.choice(kinds)
    return apply


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_loops_compute_the_same_fused_or_not(seed):
    rng = random.Random(seed)
    body = [random_step(rng) for _ in range(150)]
    generator = torch.Generator().manual_seed(seed)
    start = [torch.randn(64, 64, generator=generator) / 8 for _ in range(5)]
    tensors, reference = [x.to("tpu") for x in start], [x.clone() for x in start]

    def run(lengths):
        for work in (tensors, reference):
            for length in lengths:
                for step in body[:length]:
                    step(work)

    before, deadline = counted("fused"), time.monotonic() + 15
    while counted("fused") == before and time.monotonic() < deadline:
        run([150] * 30)
        torch.tpu.synchronize()
    for _ in range(4):  # the loop goes otherwise now and then
        run([rng.choice([150, 150, 150, rng.randrange(150)]) for _ in range(8)])
        tensors[0][0, 0].item()
    for i, (x, y) in enumerate(zip(tensors, reference, strict=True)):
        close = partial(torch.testing.assert_close, msg=f"seed {seed}, tensor {i}")
        close(x.cpu(), y, rtol=1e-3, atol=1e-4)


COPIES = re.compile(r"= f32\[(\d+)(?:,(\d+))?\]\S* copy\(")
BUCKET = """
import torch
shapes = [(128,), (384, 128), (96,), (64, 512), (512, 64)] * 2
gradients = [torch.full(shape, 2.0, device="tpu") for shape in shapes]
bucket = torch.zeros(sum(one.numel() for one in gradients), device="tpu")
with torch.tpu.set_eager_mode("fused"):
    at = 0
    for one in gradients:
        torch.mul(one, 0.5, out=bucket[at : at + one.numel()].view(one.shape))
        at += one.numel()
    print((bucket == 1).all().item(), bucket.numel())
"""


@pytest.mark.cpu_plugin("its compiler's text is read")
def test_buckets_are_updated_in_place(tmp_path):
    """XLA's CPU compiler copies an array between updates that see it in different dims."""
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    environment = {"XLA_FLAGS": flags, "TORCH_TPU_CACHE": "off", "TORCH_TPU_FUSED_TIER": "chunks"}
    status, out, errors = python(BUCKET, **environment)
    assert status == 0, errors
    right, numel = out.split()
    assert right == "True"
    texts = [one.read_text() for one in tmp_path.glob("*cpu_after_optimizations.txt")]
    text = max(texts, key=lambda one: one.count("dynamic-update-slice"))
    assert text.count("dynamic-update-slice(") >= 9
    sizes = [int(rows) * int(more or 1) for rows, more in COPIES.findall(text)]
    assert int(numel) not in sizes
