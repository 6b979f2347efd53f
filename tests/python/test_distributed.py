"""torch.distributed on "tpu": collectives of two processes, against Gloo on CPU tensors."""

import pytest
import torch
import torch.distributed as dist
from ranks import Ranks
from support import only_tpu

pytestmark = [only_tpu, pytest.mark.cpu_plugin("the transport is called from host memory")]

INTEGERS = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SMALL = (torch.float8_e5m2, torch.float8_e4m3fn)
COMPLEX = (torch.complex64, torch.complex128)
ALL = (*INTEGERS, *FLOATS, *SMALL, *COMPLEX, torch.bool)
REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
KINDS = (
    "all_reduce reduce broadcast all_gather all_gather_single reduce_scatter "
    "reduce_scatter_single all_to_all all_to_all_single gather scatter send"
).split()


@pytest.fixture(scope="module")
def ranks():
    with Ranks() as started:
        yield started


def tensor_of(rank, dtype, numel=12):
    """What a rank starts with: small numbers, of which products are exact."""
    generator = torch.Generator().manual_seed(rank + 1)
    whole = torch.randint(0, 4, (numel,), generator=generator)
    if dtype == torch.bool:
        return whole > 1
    if dtype.is_complex:
        return torch.complex(whole.double(), whole.flip(0).double()).to(dtype)
    if dtype.is_floating_point:
        return (whole.double() / 2).to(dtype)
    if dtype in (torch.uint64, torch.int64):
        return ((whole - 2 if dtype == torch.int64 else whole) * 2**61 + whole).to(dtype)
    return whole.to(dtype)


def reduced(name, tensors):
    """The reduction as PyTorch's operators on the host compute it."""
    first = tensors[0].dtype
    if first == torch.bool:
        name = {"SUM": "BOR", "MAX": "BOR", "PRODUCT": "BAND", "MIN": "BAND"}.get(name, name)
    narrow = first.itemsize == 1 and first.is_floating_point
    if name in ("MIN", "MAX") and first in (torch.uint16, torch.uint32, torch.uint64):
        both = [
            torch.tensor([int(x) for x in one.tolist()], dtype=torch.float64) for one in tensors
        ]
        stacked = torch.stack(tensors)
        chosen = torch.stack(both).argmin(0) if name == "MIN" else torch.stack(both).argmax(0)
        columns = stacked.view(torch.uint8).reshape(len(tensors), chosen.numel(), -1)
        picked = [columns[int(k), i] for i, k in enumerate(chosen)]
        return torch.stack(picked).flatten().view(first)
    if first in (torch.uint16, torch.uint32, torch.uint64):
        signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[first.itemsize]
        assert name != "AVG"
        return reduced(name, [one.view(signed) for one in tensors]).view(first)
    total = tensors[0].float() if narrow else tensors[0].clone()
    for one in tensors[1:]:
        one = one.float() if narrow else one
        if name in ("SUM", "AVG"):
            total = total + one
        elif name == "PRODUCT":
            total = total * one
        elif name in ("MIN", "MAX"):
            total = torch.minimum(total, one) if name == "MIN" else torch.maximum(total, one)
        else:
            total = {"BAND": total & one, "BOR": total | one, "BXOR": total ^ one}[name]
    if name == "AVG":
        whole = not (first.is_floating_point or first.is_complex)
        total = total.div(len(tensors), rounding_mode="trunc" if whole else None)
    return total.to(first)


def perform(kind, rank, size, tensors, device, reduction="SUM"):
    """The collective of the ranks' tensors, of which this rank gives its own; its results."""
    op = getattr(dist.ReduceOp, reduction)
    own = tensors[rank].clone().to(device)
    part = own.numel() // size
    parts = [torch.zeros(part, dtype=own.dtype, device=device) for _ in range(size)]
    wholes = [torch.zeros_like(own) for _ in range(size)]
    chunks = list(own.view(size, part).unbind())
    if kind == "all_reduce":
        dist.all_reduce(own, op)
        return [own]
    if kind == "reduce":
        dist.reduce(own, 1, op)
        return [own] if rank == 1 else []
    if kind == "broadcast":
        dist.broadcast(own, 1)
        return [own]
    if kind == "all_gather":
        dist.all_gather(wholes, own)
        return wholes
    if kind == "all_gather_single":
        whole = torch.zeros(size * own.numel(), dtype=own.dtype, device=device)
        dist.all_gather_single(whole, own)
        return [whole]
    if kind == "reduce_scatter":
        dist.reduce_scatter(parts[0], chunks, op)
        return [parts[0]]
    if kind == "reduce_scatter_single":
        dist.reduce_scatter_single(parts[0], own, op)
        return [parts[0]]
    if kind == "all_to_all":
        dist.all_to_all(parts, chunks)
        return parts
    if kind == "all_to_all_single":
        dist.all_to_all_single(wholes[0], own)
        return [wholes[0]]
    if kind == "gather":
        dist.gather(own, wholes if rank == 1 else None, dst=1)
        return wholes if rank == 1 else []
    if kind == "scatter":
        dist.scatter(parts[0], chunks if rank == 1 else None, src=1)
        return [parts[0]]
    if rank == 0:
        dist.send(own, 1)
        return []
    dist.recv(wholes[0], 0)
    return [wholes[0]]


def expected(kind, rank, size, tensors, reduction):
    """The same as of Gloo's on byte tensors, or by operators on the host."""
    if "reduce" in kind:
        total = reduced(reduction, tensors)
        if kind == "reduce":
            return [total] if rank == 1 else []
        return [total.chunk(size)[rank] if "scatter" in kind else total]
    as_bytes = [one.view(torch.uint8) for one in tensors]
    found = perform(kind, rank, size, as_bytes, "cpu")
    return [one.view(tensors[0].dtype) for one in found]


def bits(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


def compare(rank, size, kind, dtypes, reductions):
    """The cases that differ from Gloo's results, or from what operators on the host compute."""
    wrong = []
    for dtype in dtypes:
        tensors = [tensor_of(one, dtype) for one in range(size)]
        for reduction in reductions:
            if not applies(dtype, reduction, kind):
                continue
            found = perform(kind, rank, size, tensors, "tpu", reduction)
            for got, want in zip(
                found, expected(kind, rank, size, tensors, reduction), strict=True
            ):
                if got.dtype != want.dtype or not torch.equal(bits(got), bits(want)):
                    wrong.append((kind, dtype, reduction, got.cpu(), want))
            if "reduce" in kind and dtype in (*FLOATS, torch.int32) and reduction != "AVG":
                gloo = perform(kind, rank, size, tensors, "cpu", reduction)
                for got, want in zip(found, gloo, strict=True):
                    if not torch.equal(bits(got), bits(want)):
                        wrong.append(("gloo", kind, dtype, reduction, got.cpu(), want))
    return wrong


def applies(dtype, reduction, kind):
    if "reduce" not in kind:
        return reduction == "SUM"
    if dtype.is_complex:
        return reduction in ("SUM", "AVG")
    if dtype.is_floating_point:
        return not reduction.startswith("B")
    return reduction != "AVG" or dtype not in (torch.bool, *INTEGERS[5:])


@pytest.mark.parametrize("kind", KINDS)
def test_collectives_of_few_dtypes(ranks, kind):
    dtypes, reductions = (torch.float32, torch.int64), ("SUM", "AVG", "MAX")
    assert ranks.run(compare, kind, dtypes, reductions) == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_collectives_of_all_dtypes(ranks, kind):
    assert ranks.run(compare, kind, ALL, REDUCTIONS) == [[], []]
