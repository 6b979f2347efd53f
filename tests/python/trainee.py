"""A script that trains by DDP, saves what it has at each step, and goes on from what was saved.

What the tests of faults start. `--fault` is what happens to one rank in the middle of a step, the
first time that it comes there.
"""

import argparse
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BATCH, WIDTH = 8, 16


class Faulty(nn.Module):
    """Passes through what it is given; `act` is called where a gradient comes back."""

    act = None

    def forward(self, x):
        if self.act and x.requires_grad:
            act, self.act = self.act, None
            x.register_hook(lambda gradient: act(gradient))
        return x


def made():
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 32), nn.Tanh(), Faulty(), nn.Linear(32, 32), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(32, WIDTH))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x, x.roll(1, 1).sin()


def new_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def one_step(model, optimizer, x, y):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def alone(steps):
    """The losses of one process on the CPU, of the same batches."""
    model = made()
    optimizer = new_optimizer(model)
    return [one_step(model, optimizer, *batch(step)).item() for step in range(steps)]


def act(fault, gradient):
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "raise":
        raise ValueError("on purpose")
    if fault == "slow":
        time.sleep(3)
    if fault == "memory":
        return gradient + torch.zeros(2**40, device=gradient.device).sum()
    return gradient


def save(path, model, optimizer, losses):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--fault", default="")
    parser.add_argument("--rank", type=int, default=1, help="whom it happens to")
    parser.add_argument("--at", type=int, default=3, help="the step")
    parser.add_argument("--pause", type=float, default=0, help="seconds between steps")
    args = parser.parse_args(arguments)

    dist.init_process_group("tpu", timeout=timedelta(seconds=args.timeout))
    rank, size = dist.get_rank(), dist.get_world_size()
    plain = made().to("tpu")
    optimizer = new_optimizer(plain)
    path, losses = args.folder / "checkpoint.pt", []
    if path.exists():
        saved = torch.load(path, map_location="tpu")
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        losses = saved["losses"]
    print(f"rank {rank} begins at step {len(losses)}", flush=True)
    model = nn.parallel.DistributedDataParallel(plain)
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    for step in range(len(losses), args.steps):
        if args.fault and step == args.at and rank == args.rank and not restarted:
            plain[2].act = lambda gradient: act(args.fault, gradient)
        loss = one_step(
            model, optimizer, *(part.chunk(size)[rank].to("tpu") for part in batch(step))
        )
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
        if rank == 0:
            save(path, plain, optimizer, losses)
        print(f"rank {rank} ended step {step}", flush=True)
        time.sleep(args.pause)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is done", flush=True)
    return losses


if __name__ == "__main__":
    main()
