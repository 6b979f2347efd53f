"""Gradients and optimizers, step by step against the CPU."""

import copy

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, check_gradients, move, same
from torch import nn
from torch.utils.checkpoint import checkpoint

OPTIMIZERS = {
    "sgd": lambda p, **k: torch.optim.SGD(p, lr=0.1, **k),
    "momentum": lambda p, **k: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **k
    ),
    "adam": lambda p, **k: torch.optim.Adam(p, lr=0.01, **k),
    "amsgrad": lambda p, **k: torch.optim.Adam(p, lr=0.01, amsgrad=True, maximize=True, **k),
    "adamw": lambda p, **k: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, **k),
    "rmsprop": lambda p, **k: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True, **k),
    "adagrad": lambda p, **k: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1, **k),
    "adadelta": lambda p, **k: torch.optim.Adadelta(p, lr=1.0, **k),
    "adamax": lambda p, **k: torch.optim.Adamax(p, lr=0.01, **k),
    "nadam": lambda p, **k: torch.optim.NAdam(p, lr=0.01, **k),
    "radam": lambda p, **k: torch.optim.RAdam(p, lr=0.01, **k),
    "asgd": lambda p, **k: torch.optim.ASGD(p, lr=0.01, **k),
    "rprop": lambda p, **k: torch.optim.Rprop(p, lr=0.01, **k),
}
FUSED = ["sgd", "momentum", "adam", "amsgrad", "adamw", "adagrad"]


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))


def losses(device, make, steps=6, schedule=None, **options):
    torch.manual_seed(5)
    x, y = torch.randn(10, 6), torch.randint(0, 3, (10,))
    model = network().to(device)
    x, y = x.to(device), y.to(device)
    optimizer = make(model.parameters(), **options)
    scheduler = schedule(optimizer) if schedule else None
    out = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
        out.append(loss.item())
    return torch.tensor(out), [p.detach().cpu() for p in model.parameters()]


@pytest.mark.diagonal
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("foreach", [False, True])
def test_optimizer(name, foreach):
    make = OPTIMIZERS[name]
    expected = losses("cpu", make, foreach=foreach)
    same(losses(DEVICE, make, foreach=foreach), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FUSED)
def test_fused_optimizer(name):
    make = OPTIMIZERS[name]
    same(losses(DEVICE, make, fused=True), losses("cpu", make), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_default_optimizer(name):
    make = OPTIMIZERS[name]
    same(losses(DEVICE, make), losses("cpu", make), rtol=1e-4, atol=1e-4)


def test_capturable_optimizer():
    make = OPTIMIZERS["adam"]
    if DEVICE == "tpu":
        same(losses(DEVICE, make, capturable=True), losses("cpu", make), rtol=1e-4, atol=1e-4)


def test_a_rate_may_be_a_tensor():
    def run(device):
        return losses(
            device,
            lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), capturable=device == "tpu"),
        )

    same(run(DEVICE), losses("cpu", lambda p: torch.optim.AdamW(p, lr=0.01)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 6),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=8),
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    ],
)
def test_schedules(schedule):
    make = OPTIMIZERS["momentum"]
    expected = losses("cpu", make, schedule=schedule)
    same(losses(DEVICE, make, schedule=schedule), expected, rtol=1e-4, atol=1e-4)


def test_lbfgs():
    def fit(device):
        x = torch.tensor([-1.5, 2.0], device=device, requires_grad=True)
        optimizer = torch.optim.LBFGS([x], lr=0.5, max_iter=8, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            value = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
            value.backward()
            return value

        optimizer.step(closure)
        return x.detach().cpu()

    same(fit(DEVICE), fit("cpu"), rtol=1e-3, atol=1e-3)


@pytest.mark.diagonal
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("foreach", [None, False, True])
def test_gradient_clipping(norm, foreach):
    results = []
    for device in ("cpu", DEVICE):
        model = network().to(device)
        model(torch.ones(4, 6, device=device)).square().sum().backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm, foreach=foreach)
        results.append((total.cpu(), [p.grad.cpu() for p in model.parameters()]))
    same(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_clip_by_value():
    p = torch.ones(4, device=DEVICE, requires_grad=True)
    (p * torch.arange(4.0, device=DEVICE)).sum().backward()
    nn.utils.clip_grad_value_([p], 1.5)
    assert p.grad.tolist() == [0, 1, 1.5, 1.5]


def test_gradients_accumulate():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    for _ in range(3):
        (x * 2).sum().backward()
    assert x.grad.tolist() == [6.0] * 3
    x.grad.zero_()
    assert x.grad.tolist() == [0.0] * 3


def test_second_derivatives():
    def work(x):
        (first,) = torch.autograd.grad((x**3).sum() + x.sin().sum(), x, create_graph=True)
        return first

    check_gradients(work, torch.randn(5, requires_grad=True))


def test_through_views_and_in_place():
    def work(x):
        y = x * 2
        y[1:].mul_(y[:-1].detach().clone())
        y[0] = 5
        return y.t().reshape(-1)[::2]

    check_gradients(work, torch.randn(4, 3, requires_grad=True))


def test_indexing_gradients():
    index = torch.tensor([0, 2, 2])
    check_gradients(lambda x, i: x[i] * 2, torch.randn(4, 3, requires_grad=True), index)
    check_gradients(lambda x: torch.where(x > 0, x, x * 0.1), torch.randn(9, requires_grad=True))
    check_gradients(
        lambda x, i: x.gather(0, i[:, None].expand(3, 3)),
        torch.randn(4, 3, requires_grad=True),
        index,
    )


def test_hooks_and_retained_gradients():
    seen = []
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x * 3
    y.register_hook(lambda g: seen.append(g.cpu().tolist()) or g * 2)
    y.retain_grad()
    y.sum().backward()
    assert seen == [[1, 1]] and x.grad.tolist() == [6, 6] and y.grad.tolist() == [2, 2]


def test_custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * x * x * grad

    check_gradients(Cube.apply, torch.randn(4, requires_grad=True))


def test_checkpointing():
    model = network()
    x = torch.randn(3, 6)

    def work(device, use):
        m = copy.deepcopy(model).to(device)
        y = x.to(device).requires_grad_()
        out = checkpoint(m, y, use_reentrant=False) if use else m(y)
        out.sum().backward()
        return [p.grad.cpu() for p in m.parameters()], y.grad.cpu()

    same(work(DEVICE, True), work("cpu", False), rtol=1e-4, atol=1e-5)


def test_modified_in_place_is_noticed():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_modes():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
    assert y.tolist() == [3.0] * 3
    with pytest.raises(RuntimeError):
        (y * x).sum().backward()


def test_function_transforms():
    def f(x):
        return (x.sin() * x).sum()

    x = torch.randn(4)
    same(torch.func.grad(f)(move(x)), torch.func.grad(f)(x))
    batched = torch.randn(3, 4)
    same(
        torch.func.vmap(torch.func.grad(f))(move(batched)),
        torch.func.vmap(torch.func.grad(f))(batched),
    )
    same(torch.func.jvp(f, (move(x),), (move(x),)), torch.func.jvp(f, (x,), (x,)))


def test_gradcheck():
    x = torch.randn(3, 4, dtype=torch.float64).to(DEVICE).requires_grad_()
    w = torch.randn(4, 2, dtype=torch.float64).to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: (a @ b).tanh(), (x, w))
