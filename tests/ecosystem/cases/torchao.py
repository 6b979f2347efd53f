"""torchao: models quantised after training, and for it; its optimizers need `torch.compile`."""

import copy

import torch
from case import case
from torch import Tensor, nn
from torchao import quantization as q
from torchao.quantization.qat import QATConfig

DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")
Result = tuple[object, list[float]]


def numbers(*found: Tensor) -> list[float]:
    return [value for one in found for value in one.detach().float().flatten()[:64].tolist()]


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    parts = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
    return parts.to(DEVICE, dtype).eval()


def quantised(config: object, dtype: torch.dtype = torch.float32) -> Result:
    one = model(dtype)
    q.quantize_(one, config)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    with torch.no_grad():
        y = one(x)
        again = copy.deepcopy(one)
        again.load_state_dict(one.state_dict())
        assert torch.equal(again(x), y)
    return y.device, numbers(y)


CONFIGS = {
    "weights in int8": (q.Int8WeightOnlyConfig(), torch.float32),
    "weights in int8, bf16 beside them": (q.Int8WeightOnlyConfig(), torch.bfloat16),
    "weights and activations in int8": (q.Int8DynamicActivationInt8WeightConfig(), torch.float32),
    "weights in 4 bits by groups": (
        q.IntxWeightOnlyConfig(torch.int4, q.PerGroup(32)),
        torch.float32,
    ),
    "weights in 4 bits, activations in int8": (
        q.Int8DynamicActivationIntxWeightConfig(torch.int4, q.PerGroup(32)),
        torch.float32,
    ),
    "weights in float8": (q.Float8WeightOnlyConfig(), torch.bfloat16),
}
for _name, (_config, _dtype) in CONFIGS.items():
    _tolerance = 2e-2 if _dtype is torch.bfloat16 else 1e-4
    case(f"quantize_: {_name}", _tolerance)(lambda c=_config, d=_dtype: quantised(c, d))


@case("NF4 weights, gradients through them")
def nf4() -> Result:
    weight = torch.randn(64, 128).to(DEVICE)
    few = q.to_nf4(weight, 64, 2)
    x = torch.randn(8, 128).to(DEVICE).requires_grad_()
    y = nn.functional.linear(x, few)
    y.square().sum().backward()
    return y.device, numbers(few.get_original_weight(), y, x.grad)


@case("quantisation-aware training, then converted", 2e-2)  # the last bit decides of codes
def aware() -> Result:
    base = q.Int8DynamicActivationIntxWeightConfig(torch.int4, q.PerGroup(32))
    one = model().train()
    q.quantize_(one, QATConfig(base, step="prepare"))
    optimizer = torch.optim.SGD(one.parameters(), lr=1e-2)
    x = torch.randn(16, 64).to(DEVICE)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = one(x).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss)
    q.quantize_(one, QATConfig(base, step="convert"))
    with torch.no_grad():
        return x.device, numbers(*found, one(x).square().mean())


@case("affine primitives: parameters, codes, values; fake quantisation")
def primitives() -> Result:
    x = torch.randn(32, 64).to(DEVICE)
    block = (1, 32)
    scale, zero = q.choose_qparams_affine(x, q.MappingType.ASYMMETRIC, block, torch.uint8)
    codes = q.quantize_affine(x, block, scale, zero, torch.uint8)
    values = q.dequantize_affine(codes, block, scale, zero, torch.uint8)
    return codes.device, numbers(scale, zero, codes, values)
