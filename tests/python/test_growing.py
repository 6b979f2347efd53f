"""What becomes longer from call to call is held with room for more, which nobody ever sees."""

import io
import os
import threading

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, check, counted, modes, only_tpu, python, same, slow_but

import torch_tpu

pytestmark = [
    only_tpu,
    pytest.mark.skipif(
        os.environ.get("TORCH_TPU_GROWING", "on") == "off", reason="TORCH_TPU_GROWING is off"
    ),
]
LENGTHS = (5, 9, 7, 12, 6, 11, 70, 8, 130, 65, 30, 66)


@pytest.fixture(params=slow_but(modes(), "strict"))
def mode(request):
    torch.tpu.eager_mode = request.param
    return request.param


# -- Caches --


def cached(device, count, width):
    """Attention of one token after another to all that came before it."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(count, 2, 3, 1, width, generator=generator).to(device)
    keys, outputs = tokens[0], []
    for token in tokens:
        keys = torch.cat([keys, token], 2)
        scores = (token @ keys.mT / 2).softmax(-1)
        outputs.append(scores @ keys + keys.sum(2, True) / 9 + keys[:, :, -1:].tanh())
    return torch.cat(outputs, 2), keys


def test_a_cache_compiles_no_more_for_each_token(mode):
    [count], (out, keys) = counted(lambda: cached(DEVICE, 60, 7), "programs")
    want, want_keys = cached("cpu", 60, 7)
    same(out, want, rtol=1e-5, atol=1e-5)
    same(keys, want_keys)
    assert keys.stride() == want_keys.stride()
    for _ in range(2 * (mode == "fused")):  # chunks that come again have programs of their own
        counted(lambda: cached(DEVICE, 60, 7), "programs")
    if mode != "debug":
        [more], _ = counted(lambda: cached(DEVICE, 60, 7), "programs")
        assert count <= 60 and more == 0


def masked(device, count):
    """Attention with masks made of ranges, as transformers' eager attention makes them."""
    keys, outputs = torch.linspace(-1, 1, 12).reshape(2, 6).to(device), []
    for i in range(count):
        keys = torch.cat([keys, keys[:1] + i / 8])
        at = torch.arange(len(keys), device=device)
        seen = (at[None] <= at[-1:, None] - 2) & (torch.arange(1, len(keys) + 1, device=device) > 1)
        scores = keys[-1:] @ keys.T + torch.where(seen, 0.0, -1e9)
        outputs.append(scores.softmax(-1) @ keys)
    return torch.cat(outputs), at


def test_ranges_that_become_longer(mode):
    out, at = masked(DEVICE, 50)
    want, want_at = masked("cpu", 50)
    same(out, want, rtol=1e-5, atol=1e-5)
    assert torch.equal(at.cpu(), want_at) and at.dtype == want_at.dtype


COUNTED = """
import sys, torch
sys.path.insert(0, {here!r})
from test_growing import counted, masked
torch.tpu.eager_mode = "{mode}"
print(counted(lambda: masked("tpu", 50), "programs")[0][0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", slow_but(["strict", "fused"], "strict"))
def test_programs_of_ranges_that_become_longer(mode):
    """In a process of its own: sizes that others upload to this one go along with theirs."""
    status, out, errors = python(COUNTED.format(mode=mode, here=os.path.dirname(__file__)))
    assert status == 0, errors
    assert int(out) <= 100


@pytest.mark.parametrize("dtype", slow_but([None, torch.int32, torch.float32]))
def test_ranges_of_other_dtypes(dtype):
    """Their numbers are the CPU's: from zero, from elsewhere, too large for room, once more."""
    for size in (5, 6, 7, 8, 9, 100, 101, 102, 103, 8, 9):
        for start in (0, -3, 1 << 24):
            here = torch.arange(start, start + size, dtype=dtype)
            there = torch.arange(start, start + size, dtype=dtype, device=DEVICE)
            same([there, there * 2, there.sum()], [here, here * 2, here.sum()])


