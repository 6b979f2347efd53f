"""How much of the ranks' communication is hidden behind their computations?

usage: torchrun --nproc-per-node=2 bench/distributed_overlap.py [--case ddp|fsdp2] [--out PNG]
On hosts with a network of their own, whose communication takes no processor:
  python tests/python/hosts.py --rate 800mbit bench/distributed_overlap.py
Communication is what the flight record says. Computation is what lies between events around each
layer's forward and backward, of which the former is passed when what the layer waits for is there.
Prints a line of JSON for rank 0: milliseconds of a step, of communication in it, and the share of
that during which a layer computed; and draws the last step as a timeline.
"""

import argparse
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from distributed import BATCH, GPT, TOKENS, VOCABULARY
from torch import nn

Interval = tuple[float, float]


class Spans:
    """Events around what modules compute, forward and backward."""

    def __init__(self) -> None:
        self.events: list[tuple[str, torch.Event]] = []

    def mark(self, name: str) -> None:
        """Records an event."""
        event = torch.Event(device="tpu", enable_timing=True)
        event.record()
        self.events.append((name, event))

    def watch(self, name: str, module: nn.Module) -> None:
        """Marks where the module begins and ends."""

        def backward(x: torch.Tensor, which: str) -> None:
            if x.requires_grad:
                x.register_hook(lambda _: self.mark(f"{name} {which}"))

        def before(_: nn.Module, args: tuple[Any, ...]) -> None:
            self.mark(f"{name} forward")
            if args[0].is_floating_point():
                backward(args[0], "end")

        def after(_: nn.Module, _args: tuple[Any, ...], output: torch.Tensor) -> None:
            self.mark(f"{name} end")
            backward(output, "backward")

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)

    def intervals(self, zero: torch.Event) -> list[tuple[str, Interval]]:
        """Returns what was computed, in milliseconds behind an event; forgets all events."""
        times = [(name, zero.elapsed_time(event)) for name, event in self.events]
        self.events.clear()
        found, begun = [], {}
        for name, at in times:
            module, _, which = name.partition(" ")
            if which != "end":
                begun[module] = (name, at)
            elif module in begun:
                first, begin = begun.pop(module)
                found.append((first, (begin, at)))
        return found


def united(intervals: list[Interval]) -> list[Interval]:
    """Returns the same times as intervals that do not overlap."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def length(intervals: list[Interval]) -> float:
    """Returns how long they are together."""
    return sum(end - begin for begin, end in intervals)


def common(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """Returns the times that lie in both, each of which has no overlaps."""
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in some for b in others)
    return [(begin, end) for begin, end in pairs if begin < end]


def wrapped(model: GPT, case: str, spans: Spans, bucket_mb: float) -> nn.Module:
    """Returns the model as the ranks share it, watched."""
    layers = [*model.blocks]
    if case == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for one in layers:
            fully_shard(one)
        fully_shard(model)
    for number, one in enumerate(layers):
        spans.watch(f"layer{number}", one)
    if case == "fsdp2":
        return model
    return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_mb)


def draw(path: Path, title: str, computed: list[tuple[str, Interval]], sent: list[Any]) -> None:
    """Draws a step's timeline into a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 3.4), layout="constrained")
    first = min(begin for _, (begin, _) in [*computed, *sent])
    rows = {"forward": (1, "tab:blue"), "backward": (1, "tab:orange")}
    for name, (begin, end) in [*computed, *sent]:
        kind = name.rpartition(" ")[2]
        row, color = rows.setdefault(kind, (0, f"C{len(rows)}"))
        bar = [(begin - first, end - begin)]
        axes.broken_barh(bar, (row + 0.1, 0.8), color=color, edgecolor="white")
    for kind, (_, color) in rows.items():
        axes.barh(0, 0, color=color, label=kind)
    axes.set(xlabel="ms", title=title, yticks=[0.5, 1.5], yticklabels=["network", "layers"])
    figure.legend(ncols=len(rows), loc="outside lower center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Trains, and says what of the communication was hidden."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="ddp")
    parser.add_argument("--mode", default="strict")
    parser.add_argument("--safe", action="store_true", help="spmd_safe: collectives in programs")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4 * BATCH, help="rows of a rank")
    parser.add_argument("--bucket-mb", type=float, default=0.5)
    parser.add_argument("--out", type=Path, default=Path("out/overlap.png"))
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("tpu")
    torch.manual_seed(0)
    spans = Spans()
    model = wrapped(GPT().to("tpu"), args.case, spans, args.bucket_mb)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids, wanted = (torch.randint(0, VOCABULARY, (args.batch, TOKENS)).to("tpu") for _ in range(2))
    shares, steps, communicated = [], [], []
    computed: list[tuple[str, Interval]] = []
    sent: list[tuple[str, Interval]] = []
    safe = torch.tpu.distributed.spmd_safe() if args.safe else contextlib.nullcontext()
    with torch.tpu.set_eager_mode(args.mode), safe:
        for _ in range(args.steps):
            dist.barrier()
            torch.tpu.synchronize()
            zero = torch.Event(device="tpu", enable_timing=True)
            zero.record()
            zero.synchronize()
            start, known = time.time_ns(), len(_record())
            loss = F.cross_entropy(model(ids).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.tpu.synchronize()
            steps.append((time.time_ns() - start) / 1e6)
            sent = [
                (
                    f"{number} {one['profiling_name'].partition(':')[2]}",
                    (
                        (one["time_discovered_started_ns"] - start) / 1e6,
                        (one["time_discovered_completed_ns"] - start) / 1e6,
                    ),
                )
                for number, one in enumerate(_record()[known:])
            ]
            computed = spans.intervals(zero)
            ways = united([span for _, span in sent])
            communicated.append(length(ways))
            hidden = common(ways, united([span for _, span in computed]))
            shares.append(length(hidden) / length(ways))
    if dist.get_rank() == 0:
        half = len(shares) // 2  # the first steps compile
        share = sum(shares[half:]) / len(shares[half:])
        mean = [sum(one[half:]) / len(one[half:]) for one in (steps, communicated)]
        figures = {"step_ms": round(mean[0], 1), "communication_ms": round(mean[1], 1)}
        line = {"case": args.case, "mode": args.mode, "safe": args.safe} | figures
        print(json.dumps(line | {"hidden": round(share, 3)}), flush=True)
        draw(args.out, f"{args.case}: {share:.0%} of the communication is hidden", computed, sent)
    dist.destroy_process_group()


def _record() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = torch.tpu.distributed.flight_record()["entries"]
    return entries


if __name__ == "__main__":
    main()
