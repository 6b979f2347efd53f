"""A script as people write it for CUDA. The tests change `nccl` and `cuda` in it, and nothing else.

usage: torchrun --nproc-per-node=N for_cuda.py FOLDER
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS, ROWS, WIDTH, BATCH = 3, 64, 16, 8


def made():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, 1))


def data():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True).sin())


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group(backend="nccl", device_id=device)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.cuda.manual_seed_all(rank)
    if rank == 0:
        print(torch.cuda.get_device_name(device), torch.cuda.device_count(), flush=True)

    model = made().to(device)
    model = DistributedDataParallel(model, device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda")
    sampler = DistributedSampler(data(), size, rank, shuffle=False)
    loader = DataLoader(data(), batch_size=BATCH // size, sampler=sampler, pin_memory=True)
    losses = []
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x).float(), y)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        losses.append(total.item() / (len(loader) * size))
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) > 0
    assert torch.cuda.max_memory_allocated() > 0
    torch.cuda.empty_cache()

    path = os.path.join(sys.argv[1], "checkpoint.pt")
    if rank == 0:
        torch.save(model.module.state_dict(), path)
    dist.barrier(device_ids=[local_rank])
    saved = torch.load(path, map_location={"cuda:0": f"cuda:{local_rank}"})
    for name, value in model.module.state_dict().items():
        assert saved[name].device == device and torch.equal(saved[name], value)
    everyone = [None] * size
    dist.all_gather_object(everyone, losses)
    assert everyone[0] == everyone[-1]
    line = " ".join(["losses", *map(str, losses)])
    print(f"{line}\n", end="", flush=True)  # at once, or those of two ranks may mix
    dist.destroy_process_group()


def alone():
    """The losses of one process on the CPU, which takes the same rows in each step."""
    model = made()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = data().tensors
    losses = []
    for _ in range(EPOCHS):
        total = 0.0
        for rows in torch.arange(ROWS).split(BATCH):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x[rows]).float(), y[rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        losses.append(total / (ROWS // BATCH))
    return losses


if __name__ == "__main__":
    main()
