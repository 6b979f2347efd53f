"""Layers that repeat: torch.compile makes one program of them, which is launched once for each."""

import contextlib
import copy

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, LOOSE, counted, move, only_tpu, same, slow_but

from torch_tpu.compiler import layers

pytestmark = [only_tpu, pytest.mark.usefixtures("fresh_dynamo")]


class Block(torch.nn.Module):
    """A layer of a transformer."""

    def __init__(self, width, dropout):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.mixed = torch.nn.Linear(width, 3 * width)
        self.out, self.down = torch.nn.Linear(width, width), torch.nn.Linear(2 * width, width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.dropout = dropout

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.parts(x))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = self.out(mixed.transpose(1, 2).flatten(2))
        x = x + F.dropout(mixed, self.dropout, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.norms[1](x)))), self.dropout)

    def parts(self, x):
        return self.mixed(self.norms[0](x)).chunk(3, dim=-1)


def make_model(layers, width=8, dropout=0.0):
    torch.manual_seed(0)
    blocks = [Block(width, dropout) for _ in range(layers)]
    ends = torch.nn.Linear(width, width), torch.nn.Linear(width, 4)
    return torch.nn.Sequential(ends[0], *blocks, torch.nn.LayerNorm(width), ends[1])


def step(model, x):
    """A forward and a backward: what comes out, and the gradients."""
    model.zero_grad()
    out = model(x)
    out.square().sum().backward()
    return out, [p.grad for p in model.parameters()]


@pytest.mark.slow
def test_more_layers_are_no_more_programs():
    x = torch.randn(2, 4, 8)
    made = []
    for depth in (3, 5):
        host = make_model(depth)
        device = copy.deepcopy(host).to(DEVICE)
        compiled = torch.compile(device, options={"repeat": True})
        moved = x.to(DEVICE)
        [programs], got = counted(lambda c=compiled, x=moved: step(c, x), "programs")
        same(got, step(host, x), **LOOSE)
        made.append(programs)
        [launches, replays], got = counted(
            lambda c=compiled, x=moved: step(c, x)[0], "launches", "graph_replays"
        )
        same(got, host(x), **LOOSE)
        assert replays == 2 and launches >= 2 * depth
    assert made[0] > 0 and made[1] == 0


def test_one_program_without():
    host = make_model(3)
    x = torch.randn(2, 4, 8)
    compiled = torch.compile(copy.deepcopy(host).to(DEVICE), options={"repeat": False})
    with torch.no_grad():
        compiled(x.to(DEVICE))
        [launches], got = counted(lambda: compiled(x.to(DEVICE)), "launches")
        assert launches == 1
        same(got, host(x), **LOOSE)


@pytest.mark.slow
def test_what_is_small_is_one_program_by_itself():
    """A launch more must not show: the layers of a small batch are one program, of a large not."""
    host = make_model(5, width=32)
    compiled = torch.compile(copy.deepcopy(host).to(DEVICE), dynamic=False)
    counts = []
    for batch in (1, 192):
        x = torch.randn(batch, 32, 32)
        moved = x.to(DEVICE)
        with torch.no_grad():
            compiled(moved)
            [launches], got = counted(lambda m=moved: compiled(m), "launches")
            counts.append(launches)
            same(got, host(x), **LOOSE)
    assert counts[0] == 1 and counts[1] >= 5


@pytest.mark.slow
def test_dropout_draws_what_eager_mode_does():
    model = make_model(3, dropout=0.4).to(DEVICE)
    compiled = torch.compile(model, options={"repeat": True})
    x = torch.randn(2, 4, 8).to(DEVICE)
    for seed in (1, 2):
        torch.manual_seed(seed)
        want = step(model, x)
        torch.manual_seed(seed)
        same(step(compiled, x), want, **LOOSE)
        state = torch.tpu.get_rng_state()
        torch.manual_seed(seed)
        step(model, x)
        same(torch.tpu.get_rng_state(), state)


def write(x, states, weights):
    """Layers that write what they were given, and read it in later ones."""
    for state, weight in zip(states, weights, strict=True):
        state.mul_(0.5).add_(x)
        x = torch.tanh(state @ weight) + x
    states[0].add_(x)
    return x, states[-1].sum()


def test_arguments_are_written():
    args = (
        torch.randn(3, 4),
        [torch.randn(3, 4) for _ in range(6)],
        [torch.randn(4, 4) for _ in range(6)],
    )
    device = move(args)
    compiled = torch.compile(write, options={"repeat": True})
    for _ in range(3):
        same(compiled(*device), write(*args), **LOOSE)
        same(device, args, **LOOSE)
    before = torch.tpu.memory_allocated()
    for _ in range(3):
        compiled(*device)
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before


@pytest.mark.slow
def test_two_stacks():
    """An encoder and a decoder, whose layers differ, and what is saved for backward."""

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = make_model(5), make_model(5, width=4)

        def forward(self, x):
            return self.decoder(self.encoder(x)).tanh()

    host = Both()
    x = torch.randn(2, 4, 8)
    compiled = torch.compile(copy.deepcopy(host).to(DEVICE), options={"repeat": True})
    for _ in range(2):
        same(step(compiled, x.to(DEVICE)), step(host, x), **LOOSE)


