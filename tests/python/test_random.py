"""Random numbers: seeds, states of 16 bytes, and distributions."""

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, modes, only_tpu, raises_alike
from torch._subclasses.fake_tensor import FakeTensorMode

SAMPLERS = {
    "rand": lambda g=None: torch.rand(64, device=DEVICE, generator=g),
    "randn": lambda g=None: torch.randn(64, device=DEVICE, generator=g),
    "randint": lambda g=None: torch.randint(0, 1000, (64,), device=DEVICE, generator=g),
    "randperm": lambda g=None: torch.randperm(64, device=DEVICE, generator=g),
    "bernoulli": lambda g=None: torch.full((64,), 0.5, device=DEVICE).bernoulli(generator=g),
    "uniform_": lambda g=None: torch.empty(64, device=DEVICE).uniform_(-1, 1, generator=g),
    "normal_": lambda g=None: torch.empty(64, device=DEVICE).normal_(2, 3, generator=g),
    "exponential_": lambda g=None: torch.empty(64, device=DEVICE).exponential_(generator=g),
    "random_": lambda g=None: torch.empty(64, device=DEVICE).random_(0, 99, generator=g),
    "multinomial": lambda g=None: torch.ones(8, device=DEVICE).multinomial(64, True, generator=g),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_seed_repeats_and_a_draw_moves_on(name):
    draw = SAMPLERS[name]
    torch.manual_seed(7)
    first, second = draw(), draw()
    torch.manual_seed(7)
    assert torch.equal(draw(), first) and torch.equal(draw(), second)
    assert not torch.equal(first, second)
    torch.manual_seed(8)
    assert not torch.equal(draw(), first)


@pytest.mark.parametrize("name", SAMPLERS)
def test_own_generators(name):
    draw = SAMPLERS[name]
    a = torch.Generator(device=DEVICE).manual_seed(5)
    b = torch.Generator(device=DEVICE).manual_seed(5)
    before = torch.rand(4, device=DEVICE, generator=torch.Generator(device=DEVICE).manual_seed(1))
    assert torch.equal(draw(a), draw(b))
    assert a.initial_seed() == 5 and before.shape == (4,)


@only_tpu
def test_state_is_sixteen_bytes():
    torch.tpu.manual_seed(42)
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.shape == (16,) and state.device.type == "cpu"
    assert state[:8].view(torch.int64).item() == 42 and state[8:].view(torch.int64).item() == 0
    x = torch.rand(10, device="tpu")
    assert torch.tpu.get_rng_state()[8:].view(torch.int64).item() > 0
    torch.tpu.set_rng_state(state)
    assert torch.equal(torch.rand(10, device="tpu"), x)
    assert torch.tpu.initial_seed() == 42
    torch.tpu.set_rng_state_all(torch.tpu.get_rng_state_all())
    with pytest.raises((RuntimeError, TypeError)):
        torch.tpu.set_rng_state(torch.zeros(5, dtype=torch.uint8))


@only_tpu
def test_seeding_functions():
    torch.tpu.manual_seed_all(9)
    a = torch.rand(3, device="tpu")
    torch.manual_seed(9)
    assert torch.equal(torch.rand(3, device="tpu"), a)
    torch.tpu.seed()
    assert not torch.equal(torch.rand(3, device="tpu"), a)
    torch.tpu.seed_all()
    assert len(torch.tpu.default_generators) == torch.tpu.device_count()
    assert torch.tpu.default_generators[0].device.type == "tpu"


@only_tpu
def test_seeds_have_64_bits():
    for seed in (2**63, 2**64 - 1, -1, -(2**63)):
        torch.manual_seed(seed)
        drawn = torch.rand(3, device="tpu")
        torch.tpu.manual_seed(seed)
        assert torch.equal(torch.rand(3, device="tpu"), drawn)
    with pytest.raises((RuntimeError, ValueError)):
        torch.manual_seed(2**64)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16])
def test_bernoulli_into_any_dtype(dtype):
    out = torch.empty(0, dtype=dtype, device=DEVICE)
    drawn = torch.bernoulli(torch.tensor([0.0, 1.0, 1.0], device=DEVICE), out=out)
    assert drawn is out and out.tolist() == [0, 1, 1]


@only_tpu
def test_fork_rng():
    torch.manual_seed(3)
    expected = torch.rand(4, device="tpu")
    torch.manual_seed(3)
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        torch.rand(100, device="tpu")
    assert torch.equal(torch.rand(4, device="tpu"), expected)


@only_tpu
@pytest.mark.parametrize("name", SAMPLERS)
def test_modes_draw_the_same(name):
    drawn = []
    for mode in modes():
        with torch.tpu.set_eager_mode(mode):
            torch.manual_seed(11)
            drawn.append(SAMPLERS[name]())
    assert all(torch.equal(x, drawn[0]) for x in drawn)


