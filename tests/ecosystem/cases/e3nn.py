"""e3nn: spherical harmonics, tensor products, gates, equivariant layers, their gradients."""

import torch
from case import case
from e3nn import io, nn, o3
from e3nn.math import soft_one_hot_linspace

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@case("spherical harmonics, Wigner matrices, rotations")
def harmonics() -> tuple[object, list[float]]:
    x = draw(8, 3).requires_grad_()
    y = o3.spherical_harmonics([0, 1, 2, 3], x, normalize=True, normalization="component")
    (slopes,) = torch.autograd.grad(y.square().sum() + y[:, 5].sum(), x)
    angles = draw(3, seed=1)
    with torch.device(DEVICE):  # e3nn makes the generators of rotations there
        turned = o3.Irreps("0e + 1o + 2e + 3o").D_from_angles(*angles)
    back = torch.stack(o3.matrix_to_angles(o3.angles_to_matrix(*angles.abs())))
    tensor = o3.ReducedTensorProducts("ij=ji", i="1o").to(DEVICE)(draw(3), draw(3, seed=2))
    found = [y.flatten(), slopes.flatten(), turned.flatten(), back, tensor.flatten()]
    return y.device, torch.cat(found).tolist()


@case("FullyConnectedTensorProduct, Linear, Gate: equivariant, with gradients", 5e-4)
def products() -> tuple[object, list[float]]:
    torch.manual_seed(0)
    irreps = o3.Irreps("4x0e + 4x1o + 2x2e")
    gate = nn.Gate("8x0e", [torch.tanh], "4x0e", [torch.sigmoid], "2x1o + 2x2e")
    product = o3.FullyConnectedTensorProduct(irreps, "0e + 1o", gate.irreps_in)
    linear = o3.Linear(gate.irreps_out, "2x0e + 1o")
    product, gate, linear = (one.to(DEVICE) for one in (product, gate, linear))

    def net(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return linear(gate(product(x, y)))

    x, y = draw(6, irreps.dim).requires_grad_(), draw(6, 4, seed=1)
    found = net(x, y)
    found.square().sum().backward()
    with torch.device(DEVICE):
        angles = torch.tensor([0.3, 0.5, 0.7])
        kinds = irreps, o3.Irreps("0e + 1o"), linear.irreps_out
        first, second, last = (one.D_from_angles(*angles) for one in kinds)
    with torch.no_grad():
        turned = net(x @ first.T, y @ second.T)
    torch.testing.assert_close(turned, found.detach() @ last.T, rtol=1e-3, atol=1e-4)
    slopes = product.weight.grad
    return found.device, [*found.flatten().tolist(), *slopes[:16].tolist(), *x.grad[0].tolist()]


@case("a layer over points: neighbours, radial weights, trained", 1e-3)
def points() -> tuple[object, list[float]]:
    torch.manual_seed(0)
    irreps = o3.Irreps("2x0e + 2x1o")
    sphere = o3.Irreps.spherical_harmonics(2)
    product = o3.FullyConnectedTensorProduct("3x0e", sphere, irreps, shared_weights=False)
    weights = nn.FullyConnectedNet([8, 16, product.weight_numel], torch.nn.functional.silu)
    product, weights = product.to(DEVICE), weights.to(DEVICE)
    places, kinds = draw(10, 3), torch.eye(3, device=DEVICE)[torch.arange(10, device=DEVICE) % 3]
    source, target = torch.triu_indices(10, 10, 1, device=DEVICE)
    step = places[source] - places[target]
    around = o3.spherical_harmonics(sphere, step, True, normalization="component")
    basis = soft_one_hot_linspace(step.norm(dim=1), 0.0, 4.0, 8, basis="smooth_finite", cutoff=True)
    optimizer = torch.optim.Adam(weights.parameters(), lr=0.01)
    losses = []
    for _ in range(6):
        sent = product(kinds[source], around, weights(basis))
        found = torch.zeros(10, irreps.dim, device=DEVICE).index_add(0, target, sent)
        loss = (found.square().sum(1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return found.device, losses


@case("tensors: Cartesian and spherical, norms, batch normalisation")
def tensors() -> tuple[object, list[float]]:
    cartesian = io.CartesianTensor("ij=ji")
    x = draw(3, 3)
    spherical = cartesian.from_cartesian(x + x.T)
    torch.testing.assert_close(cartesian.to_cartesian(spherical), x + x.T, rtol=1e-4, atol=1e-4)
    norm = nn.BatchNorm("2x0e + 1o").to(DEVICE)
    y = draw(8, 5, seed=1)
    lengths = o3.Norm("2x0e + 1o").to(DEVICE)(y)
    return y.device, [*spherical.tolist(), *norm(y).flatten().tolist(), *lengths.flatten().tolist()]
