"""Function transforms: vmap, grad, jvp and what is made of them, against the CPU."""

import pytest
import torch
import torch.autograd.forward_ad as dual
import torch.nn.functional as F
from support import DEVICE, check, modes, raises_alike
from torch import nn
from torch.func import (
    functional_call,
    functionalize,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

X = torch.linspace(-2, 3, 12).reshape(3, 4)


def attend(x):
    return F.scaled_dot_product_attention(x[None], x[None].sin(), x[None])


def in_place(x):
    y = x.clone()
    y[1:].mul_(3)
    y.t_() if y.dim() == 2 else y.neg_()
    return y


VMAPS = {
    "product": vmap(lambda x: x * x.sum()),
    "dims": vmap(lambda x: x.cumsum(0), in_dims=1, out_dims=1),
    "chunks": vmap(lambda x: x.sin().sum(), chunk_size=2),
    "nested": lambda x: vmap(vmap(lambda a, b: a @ b, (0, None)), (None, 0))(x, x + 1),
    "in-place": vmap(in_place),
    "in-place-outside": lambda x: (vmap(lambda row: row[1:].fill_(2))(x), x),
    "index": vmap(lambda x: x[torch.arange(2, device=x.device)]),
    "index-put": vmap(lambda x: x.clone().index_put_((x.argmax()[None],), x[:1])),
    "scatter": vmap(lambda x: torch.zeros_like(x).scatter_add(0, x.argsort(), x)),
    "sort": vmap(lambda x: (x.sort()[0], x.topk(2)[0], x.argmax())),
    "views": vmap(
        lambda x: (
            x.view(2, 2).t(),
            x.unfold(0, 2, 1),
            x.expand(2, 4),
            x.as_strided((2, 2), (1, 1)),
            x.view(torch.int32),
            x.chunk(2)[1],
        )
    ),
    "complex": vmap(lambda x: (torch.complex(x, x + 1).real, x.to(torch.complex64).conj())),
    "attention": lambda x: vmap(attend)(x.repeat(2, 2, 1)),
    "convolution": lambda x: vmap(F.conv1d)(x.reshape(3, 1, 1, 4), x.reshape(3, 1, 1, 4)[..., :2]),
    "inverse": lambda x: vmap(torch.linalg.inv)(x.t() @ x + torch.eye(4, device=x.device)[None]),
}


@pytest.mark.parametrize("name", VMAPS)
def test_vmap(name):
    check(VMAPS[name], X)


DERIVATIVES = {
    "grad": grad(lambda x: in_place(x).square().sum()),
    "grad-twice": grad(lambda x: grad(lambda y: (y**3).sum())(x).sum()),
    "per-sample": vmap(grad(lambda x: (x**3).sum())),
    "vjp": lambda x: vjp(torch.exp, x)[1](x),
    "jvp": lambda x: jvp(lambda a: in_place(a).sin(), (x,), (x + 1,)),
    "linearize": lambda x: linearize(lambda a: a.exp() * a, x)[1](x),
    "jacrev": lambda x: jacrev(lambda a: a.softmax(0) @ x[:2].t())(x[0]),
    "jacfwd": lambda x: jacfwd(lambda a: F.layer_norm(a, (4,)))(x),
    "hessian": lambda x: hessian(lambda a: a.sin().sum() * a.exp().prod())(x[0]),
    "attention-reverse": jacrev(attend),
    "attention-forward": jacfwd(attend),
    "functionalize": functionalize(lambda x: (in_place(x), x.view(-1)[1:].sin())),
    "functionalize-grad": vmap(grad(functionalize(lambda x: x.clone().mul_(x).sum()))),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name, mode):
    if DEVICE == "tpu":
        torch.tpu.eager_mode = mode
    check(DERIVATIVES[name], X, tolerance={"rtol": 1e-3, "atol": 1e-4})


def test_dual_numbers():
    def work(x):
        with dual.dual_level():
            y = dual.make_dual(x, x + 1)
            z = y.sin() * y
            z[1:].mul_(2)
            return *dual.unpack_dual(z), *dual.unpack_dual(attend(y))

    check(work, X)


def test_an_ensemble_of_modules():
    def work(x):
        torch.manual_seed(3)
        modules = [nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)) for _ in range(3)]
        modules = [module.to(x.device) for module in modules]
        params, buffers = stack_module_state(modules)

        def one(p, b, y):
            return functional_call(modules[0], (p, b), (y,))

        out = vmap(one, (0, 0, None))(params, buffers, x)
        out.square().sum().backward()
        return out, [p.grad for p in params.values()], buffers

    check(work, X, tolerance={"rtol": 1e-3, "atol": 1e-4})


def test_randomness():
    x = torch.zeros(3, 40, device=DEVICE)
    for draw in (torch.rand_like, lambda t: t.clone().normal_(), lambda t: F.dropout(t + 1)):
        same = vmap(draw, randomness="same")(x)
        different = vmap(draw, randomness="different")(x)
        assert torch.equal(same[0], same[1]) and not torch.equal(different[0], different[1])
    raises_alike(vmap(lambda t: t + torch.rand(40, device=t.device)), x.cpu())


def test_what_vmap_refuses():
    raises_alike(vmap(lambda t: t.sum().item()), X)
    raises_alike(vmap(lambda t: t[t > 0]), X)
    raises_alike(lambda x: vmap(lambda a, b: a.add_(b), (None, 0))(x[0], x), X)
