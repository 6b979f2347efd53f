"""TorchScript: scripted, traced, saved and loaded programs compute what they do on the CPU."""

import io

import pytest
import torch
from support import DEVICE, modes, same, slow_but
from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")


@pytest.fixture(params=slow_but(modes(), "strict"), autouse=True)
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor, times: int) -> Tensor:
        y = torch.relu(self.norm(self.first(x)))
        for _ in range(times):
            y = y + y.sin() if float(y.sum()) > 0 else y - 1
        return self.second(y)


def pick(x: Tensor, mask: Tensor) -> Tensor:
    return x[mask]


def put(x: Tensor) -> Tensor:
    x[x < 2] = 7.0
    return x


def put_rows(x: Tensor, rows: Tensor, value: Tensor) -> Tensor:
    x[rows, 1:] = value
    return x + x[rows].sum()


def lists(x: Tensor) -> Tensor:
    parts = torch.split(x, [1, 2, 1])
    return torch.cat([one * (i + 1) for i, one in enumerate(parts)]) + torch.stack([x, x])[1]


CASES = {
    pick: lambda x: (x, x[:, 0] > 0),
    put: lambda x: (x.clone(),),
    put_rows: lambda x: (x.clone(), torch.tensor([2, 0], device=x.device), x[:2, 1:] * 3),
    lists: lambda x: (x,),
}


@pytest.mark.parametrize("function", CASES, ids=lambda one: one.__name__)
def test_functions(function):
    """The lists of optional tensors that TorchScript makes have a type of their own."""
    scripted, x = torch.jit.script(function), torch.randn(4, 5) + 1
    for _ in range(3):  # it is interpreted, profiled, and optimised
        same(scripted(*CASES[function](x.to(DEVICE))), function(*CASES[function](x)))


@pytest.mark.parametrize("make", [torch.jit.script, "trace"], ids=["script", "trace"])
def test_modules(make):
    net, x = Net(), torch.randn(5, 6)
    there = Net().to(DEVICE)
    there.load_state_dict(net.state_dict())
    if make == "trace":
        net, there = net.eval(), there.eval()
        made = torch.jit.trace(there, (x.to(DEVICE), torch.tensor(2)), check_trace=False)
        same(made(x.to(DEVICE), torch.tensor(2)), there(x.to(DEVICE), 2))
        return
    made = make(there)
    for _ in range(3):
        here, got = net(x, 2), made(x.to(DEVICE), 2)
        same(got, here)
        got.square().sum().backward()
        here.square().sum().backward()
    same([one.grad for one in there.parameters()], [one.grad for one in net.parameters()])


def test_files():
    net, x = torch.jit.script(Net().eval()), torch.randn(5, 6)
    file = io.BytesIO()
    torch.jit.save(net, file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location=DEVICE)
    same(loaded(x.to(DEVICE), 1), net(x, 1))
    file = io.BytesIO()
    torch.jit.save(loaded, file)
    file.seek(0)
    same(torch.jit.load(file, map_location="cpu")(x, 1), net(x, 1))
    frozen = torch.jit.freeze(loaded)
    for _ in range(3):
        same(frozen(x.to(DEVICE), 1), net(x, 1))
