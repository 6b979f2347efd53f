"""Recurrent networks: layers as loops, packed sequences, numbers of steps that change."""

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, alone, counted, only_tpu, same, slow_but
from torch import nn
from torch.nn.utils import rnn

pytestmark = only_tpu

FEATURES, SIZE, N, STEPS = 5, 6, 3, 4
KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
}
OPTIONS = {
    "one layer": {},
    "two": {"num_layers": 2},
    "both ways": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no biases": {"bias": False, "bidirectional": True},
}


def states_of(module, n=N):
    """The states that a module is given first, as a list."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    each = 2 if isinstance(module, nn.LSTM) else 1
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(count, n, SIZE, generator=generator).double() for _ in range(each)]


def run(module, x, states, device, loss=None):
    """What a copy returns, and the gradients of all that it takes."""
    module = copy.deepcopy(module).to(device)
    dtype = next(module.parameters()).dtype
    inputs = [one.to(dtype).to(device).detach().requires_grad_() for one in (x, *states)]
    first = inputs[1:] if len(states) == 2 else inputs[1] if states else None
    out, last = module(inputs[0], tuple(first) if len(states) == 2 else first)
    outs = [out, *(last if isinstance(last, tuple) else (last,))]
    total = loss(outs) if loss else sum((one.double() ** 3).sum() for one in outs)
    total.backward()
    grads = [one.grad for one in (*inputs, *module.parameters())]
    return [one.detach() for one in outs] + [one for one in grads if one is not None]


def squares(outs):
    return sum(one.float().square().mean() for one in outs)


def alike(module, x, states=(), tolerance=1e-5, **options):
    want, got = (run(module, x, states, device, **options) for device in ("cpu", DEVICE))
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        assert (b.dtype, b.stride()) == (a.dtype, a.stride())
        same(b, a, rtol=tolerance, atol=tolerance)


def made(kind, dtype=torch.float32, **options):
    torch.manual_seed(0)
    return KINDS[kind](FEATURES, SIZE, **options).to(dtype)


def inputs(steps=STEPS, n=N, batch_first=False):
    sizes = (n, steps) if batch_first else (steps, n)
    return torch.randn(*sizes, FEATURES, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("mode", slow_but(["strict", "fused", "debug"], "fused"))
@pytest.mark.parametrize("options", slow_but(OPTIONS, "both ways"))
@pytest.mark.parametrize("kind", slow_but(KINDS, "lstm"))
def test_numbers(kind, options, mode):
    torch.tpu.eager_mode = mode
    module = made(kind, **OPTIONS[options])
    x = inputs(batch_first=module.batch_first)
    alike(module, x)
    alike(module, x, states_of(module))


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", slow_but([torch.float64, torch.bfloat16, torch.float16], torch.float64)
)
@pytest.mark.parametrize("kind", slow_but(KINDS, "gru"))
def test_dtypes(kind, dtype):
    module = made(kind, dtype, **OPTIONS["both ways"])
    tolerance = 1e-10 if dtype == torch.float64 else 5e-2
    alike(module, inputs(batch_first=True), states_of(module), tolerance, loss=squares)


def test_a_layer_is_a_loop():
    """As many operators are recorded for a thousand steps as for two."""
    module = made("lstm").to(DEVICE)

    def work(steps):
        module(torch.ones(steps, N, FEATURES, device=DEVICE))[0].sum().backward()
        torch.tpu.synchronize()

    calls = [counted(lambda steps=steps: work(steps), "calls")[0][0] for steps in (2, 1000)]
    assert max(calls) < 20


@pytest.mark.parametrize("kind", slow_but(KINDS, "gru"))
def test_one_result_is_enough(kind):
    for which in (0, -1):
        alike(made(kind), inputs(), loss=lambda outs, which=which: outs[which].sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gradients(kind):
    """The loop's gradient has none of its own; PyTorch's operators, step by step, have."""
    module = made(kind, torch.float64, bidirectional=True)

    def second(device):
        copied = copy.deepcopy(module).to(device)
        x = inputs().to(device).requires_grad_()
        out, _ = copied(x)
        (gradient,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return [x.grad, *(one.grad for one in copied.parameters() if one.grad is not None)]

    for a, b in zip(second("cpu"), second(DEVICE), strict=True):
        same(b, a, rtol=1e-9, atol=1e-9)


def test_what_need_not_have_gradients():
    module = made("gru")
    module.weight_hh_l0.requires_grad_(False)
    alike(module, inputs())
    with torch.inference_mode():
        want = module(inputs().float())[0]
        same(module.to(DEVICE)(inputs().float().to(DEVICE))[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_what_loops_do_not_take():
    """Projections, no batch, transforms of functions: PyTorch's own kernels take these."""
    torch.manual_seed(0)
    alike(nn.LSTM(FEATURES, SIZE, proj_size=2), inputs())
    alike(made("lstm"), inputs()[:, 0])
    alike(made("gru"), inputs(n=0))
    module = made("lstm")

    def gradient(device):
        copied = copy.deepcopy(module).to(device)
        x = inputs().float().to(device)

        def loss(parameters):
            return torch.func.functional_call(copied, parameters, (x,))[0].square().sum()

        return torch.func.grad(loss)(dict(copied.named_parameters()))

    want, got = gradient("cpu"), gradient(DEVICE)
    for name, one in want.items():
        same(got[name], one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", slow_but(KINDS, "lstm"))
def test_autocast(kind):
    module, x = made(kind), inputs().float()

    def results(device):
        with torch.autocast(device, dtype=torch.bfloat16):
            out, last = copy.deepcopy(module).to(device)(x.to(device))
        return [out, *(last if isinstance(last, tuple) else (last,))]

    for a, b in zip(results("cpu"), results(DEVICE), strict=True):
        assert b.dtype == a.dtype
        same(b, a, rtol=2e-2, atol=2e-2)


def test_errors_are_the_cpus():
    module = made("gru")
    wrong = [
        lambda device: module.to(device)(torch.ones(0, N, FEATURES, device=device)),
        lambda device: module.to(device)(torch.ones(STEPS, N, FEATURES + 1, device=device)),
        lambda device: rnn.pack_padded_sequence(torch.ones(STEPS, N, device=device), [1, 2, 3]),
        lambda device: rnn.pack_padded_sequence(torch.ones(STEPS, N, device=device), [3, 2, 0]),
        lambda device: rnn.pack_padded_sequence(torch.ones(STEPS, device=device), [1]),
    ]
    for call in wrong:
        with pytest.raises((RuntimeError, IndexError, ValueError)) as want:
            call("cpu")
        with pytest.raises(want.type) as got:
            call(DEVICE)
        assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]
    with pytest.raises(RuntimeError, match="1D CPU int64 tensor"):
        torch._VF._pack_padded_sequence(
            torch.ones(STEPS, N, device=DEVICE), torch.tensor([3, 2, 1], device=DEVICE), False
        )


