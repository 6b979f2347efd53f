"""accelerate: training in each precision, accumulation, offload, checkpoints, device maps."""

import tempfile

import torch
from accelerate import Accelerator, cpu_offload, dispatch_model, infer_auto_device_map
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import find_executable_batch_size, set_seed
from case import case
from torch import nn


def model() -> nn.Sequential:
    set_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.0), nn.Linear(32, 2))


def loader() -> torch.utils.data.DataLoader:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=generator)
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=16)


def train(epochs: int = 2, **options: object) -> tuple[object, list[float]]:
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(**options)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    net, optimizer, data = accelerator.prepare(net, optimizer, loader())
    losses = []
    for _ in range(epochs):
        for x, y in data:
            with accelerator.accumulate(net):
                loss = nn.functional.cross_entropy(net(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
    return accelerator.device, losses


@case("training")
def plain() -> tuple[object, list[float]]:
    return train()


@case("training in bf16", 2e-2)
def bf16() -> tuple[object, list[float]]:
    return train(mixed_precision="bf16")


@case("training, gradients of two batches")
def accumulated() -> tuple[object, list[float]]:
    return train(gradient_accumulation_steps=2)


@case("a checkpoint, resumed")
def resumed() -> tuple[object, list[float]]:
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator()
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net, optimizer, data = accelerator.prepare(net, optimizer, loader())
    drawn = []

    def epoch() -> list[float]:
        losses = []
        for x, y in data:
            loss = nn.functional.cross_entropy(net(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        drawn.append(torch.rand(4, device=accelerator.device).tolist())
        return losses

    with tempfile.TemporaryDirectory() as folder:
        epoch()
        accelerator.save_state(folder)
        first = epoch()
        accelerator.load_state(folder)
        again = epoch()
    assert first == again and drawn[1] == drawn[2], (first, again, drawn)
    return accelerator.device, first


@case("cpu_offload")
def offloaded() -> tuple[object, list[float]]:
    PartialState._reset_state()
    device = PartialState().device
    net = cpu_offload(model().eval(), execution_device=device)
    y = net(torch.ones(3, 8))
    assert net[0].weight.device.type == "meta"
    return device, y.sum(1).tolist()


@case("device_map='auto'")
def spread() -> tuple[object, list[float]]:
    net = model().eval()
    places = infer_auto_device_map(net)
    net = dispatch_model(net, places)
    y = net(torch.ones(3, 8, device=next(net.parameters()).device))
    return y.device, y.sum(1).tolist()


@case("find_executable_batch_size")
def batches() -> tuple[object, list[float]]:
    PartialState._reset_state()
    device = PartialState().device
    tried = []

    @find_executable_batch_size(starting_batch_size=64)
    def work(batch_size: int) -> None:
        tried.append(batch_size)
        if batch_size > 16:
            torch.ones(2**40, device=device).sum().item()

    work()
    return device, tried


@case("an explicit cpu=True is the CPU")
def on_cpu() -> tuple[object, list[float]]:
    device, losses = train(cpu=True)
    assert device.type == "cpu"
    return "tpu is not taken" if hasattr(torch, "tpu") else device, losses
