"""pyro: variational inference, enumeration, and sampling, which draws on the device."""

import pyro
import pyro.distributions as dist
import torch
from case import case
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, TraceEnum_ELBO
from pyro.infer.autoguide import AutoDelta, AutoNormal

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 2, generator=generator)
    y = x @ torch.tensor([1.0, -2.0]) + 0.5 + 0.1 * torch.randn(64, generator=generator)
    return x.to(DEVICE), y.to(DEVICE)


def regression(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    zero, one = torch.zeros(2, device=DEVICE), torch.ones(2, device=DEVICE)
    weight = pyro.sample("weight", dist.Normal(zero, 3 * one).to_event(1))
    bias = pyro.sample("bias", dist.Normal(zero[0], 3 * one[0]))
    noise = pyro.sample("noise", dist.LogNormal(zero[0], one[0]))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ weight + bias, noise), obs=y)


def fit(model: object, guide: object, loss: object, steps: int, *given: torch.Tensor) -> list:
    svi = SVI(model, guide, pyro.optim.ClippedAdam({"lr": 0.05}), loss)
    return [svi.step(*given) for _ in range(steps)]


def begin() -> tuple[torch.Tensor, torch.Tensor]:
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    return data()


@case("SVI with AutoDelta: the most likely values", 1e-3)
def most_likely() -> tuple[object, list[float]]:
    x, y = begin()
    start = {"weight": torch.zeros(2), "bias": torch.zeros(()), "noise": torch.ones(())}

    def at(site: dict) -> torch.Tensor:
        return start[site["name"]].to(DEVICE)

    guide = AutoDelta(regression, init_loc_fn=at)
    losses = fit(regression, guide, Trace_ELBO(), 60, x, y)
    found = guide.median(x)
    return found["weight"].device, [*losses, *found["weight"], found["bias"], found["noise"]]


@case("a mixture, its assignments enumerated", 1e-3)
def mixture() -> tuple[object, list[float]]:
    begin()
    points = torch.tensor([-2.1, -1.9, -2.0, 3.0, 3.2, 2.9, 3.1], device=DEVICE)

    def model(x: torch.Tensor) -> None:
        shares = pyro.param(
            "shares", torch.full((2,), 0.5, device=DEVICE), dist.constraints.simplex
        )
        centres = pyro.param("centres", torch.tensor([-1.0, 1.0], device=DEVICE))
        with pyro.plate("data", len(x)):
            kind = pyro.sample("kind", dist.Categorical(shares), infer={"enumerate": "parallel"})
            one = torch.ones((), device=DEVICE)
            pyro.sample("x", dist.Normal(centres[kind], one), obs=x)

    def guide(x: torch.Tensor) -> None:
        pass

    losses = fit(model, guide, TraceEnum_ELBO(max_plate_nesting=1), 40, points)
    return pyro.param("centres").device, [*losses, *pyro.param("shares"), *pyro.param("centres")]


@case("SVI with AutoNormal, Predictive: whether it finds the weights")
def variational() -> tuple[object, list[float]]:
    x, y = begin()
    guide = AutoNormal(regression)
    fit(regression, guide, Trace_ELBO(), 300, x, y)
    drawn = Predictive(regression, guide=guide, num_samples=64)(x)["y"]
    found = guide.median(x)["weight"]
    wanted = torch.tensor([1.0, -2.0], device=DEVICE)
    assert torch.allclose(found, wanted, atol=0.15), found
    assert float((drawn.mean(0) - y).abs().mean()) < 0.3
    return drawn.device, [1.0]


@case("NUTS, 60 samples: whether it finds the weights")
def sampled() -> tuple[object, list[float]]:
    x, y = begin()
    chain = MCMC(NUTS(regression), num_samples=60, warmup_steps=40, disable_progbar=True)
    chain.run(x, y)
    found = chain.get_samples()["weight"].mean(0)
    wanted = torch.tensor([1.0, -2.0], device=DEVICE)
    assert torch.allclose(found, wanted, atol=0.15), found
    return found.device, [1.0]