# -- Packed sequences --


def test_packing():
    x = inputs()
    for options in ({}, {"total_length": 7, "padding_value": 2.5}):
        for value in (x, x[..., 0], (x * 9).long(), x[..., None] > 0):

            def both_ways(device, value=value, options=options):
                packed = rnn.pack_padded_sequence(value.to(device), [4, 3, 1])
                assert packed.batch_sizes.device.type == "cpu"
                return packed.data, *rnn.pad_packed_sequence(packed, **options)

            for a, b in zip(both_ways("cpu"), both_ways(DEVICE), strict=True):
                assert (b.dtype, b.stride()) == (a.dtype, a.stride())
                same(b, a, rtol=0, atol=0)


@pytest.mark.parametrize("kind", slow_but(KINDS, "lstm"))
def test_packed(kind):
    module = made(kind, torch.float64, num_layers=2, bidirectional=True)

    def results(device):
        copied = copy.deepcopy(module).to(device)
        x = inputs(steps=9).to(device).requires_grad_()
        out, last = copied(rnn.pack_padded_sequence(x, [2, 9, 5], enforce_sorted=False))
        last = last if isinstance(last, tuple) else (last,)
        padded, _ = rnn.pad_packed_sequence(out)
        (padded.pow(3).sum() + sum(one.square().sum() for one in last)).backward()
        grads = [x.grad, *(one.grad for one in copied.parameters())]
        return [out.data, padded, *last, *grads]

    for a, b in zip(results("cpu"), results(DEVICE), strict=True):
        same(b.detach(), a.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_packing_where_the_device_is_the_default_one():
    """What the host says of rows stays on the host."""
    want = losses(Tagger("gru", True), "cpu", 4)
    model = Tagger("gru", True).to(DEVICE)
    plain = Tagger("gru", False).to(DEVICE)
    with torch.device(DEVICE):
        x = torch.ones(2, 3, FEATURES)
        packed = rnn.pack_padded_sequence(x, [3, 2], batch_first=True)
        out, _ = model.layers(packed)
        padded, lengths = rnn.pad_packed_sequence(out, batch_first=True)
        for steps in (3, 4, 5, 6):
            assert plain.layers(torch.ones(2, steps, FEATURES))[0].shape[1] == steps
    assert padded.device.type == "tpu" and lengths.tolist() == [3, 2]
    same(losses(model, DEVICE, 4), want, rtol=1e-4, atol=1e-4)


# -- Numbers of steps that change --

WORDS, LABELS, TEXTS = 50, 5, 7


class Tagger(nn.Module):
    def __init__(self, kind, packs):
        super().__init__()
        torch.manual_seed(0)
        self.packs = packs
        self.embedding = nn.Embedding(WORDS, FEATURES)
        self.layers = KINDS[kind](FEATURES, SIZE, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * SIZE, LABELS)

    def forward(self, words, lengths):
        x = self.embedding(words)
        if self.packs:
            x = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        x, _ = self.layers(x)
        if self.packs:
            x, _ = rnn.pad_packed_sequence(x, batch_first=True)
        return self.head(x)


def losses(model, device, count):
    chance = random.Random(7)
    generator = torch.Generator().manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(count):
        lengths = torch.tensor([chance.randint(33, 63) for _ in range(TEXTS)])
        sizes = (TEXTS, int(lengths.max()))
        words = torch.randint(WORDS, sizes, generator=generator)
        labels = torch.randint(LABELS, sizes, generator=generator)
        labels[torch.arange(sizes[1]) >= lengths[:, None]] = -100
        optimizer.zero_grad()
        logits = model(words.to(device), lengths).flatten(0, 1)
        loss = F.cross_entropy(logits, labels.to(device).flatten(), ignore_index=-100)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)


@pytest.mark.slow
@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_steps_that_change(kind, packs, mode):
    torch.tpu.eager_mode = mode
    model = Tagger(kind, packs)
    want = losses(copy.deepcopy(model), "cpu", 5)
    same(losses(model.to(DEVICE), DEVICE, 5), want, rtol=1e-4, atol=1e-4)


def programs_of(packs):
    """How many new ones 32 steps need, 24 of them for the second time, in Strict."""
    torch.tpu.eager_mode = "strict"
    model = Tagger("lstm", packs).to(DEVICE)
    losses(model, DEVICE, 24)
    [programs], _ = counted(lambda: losses(model, DEVICE, 32), "programs")
    return programs


@pytest.mark.slow
@pytest.mark.parametrize("packs", [True, False])
def test_programs(packs):
    assert alone(programs_of, packs) == 0