def test_tensors_of_nothing_join_along_any_dim(mode):
    for dim in (1, -2, 7):
        assert torch.cat([torch.empty(0, device=DEVICE)] * 2, dim).shape == (0,)


@pytest.mark.parametrize("dim", slow_but([0, 1, -1], 0))
def test_along_any_dim(mode, dim):
    def grow(x):
        y = x
        for i in range(7):
            y = torch.cat([y, x.narrow(dim, 0, 1) * i], dim)
        return y, y.sum(dim), y.amax(), y * 2, y.narrow(dim, 1, 4), y.transpose(0, dim)

    check(grow, torch.randn(3, 4, 5))


def test_what_is_joined_need_not_grow(mode):
    """Joining in front, several at once, and something of another dtype."""

    def join(x):
        a = b = c = x
        for i in range(6):
            a = torch.cat([x[:1] + i, a])
            b = torch.cat([b, x[:2], x[1:2] - i])
            c = torch.cat([c, x[:1].double()])
        return a, b, c, a.mean(0), b.mean(), c.norm()

    check(join, torch.randn(3, 4))


def test_writes_through_views_of_a_cache(mode):
    def change(x):
        y = x
        for i in range(6):
            y = torch.cat([y, x[:1]])
            y[i] = i
            y[1:] += 1
            y.t()[0].mul_(2)
            y.view(-1)[::3] -= 1
        return y

    check(change, torch.ones(3, 4))


# -- Texts --


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_as_long_as_a_text(mode, dtype):
    """They are no texts: where each begins is still a run-time number."""
    for ids in texts((6, 7, 8, 6), 5):
        (ids.to(DEVICE) * 2).sum()

    def write(x, rows):
        for i in range(12):
            row = rows[i].repeat(2)[:6]
            x[i] = row
            x[i] += row * i
        return x, [x[i] * 2 for i in range(12)], [x[:, j].sum() for j in range(6)]

    check(write, torch.zeros(12, 6, dtype=dtype), torch.randn(12, 6, dtype=dtype))


def texts(lengths, batch):
    generator = torch.Generator().manual_seed(batch)
    return [torch.randint(1, 20, (batch, n), generator=generator) for n in lengths]