def test_uniform():
    x = torch.rand(20_000, device=DEVICE)
    assert x.min().item() >= 0 and x.max().item() < 1
    assert abs(x.mean().item() - 0.5) < 0.01 and abs(x.var().item() - 1 / 12) < 0.003
    counts = torch.histc(x.cpu(), 10, 0, 1)
    assert ((counts - 2000).abs() < 250).all()


def test_normal_of_two_numbers():
    drawn = torch.normal(0.5, 2.0, (1000,), device=DEVICE)
    assert drawn.device.type == DEVICE and abs(drawn.mean().item() - 0.5) < 0.5
    raises_alike(lambda x: torch.normal(0.5, -2.0, (3,), device=x.device), torch.ones(1))


def test_normal():
    x = torch.randn(20_000, device=DEVICE)
    assert abs(x.mean().item()) < 0.03 and abs(x.std().item() - 1) < 0.03
    assert abs((x**3).mean().item()) < 0.15 and abs((x**4).mean().item() - 3) < 0.3


def test_dropout():
    x = torch.ones(10_000, device=DEVICE, requires_grad=True)
    y = F.dropout(x, 0.3)
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.7) < 0.02
    assert abs(y.max().item() - 1 / 0.7) < 1e-5
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())
    assert torch.equal(F.dropout(x, 0.3, training=False), x)


def test_permutation_and_integers():
    assert torch.randperm(100, device=DEVICE).sort()[0].tolist() == list(range(100))
    x = torch.randint(-5, 5, (5000,), device=DEVICE)
    assert x.min().item() == -5 and x.max().item() == 4


@pytest.mark.parametrize(("dtype", "most"), [(torch.half, 2**11 + 1), (torch.float, 2**24 + 1)])
def test_a_permutation_has_no_more_numbers_than_its_dtype(dtype, most):
    with pytest.raises(RuntimeError, match="n cannot be greater than"):
        torch.randperm(most + 1, dtype=dtype, device=DEVICE)
    if dtype == torch.half:
        assert torch.randperm(most, dtype=dtype, device=DEVICE).unique().numel() == most


def test_multinomial_respects_weights():
    weights = torch.tensor([0.0, 1.0, 3.0], device=DEVICE)
    drawn = torch.multinomial(weights, 4000, replacement=True).cpu()
    shares = torch.bincount(drawn, minlength=3) / 4000
    assert shares[0] == 0 and abs(shares[2] - 0.75) < 0.03
    assert sorted(torch.multinomial(torch.ones(6, device=DEVICE), 6).tolist()) == list(range(6))


def test_distributions():
    normal = torch.distributions.Normal(torch.zeros(3, device=DEVICE), torch.ones(3, device=DEVICE))
    assert normal.rsample((5,)).device.type == DEVICE
    chosen = torch.distributions.Categorical(logits=torch.zeros(4, device=DEVICE)).sample((100,))
    assert chosen.min().item() >= 0 and chosen.max().item() <= 3


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("uniform_", (3.0, 7.0), (7.0, 3.0)),
        ("uniform_", (3.0, 7.0), (-3e38, 3e38)),
        ("uniform_", (3.0, 7.0), (float("-inf"), 1.0)),
        ("normal_", (0.5, 2.5), (0.5, -2.5)),
        ("log_normal_", (0.5, 2.5), (0.5, -2.5)),
        ("cauchy_", (0.5, 2.5), (0.5, -2.5)),
        ("exponential_", (2.5,), (-2.5,)),
        ("geometric_", (0.25,), (2.5,)),
        ("bernoulli_", (0.25,), (2.5,)),
    ],
)
def test_ranges_are_checked_at_every_call(name, good, bad):
    raises_alike(lambda x: getattr(getattr(x, name)(*good), name)(*bad), torch.empty(3))


def test_uniform_numbers_are_floating():
    raises_alike(lambda x: x.uniform_(), torch.ones(3, dtype=torch.int64))
    raises_alike(lambda x: x.uniform_(0, 1e6), torch.ones(3, dtype=torch.float16))


def test_states_while_tensors_are_fake():
    """As FakeTensorMode and LocalTensorMode ask for them."""
    before = torch.tpu.get_rng_state()
    with FakeTensorMode():
        state = torch.tpu.get_rng_state()
        assert type(state) is torch.Tensor
        with pytest.raises(RuntimeError, match="the tensor is fake"):
            torch.tpu.set_rng_state(torch.empty(16, dtype=torch.uint8))
    assert torch.equal(state, before)