# -- Layers that are traced once --


def plain(x, w):
    return x + torch.relu(x @ w) * 2


def random(x, w):
    return x + F.dropout(torch.relu(x @ w), 0.5) * 2


def writing(x, w):
    w.mul_(0.5)
    return x + torch.relu(x @ w) * 2


def writing_lists(x, w):
    torch._foreach_mul_([w], 0.5)
    return x + torch.relu(x @ w) * 2


def looking(x, w):
    """What a layer returns is a view of what it made, and the next reads another one."""
    return (x + torch.relu(x @ w) * 2).unsqueeze(0).squeeze(0)


def half(x, w):
    with torch.autocast(x.device.type, torch.bfloat16):
        return x + torch.relu(x @ w).float() * 2


def constant(x, w):
    return x + torch.relu(x @ w) * torch.tensor(2.0, device=x.device)


LAYERS = {
    constant: True,
    plain: True,
    random: True,
    writing: False,
    writing_lists: False,
    looking: True,
    half: False,
}


@pytest.fixture
def once(monkeypatch):
    """Whether layers of each graph are traced once."""
    told, outlined = [], layers.outlined
    monkeypatch.setattr(layers, "outlined", lambda graph: told.append(outlined(graph)) or told[-1])
    return told


@pytest.mark.parametrize(
    "layer", slow_but(LAYERS, random, writing_lists, looking), ids=lambda layer: layer.__name__
)
def test_what_is_traced_once(layer, once):
    """Forward and backward are what they would be, whether or not one is traced for all."""
    torch.manual_seed(1)
    x, *weights = (torch.randn(4, 4) * 0.3 for _ in range(9))

    def whole(x, weights):
        y = x.sin()
        for w in weights:
            y = layer(y, w)
        return y.cos()

    def run(function, device):
        torch.manual_seed(3)
        leaves = [one.to(device).requires_grad_() for one in (x, *weights)]
        first, *others = [one * 1 for one in leaves]
        out = function(first, others)
        return out, torch.autograd.grad(out.square().sum(), leaves), others

    got = run(torch.compile(whole, options={"repeat": True}), DEVICE)
    same(got, run(whole, DEVICE if layer is random else "cpu"), rtol=1e-3, atol=1e-3)
    assert once == [LAYERS[layer]]


def unrecorded(x):
    """As rotary embeddings do it."""
    with torch.no_grad():
        return x.sin()


def uncast(x):
    with torch.autocast(x.device.type, enabled=False):
        return x.float().sin()


def filled(x):
    y = torch.zeros_like(x)
    y[0] = 1
    return x + y


def nothing(_device):
    return contextlib.nullcontext()


def without_gradients(_device):
    return torch.no_grad()


def bfloat16(device):
    return torch.autocast(device, torch.bfloat16)


REGIONS = {nothing: True, without_gradients: False, bfloat16: False}


@pytest.mark.diagonal
@pytest.mark.parametrize("before", [unrecorded, uncast, filled], ids=lambda one: one.__name__)
@pytest.mark.parametrize("region", REGIONS, ids=lambda one: one.__name__)
def test_regions_beside_layers(before, region, once):
    """What is over when the layers begin does not matter; that they are in a region does."""
    torch.manual_seed(1)
    x, *weights = (torch.randn(4, 4) * 0.3 for _ in range(9))

    def whole(x, weights):
        y = x * before(x)
        with region(x.device.type):
            for w in weights:
                y = plain(y, w)
        return y.float().cos() * x

    def run(function, device):
        leaves = [one.to(device).requires_grad_() for one in (x, *weights)]
        out = function(leaves[0], leaves[1:])
        return out, torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)

    tolerance = 5e-2 if region is bfloat16 else 1e-4
    same(run(torch.compile(whole), DEVICE), run(whole, "cpu"), rtol=tolerance, atol=tolerance)
    assert once == [REGIONS[region]]


def test_layers_that_write_what_has_a_name():
    def whole(x, buffer):
        for _ in range(9):
            torch.mul(x, 0.5, out=buffer)
            x = torch.relu(x + buffer) * 2 - x.sin()
        return x

    args = torch.randn(4), torch.zeros(4)
    device = move(args)
    same(torch.compile(whole, options={"repeat": True})(*device), whole(*args), **LOOSE)
    same(device, args, **LOOSE)


def test_layers_with_buffers():
    """A batch norm writes its buffers, which no call of its signature says."""
    torch.manual_seed(1)
    layers = [(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ELU()) for _ in range(9)]
    host = torch.nn.Sequential(*(one for layer in layers for one in layer))
    device = copy.deepcopy(host).to(DEVICE)
    x = torch.randn(8, 4)
    for _ in range(2):
        got = step(torch.compile(device, options={"repeat": True}), x.to(DEVICE))
        same(got, step(host, x), rtol=1e-3, atol=1e-3)
        same(list(device.buffers()), list(host.buffers()), **LOOSE)


def test_other_choices_are_refused():
    compiled = torch.compile(lambda x: x + 1, options={"repeat": 3})
    with pytest.raises(Exception, match="'auto', True or False"):
        compiled(torch.ones(2, device=DEVICE))
