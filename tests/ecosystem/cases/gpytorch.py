"""gpytorch: an exact Gaussian process, one with inducing points, one of several outputs."""

import gpytorch
import torch
from case import case
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import MaternKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.linspace(0, 1, 40, device=DEVICE)
    noise = torch.randn(40, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    return x, torch.sin(6 * x) + 0.1 * noise, torch.linspace(0, 1, 9, device=DEVICE)


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: torch.nn.Module) -> None:
        super().__init__(x, y, likelihood)
        self.mean, self.kernel = gpytorch.means.ConstantMean(), ScaleKernel(RBFKernel())

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean(x), self.kernel(x))


class Sparse(gpytorch.models.ApproximateGP):
    def __init__(self, points: torch.Tensor) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.mean, self.kernel = gpytorch.means.ConstantMean(), ScaleKernel(MaternKernel())

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean(x), self.kernel(x))


class Several(gpytorch.models.ExactGP):
    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: torch.nn.Module) -> None:
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), num_tasks=2)
        self.kernel = MultitaskKernel(RBFKernel(), num_tasks=2, rank=1)
        self.kernel.task_covar_module.covar_factor.data.fill_(0.5)

    def forward(self, x: torch.Tensor) -> MultitaskMultivariateNormal:
        return MultitaskMultivariateNormal(self.mean(x), self.kernel(x))


def fit(model: torch.nn.Module, loss: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> list:
    parameters = {*model.parameters(), *loss.likelihood.parameters()}
    optimizer = torch.optim.Adam(sorted(parameters, key=lambda one: one.numel()), lr=0.1)
    found = []
    for _ in range(15):
        optimizer.zero_grad()
        value = -loss(model(x), y)
        value.backward()
        optimizer.step()
        found.append(value.item())
    return found


def predict(model: torch.nn.Module, likelihood: torch.nn.Module, x: torch.Tensor) -> list[float]:
    model.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        found = likelihood(model(x))
    return [*found.mean.flatten().tolist(), *found.variance.flatten().tolist()]


@case("an exact Gaussian process: fitted, predicting", 2e-3)
def exact() -> tuple[object, list[float]]:
    x, y, new = data()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(DEVICE)
    model = Exact(x, y, likelihood).to(DEVICE)
    losses = fit(model, ExactMarginalLogLikelihood(likelihood, model), x, y)
    return x.device, losses + predict(model, likelihood, new)


@case("an exact Gaussian process, by conjugate gradients: prediction", 2e-3)
def by_gradients() -> tuple[object, list[float]]:
    x, y, new = data()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(DEVICE)
    model = Exact(x, y, likelihood).to(DEVICE)
    with (
        gpytorch.settings.max_cholesky_size(0),
        gpytorch.settings.cg_tolerance(1e-4),
        gpytorch.settings.eval_cg_tolerance(1e-4),
    ):
        return x.device, predict(model, likelihood, new)


@case("inducing points, a variational distribution", 2e-3)
def sparse() -> tuple[object, list[float]]:
    x, y, new = data()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(DEVICE)
    model = Sparse(x[::5].clone()).to(DEVICE)
    model.variational_strategy.variational_params_initialized.fill_(1)
    losses = fit(model, VariationalELBO(likelihood, model, len(x)), x, y)
    return x.device, losses + predict(model, likelihood, new)


@case("two outputs", 2e-3)
def several() -> tuple[object, list[float]]:
    x, y, new = data()
    both = torch.stack([y, y.cos()], 1)
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2).to(DEVICE)
    model = Several(x, both, likelihood).to(DEVICE)
    losses = fit(model, ExactMarginalLogLikelihood(likelihood, model), x, both)
    return x.device, losses + predict(model, likelihood, new)