def encode(ids, table, weight):
    """A layer of a text model: words and places, a mask, attention, and a mean of what counts."""
    mask = ids % 5 > 0
    x = F.embedding(ids, table) + table[: ids.shape[1]]
    x = F.layer_norm(x @ weight, (8,))
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    heads = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask[:, None, None])
    x = x + heads.transpose(1, 2).flatten(2)
    return F.gelu(x), (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def programs_of_texts(batch):
    """How many each length asks for; the numbers are the CPU's."""
    torch.tpu.eager_mode = "strict"
    table, weight = torch.randn(200, 8), torch.randn(8, 8)
    tables, weights = table.to(DEVICE), weight.to(DEVICE)

    def run(ids):
        with torch.no_grad():
            return [one.cpu() for one in encode(ids.to(DEVICE), tables, weights)]

    programs = []
    for ids in texts(LENGTHS, batch):
        [count], found = counted(lambda ids=ids: run(ids), "programs")
        programs.append(count)
        same(found, list(encode(ids, table, weight)), rtol=1e-4, atol=1e-5)
    return programs


OF_TEXTS = """
import sys
sys.path.insert(0, {here!r})
from test_growing import programs_of_texts
print(*programs_of_texts({batch}))
"""


@pytest.mark.parametrize("batch", slow_but([1, 11]))
def test_a_text_model_compiles_for_the_first_lengths(batch):
    """In a process of its own: what other tests do first with such texts decides, too."""
    code = OF_TEXTS.format(here=os.path.dirname(__file__), batch=batch)
    status, out, errors = python(code)
    assert status == 0, errors
    programs = [int(count) for count in out.split()]
    assert sum(programs[4:6]) == 0 and programs[7] == programs[9] == 0, programs


@pytest.mark.slow
def test_gradients_of_a_text_model(mode):
    table, weight = torch.randn(200, 8), torch.randn(8, 8)

    def gradients(ids):
        def compute(ids, table, weight):
            table, weight = table.detach().requires_grad_(), weight.detach().requires_grad_()
            a, b = encode(ids, table, weight)
            return torch.autograd.grad(a.square().sum() + b.sum(), [table, weight])

        check(compute, ids, table, weight, tolerance={"rtol": 1e-3, "atol": 1e-3})

    for ids in texts(LENGTHS[:4], 2):
        gradients(ids)


# -- All others see what counts, and nothing else --

OTHERS = {
    "sort": lambda x: x.sort(0),
    "cumsum": lambda x: x.cumsum(0),
    "unique": lambda x: x.unique(),
    "nonzero": lambda x: x.nonzero(),
    "bytes": lambda x: x.view(torch.uint8),
    "bits": lambda x: x.view(torch.int32)[:, ::2],
    "windows": lambda x: x.unfold(0, 2, 1),
    "strided": lambda x: x.as_strided((3, 2), (1, 2), 1),
    "flipped": lambda x: x.flip(0)[:2],
    "flat": lambda x: x.reshape(-1)[1:-1].amin(),
    "index": lambda x: x[torch.tensor([0, -1]).to(x.device)],
    "one": lambda x: x[-1, -1].item(),
    "list": lambda x: x.tolist(),
    "copy": lambda x: x.clone().t().contiguous(),
    "like": lambda x: (torch.zeros_like(x), torch.ones_like(x[1:]), torch.empty_like(x).shape),
    "storage": lambda x: (x.untyped_storage().nbytes(), x.nbytes, x.storage_offset()),
    "grown storage": lambda x: x.resize_(x.numel() // 2),
    "in place": lambda x: x.add_(1).mul_(x).sum(),
    "any": lambda x: (x.any(), x.all(0), x.argmax(0), x.prod(), x.float().var(0)),
    "counted": lambda x: (x.count_nonzero(0), x.count_nonzero(1), x.count_nonzero()),
    "out of itself": lambda x: torch.mul(x, x, out=x),
    "part of it written": lambda x: x.narrow(1, 1, 2).clamp_(2, 9),
    "column after column": lambda x: [x.select(1, i).zero_().add_(i) for i in range(4)],
    "lists": lambda x: torch._foreach_add_([x[:1], x[1:]], 1),
    "where": lambda x: torch.where(x > 2, x, -x),
    "matrix": lambda x: x.float().t() @ x.float(),
    "out": lambda x: torch.mul(x, 2, out=torch.empty_like(x)),
    "split": lambda x: x.split(2, 0),
    "stack": lambda x: torch.stack([x, x]),
    "pad": lambda x: F.pad(x, (1, 1, 0, 2)),
    "one_hot": lambda x: F.one_hot(x % 7, 7),
}


QUICK = ("sort", "bits", "flipped", "in place", "counted", "out of itself", "part of it written")


@pytest.mark.parametrize("name", slow_but(OTHERS, *QUICK))
@pytest.mark.parametrize("where", slow_but(["strict", "fused"], "strict"))
def test_others(name, where):
    torch.tpu.eager_mode = where
    for ids in texts((2, 3, 4, 6), 4):
        check(OTHERS[name], ids.t().contiguous())


def test_saved_and_sent():
    torch.tpu.eager_mode = "strict"
    for ids in texts((2, 3, 4, 6), 3):
        x, file = ids.to(DEVICE), io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        same(torch.load(file), ids)
        same(torch.from_dlpack(x.clone()).to("cpu"), ids)
        same(x.to("cpu", non_blocking=True), ids)


def test_captured_graphs_see_exact_values():
    torch.tpu.eager_mode = "strict"
    held = [ids.to(DEVICE) for ids in texts((2, 3, 4, 6), 29)][-1]
    assert counted(lambda: held + 1, "ops_bounded")[0] == [1]
    graph = torch.tpu.Graph()
    with torch.tpu.graph(graph):
        out = held * 2 + held.sum()
    graph.replay()
    same(out.cpu(), held.cpu() * 2 + held.cpu().sum())


def test_debug_and_deterministic_modes_are_exact():
    torch.tpu.eager_mode = "debug"
    [bounded], _ = counted(lambda: [x.to(DEVICE) * 2 for x in texts(LENGTHS, 3)], "ops_bounded")
    assert bounded == 0
    torch.tpu.eager_mode = "strict"
    torch.use_deterministic_algorithms(True)
    try:
        [bounded], _ = counted(lambda: [x.to(DEVICE) * 2 for x in texts(LENGTHS, 3)], "ops_bounded")
    finally:
        torch.use_deterministic_algorithms(False)
    assert bounded == 0


def test_what_is_written_over_keeps_its_size():
    """As the static inputs of a step are."""
    torch.tpu.eager_mode = "strict"
    held = torch.zeros(3, 40, dtype=torch.long, device=DEVICE)
    for ids in texts((38, 39, 40), 3):
        ids.to(DEVICE)
    held.copy_(torch.ones(3, 40, dtype=torch.long))
    [bounded], out = counted(lambda: held + 1, "ops_bounded")
    assert bounded == 0 and out.sum().item() == 240


def test_what_nobody_sees_as_it_is_becomes_exact_at_once():
    torch.tpu.eager_mode = "strict"
    [settled], _ = counted(
        lambda: [x.to(DEVICE).sort(-1) for x in texts(range(10, 30), 7)], "settled"
    )
    assert settled <= 4  # and is tried ever more rarely


def test_threads():
    """That share a cache, which one of them makes exact while others use it as it is."""
    torch.tpu.eager_mode = "strict"
    errors = []

    def work(seed):
        try:
            for ids in texts(LENGTHS, 2):
                x = shared[ids.shape[1]]
                same((x * 2).sum(1).cpu(), (ids * 2).sum(1))
                if seed % 2:
                    same(x.sort(1)[0].cpu(), ids.sort(1)[0])
                same(x[:, 1:].amax().cpu(), ids[:, 1:].amax())
        except Exception as error:
            errors.append(error)

    for _ in range(3):
        shared = {ids.shape[1]: ids.to(DEVICE) for ids in texts(LENGTHS, 2)}
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors


def test_a_row_is_as_long_as_a_text_that_is_gone():
    """It is no position of its words."""
    torch.tpu.eager_mode = "strict"
    table = torch.ones(9, 11, 100, device=DEVICE)
    for n in (23, 24, 25, 26):
        text = torch.ones(31, n, dtype=torch.long).to(DEVICE)
        assert (text * 2).sum().item() == 62 * n
    with_text = counted(lambda: table[3, 2, :26] * 2, "ops_bounded")[0]
    del text
    without = counted(lambda: table[3, 2, :26] * 2, "ops_bounded")[0]
    assert (with_text, without) == ([1], [0])


def test_labels_that_go_on_with_one_size_stay_exact():
    """Their operator sees exact ones only; what was learnt is tried again when sizes change."""
    torch.tpu.eager_mode = "strict"

    def loss(n):
        labels = torch.ones(n, 13, dtype=torch.long).to(DEVICE)
        return F.multilabel_margin_loss(torch.ones(n, 13, device=DEVICE), labels)

    [learnt], _ = counted(lambda: [loss(n) for n in (35, 36, 37)], "settled")
    [settled], _ = counted(lambda: [loss(37) for _ in range(60)], "settled")
    assert (learnt, settled) == (2, 0)  # the labels, and as many ones


@pytest.mark.slow
def test_views_whose_dims_leave_a_row_together():
    """Padding was read and written, which the fuzzer found in a process that knew many sizes."""
    code = """
import torch
def numbers(device):
    a = torch.arange(9).reshape(3, 3).to(device)
    b = torch.arange(16).reshape(4, 4).to(device)
    c = torch.arange(6).reshape(2, 3).to(device)
    b.as_strided((2, 2), (3, 1)).add_(2)
    a = a.as_strided((2, 2, 2), (1, 1, 2))
    return [x.tolist() for x in (a, b, c.view(6)[:4].view(2, 2))]
assert numbers("tpu") == numbers("cpu"), numbers("tpu")
"""
    status, _, errors = python(code, TORCH_TPU_GROWING="last")
    assert status == 0, errors


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_row_of_what_was_not_written_yet(dtype, mode):
    """It was taken for all of its storage, where that had room for more."""
    torch.tpu.eager_mode = mode
    for size in (20, 30, 40):
        torch.tensor(range(size)).to(DEVICE)
    row = torch.tensor(range(1, 11))
    alive = row.to(DEVICE)
    for rows, at in ((10, 1), (12, 0), (10, 2), (4, -1), (10, slice(1, 3))):
        x = torch.empty(rows, 10, dtype=dtype, device=DEVICE)
        x[at] = alive.to(dtype)
        y = torch.empty(10, rows, dtype=dtype, device=DEVICE)
        y.t()[at] = alive.to(dtype)
        want = torch.zeros(rows, 10, dtype=dtype)[at] + row.to(dtype)
        same(x[at], want)
        same(y.t()[at], want)


GRAPHS = """
import torch
torch.tpu.eager_mode = "strict"
weight = torch.randn(8, 16, device="tpu", requires_grad=True)
def step(nodes, edges):
    x, labels = torch.randn(nodes, 8).to("tpu"), torch.randint(4, (nodes,)).to("tpu")
    ends = torch.randint(nodes, (2, edges)).to("tpu")
    sent = (x @ weight)[ends[0]]
    sums = torch.zeros(nodes, 16, device="tpu").index_add(0, ends[1], sent)
    torch.nn.functional.cross_entropy(sums.relu(), labels).backward()
    return weight.grad.sum().item()
for k in range(8):
    step(40 + 7 * k % 13, 150 + 11 * k)
before = torch.tpu.metrics()["programs"]
for k in range(8):
    step(41 + 5 * k % 17, 155 + 9 * k)
print(torch.tpu.metrics()["programs"] - before)
"""


@pytest.mark.slow
def test_graphs_compile_for_the_first_sizes():
    """What their nodes have is numbers with fractions, whose first dim changes."""
    status, out, errors = python(GRAPHS)
    assert status == 0 and out.split() == ["0"], out + errors


FEATURES = """
import torch
torch.tpu.eager_mode = "strict"
weight = torch.randn(8, 16, device="tpu")
def step(count):
    x = torch.randn(4, count, 8).to("tpu")  # before what says that counts change
    tags = torch.randint(5, (4, count)).to("tpu")
    boxes = torch.rand(count, 4).to("tpu")  # of which there may be four by chance
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return ((x @ weight).tanh().sum(-1) * tags).sum() + area.sum()
for count in (9, 17, 12, 4, 31, 26, 40):
    step(count)
before = torch.tpu.metrics()["programs"]
for count in (11, 19, 4, 37, 28):
    step(count).item()
print(torch.tpu.metrics()["programs"] - before)
"""


def test_features_of_words_go_along_with_them():
    """Along the dim that is not the first; few columns never are as many as words."""
    status, out, errors = python(FEATURES)
    assert status == 0 and out.split() == ["0"], out + errors


def test_parameters_are_exact():
    """As many of other sizes as there may be."""
    for size in range(9, 20):
        layer = torch.nn.Linear(13, size).to(DEVICE)
        assert torch_tpu._C.padded_sizes(layer.weight.detach()) is None
    for size in range(9, 20):
        x, _ = torch.ones(size, 13).to(DEVICE), torch.ones(size, dtype=torch.long).to(DEVICE)
    assert torch_tpu._C.padded_sizes(x) is not None


@pytest.mark.slow
def test_it_can_be_turned_off():
    code = """
import torch
torch.tpu.eager_mode = "strict"
for n in range(5, 20):
    (torch.ones(2, n, dtype=torch.long).to("tpu") * 2).sum()
print(torch.tpu.metrics()["ops_bounded"])
"""
    for value, bounded in (("on", True), ("off", False)):
        status, output, errors = python(code, TORCH_TPU_GROWING=value)
        assert status == 0 and (int(output) > 0) == bounded, errors
