"""What changes from call to call is an operand: an offset, an index, a start compiles once."""

import threading

import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, check, compiled, living, modes, only_tpu, raises_alike, same, slow_but

pytestmark = only_tpu
COUNT = 50
LOOPS = {}  # name -> what runs iteration i on the tensors that the function of the name makes


def numbers(*shape, dtype=torch.float32):
    """Small integers, whose sums and products are exact."""
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


def loop(programs, *shapes):
    """Names a loop's body(i, *tensors), and how many programs its iterations may need in all."""

    def add(body):
        LOOPS[body.__name__] = (programs, shapes, body)
        return body

    return add


@loop(2, (COUNT, 8, 4))
def read_row(i, x):
    return x[i] * 2


@loop(3, (COUNT, 8))
def write_number(i, out):
    out[i] = 1.5


@loop(2, (COUNT, 8), (8,))
def write_row(i, out, row):
    out[i] = row


@loop(2, (COUNT, 8), (8,))
def add_to_row(i, out, row):
    out[i] += row


@loop(2, (6, COUNT, 8))
def read_step(i, x):
    return x[:, i] * 2


@loop(2, (6, COUNT, 8), (6, 8))
def write_step(i, out, h):
    out[:, i] = h


@loop(2, (COUNT + 4, 8), (8, 3))
def window_times_matrix(i, x, w):
    return x[i : i + 4] @ w


@loop(2, (10, 10, 3))
def view_of_view(i, x):
    return x[i % 10][i * 3 % 10] + 1


@loop(2, (10, 10, 3))
def write_view_of_view(i, x):
    x[i % 10][i * 3 % 10].add_(3)


@loop(2, (COUNT + 3, 5))
def narrow(i, x):
    return x.narrow(0, i, 3).sum(0)


@loop(2, (COUNT, 8))
def negative_index(i, x):
    return x[-1 - i].abs()


@loop(2, (8, COUNT))
def transposed(i, x):
    return x.t()[i] * 2


@loop(2, (400,))
def as_strided(i, x):
    return x.as_strided((3, 4), (9, 2), 3 * i) * 2


@loop(3, (96,))
def windows_across_rows(i, x):
    return x[i : i + 6].view(2, 3) * 2


@loop(2, (6, 120))
def every_fourth(i, x):
    return x[:, i : i + 40 : 4] * 2


@loop(2, (6, 120))
def write_every_fourth(i, x):
    x[:, i : i + 40 : 4].add_(3)


@loop(2, (COUNT, 8))
def other_dtype(i, x):
    return x.view(torch.int32)[i] + 2


@loop(2, (COUNT, 8))
def write_other_dtype(i, x):
    x.view(torch.int16)[i].mul_(3)


@loop(2, (COUNT, 8))
def repeated(i, x):
    return x[i].expand(3, 8) + 5


@loop(2, (COUNT + 3, 4))
def flipped(i, x):
    return x[i : i + 3].flip(0)


@loop(2, (COUNT + 1, 8))
def from_the_row_before(i, x):
    x[i + 1].copy_(x[i])


@loop(2, (COUNT, 8))
def any_two_rows(i, x):
    x[i * 7 % COUNT].add_(x[i * 13 % COUNT + (i * 7 - i * 13) % COUNT // COUNT])


@loop(3, (COUNT, 8))
def two_rows(i, x):
    return x[i * 7 % COUNT] * x[i * 13 % COUNT]


@loop(2, (COUNT, 8))
def list_of_rows(i, x):
    return torch.stack([x[i], x[(i + 1) % COUNT], x[i]])


@loop(2, (COUNT, 5), (5,))
def select_scatter(i, x, row):
    return torch.select_scatter(x, row, 0, i - COUNT if i % 2 else i)


@loop(2, (COUNT + 3, 5), (3, 5))
def slice_scatter(i, x, rows):
    return torch.slice_scatter(x, rows, 0, i, i + 3)


@loop(2, (5, 120), (5, 10))
def slice_scatter_with_steps(i, x, columns):
    return torch.slice_scatter(x, columns, 1, i, i + 40, 4)


@loop(2, (7, COUNT))
def select_backward(i, grad):
    return torch.ops.aten.select_backward(grad, [7, 60, COUNT], 1, i - 60)


@loop(2, (3, 4))
def slice_backward(i, grad):
    return torch.ops.aten.slice_backward(grad, [COUNT + 5, 4], 0, i, i + 5, 2)


def run(name, device, begin, end, each=lambda: None):
    """What iterations begin to end return, and the tensors afterwards."""
    _, shapes, body = LOOPS[name]
    tensors = [numbers(*shape).to(device) for shape in shapes]
    results = []
    for i in range(begin, end):
        results.append(body(i, *tensors))
        each()
    return [one for one in results if one is not None], tensors


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, mode):
    torch.tpu.eager_mode = mode
    each = torch.tpu.synchronize  # else Fused mode makes programs of several iterations
    programs, (results, tensors) = compiled(lambda: run(name, DEVICE, 0, COUNT, each))
    assert programs <= LOOPS[name][0]
    for got, want in zip((results, tensors), run(name, "cpu", 0, COUNT), strict=True):
        same(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["read_row", "write_step", "add_to_row", "every_fourth"])
def test_fused_loops_settle(name):
    torch.tpu.eager_mode = "fused"
    for _ in range(4):
        held = run(name, DEVICE, 0, COUNT)  # what is held at the end shapes a program
        torch.tpu.synchronize()
        del held
    programs, (results, tensors) = compiled(lambda: run(name, DEVICE, 0, COUNT))
    assert programs == 0
    for got, want in zip((results, tensors), run(name, "cpu", 0, COUNT), strict=True):
        same(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("mode", modes())
def test_the_last_iterations_are_as_the_first_ones_would_be(mode):
    """A loop that begins elsewhere finds the programs of the one before."""
    torch.tpu.eager_mode = mode
    run("read_step", DEVICE, 0, 3, torch.tpu.synchronize)
    with torch.tpu.no_recompile():
        results, _ = run("read_step", DEVICE, 17, COUNT, torch.tpu.synchronize)
    same(results, run("read_step", "cpu", 17, COUNT)[0], rtol=0, atol=0)


@pytest.mark.parametrize("mode", slow_but(modes(), "strict"))
def test_two_loops_of_different_shapes(mode):
    torch.tpu.eager_mode = mode
    tall, wide = numbers(COUNT, 5).to(DEVICE), numbers(COUNT, 7).to(DEVICE)

    def both():
        rows = []
        for i in range(COUNT):
            rows += [tall[i] * 3, wide[i] * 3]
            torch.tpu.synchronize()
        return rows

    programs, rows = compiled(both)
    assert programs <= 4
    want = [x[i] * 3 for i in range(COUNT) for x in (tall.cpu(), wide.cpu())]
    same(rows, want, rtol=0, atol=0)


def test_unwritten_memory():
    """The first write makes the storage; all others change it."""
    torch.tpu.eager_mode = "strict"
    out = torch.empty(COUNT, 6, device=DEVICE)
    row = numbers(6).to(DEVICE)

    def write():
        for i in range(COUNT):
            out[i] = row

    assert compiled(write)[0] <= 2
    same(out, numbers(6).expand(COUNT, 6), rtol=0, atol=0)


@pytest.mark.parametrize("mode", slow_but(modes(), "strict"))
def test_gradients(mode):
    torch.tpu.eager_mode = mode

    def rows(x, w):
        for i in range(COUNT):
            loss = (x[i] * 2 - x[i : i + 3] @ w) * x[i : i + 3, i % 4 : i % 4 + 1]
            (loss.sum() + x[:, i % 4].sum()).backward()
            if x.device.type == "tpu":
                torch.tpu.synchronize()
        return x.grad, w.grad

    x, w = numbers(COUNT + 2, 4), numbers(4, 4)
    want = rows(x.clone().requires_grad_(), w.clone().requires_grad_())
    on_device = [one.to(DEVICE).requires_grad_() for one in (x, w)]
    programs, got = compiled(lambda: rows(*on_device))
    assert programs <= 50
    same(got, want, rtol=0, atol=0)


def test_recurrence():
    """A cell over time steps, forward and backward, in one graph."""

    def cell(x, w):
        h, out = torch.zeros(3, 4, device=x.device), []
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] + h @ w)
            out.append(h)
        return torch.stack(out, 1)

    x, w = torch.randn(3, 20, 4), torch.randn(4, 4) / 4
    short = torch.randn(3, 20, 4)
    programs, _ = compiled(lambda: cell(short.to(DEVICE), w.to(DEVICE)))
    assert programs <= 8

    def loss(x, w):
        cell(x, w).square().sum().backward()
        return x.grad, w.grad

    check(loss, x.requires_grad_(), w.requires_grad_())


def test_errors_stay():
    """What is out of range is PyTorch's to say, also where others were run-time numbers."""
    x, row = numbers(6, 4), numbers(4)
    for device in ("cpu", DEVICE):
        whole, part = x.to(device), row.to(device)
        for i in range(6):
            torch.select_scatter(whole, part, 0, i)
            torch.slice_scatter(whole, part.expand(2, 4), 0, min(i, 4), min(i, 4) + 2)
        for index in (6, -7):
            with pytest.raises(IndexError, match="out of range"):
                torch.select_scatter(whole, part, 0, index)
        for start, end in ((5, 7), (-2, -1), (4, 7), (-2, 0), (0, 0), (9, 9)):
            with pytest.raises(RuntimeError, match="size equal to the slice"):
                torch.slice_scatter(whole, part.expand(3, 4), 0, start, end)
        for i in range(1, 4):
            whole[i].add_(whole[i - 1])
            with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
                whole.view(-1)[4 * i : 4 * i + 4].add_(whole.view(-1)[4 * i - 1 : 4 * i + 3])


SCATTERS = {
    "slice": lambda x, part, k: torch.slice_scatter(x, part, 0, -2, k),
    "slice-step": lambda x, part, k: torch.slice_scatter(x, part, 0, k, None, 2),
    "select": lambda x, part, k: torch.select_scatter(x, part, 0, k),
    "diagonal": torch.diagonal_scatter,
    "strided": lambda x, part, k: torch.as_strided_scatter(x, part, (2, 4), (4, 1), k),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_parts_of_other_sizes_are_refused(name):
    """Every part at every place: it fits on both devices, or on neither."""
    x, fitting = numbers(6, 4), 0
    for sizes in ((4,), (1,), (), (1, 4), (2, 4), (3, 4), (2, 1), (3,), (0, 4)):
        for k in (-7, -6, -5, -3, -1, 0, 1, 3, 5, 6, 8):
            part = numbers(*sizes)
            try:
                wanted = SCATTERS[name](x, part, k)
            except (RuntimeError, IndexError) as error:
                with pytest.raises(type(error)):
                    SCATTERS[name](x.to(DEVICE), part.to(DEVICE), k).cpu()
            else:
                fitting += 1
                found = SCATTERS[name](x.to(DEVICE), part.to(DEVICE), k)
                assert torch.equal(found.cpu(), wanted)
    assert fitting


def test_gradients_of_other_sizes_are_refused():
    ops = torch.ops.aten
    for call in (
        lambda g: ops.slice_backward(g, [6, 4], 0, -2, 0, 1),
        lambda g: ops.select_backward(g, [6, 4], 0, 1),
        lambda g: ops.diagonal_backward(g, [6, 4], 0, 0, 1),
    ):
        raises_alike(call, numbers(3, 7))


def test_a_part_whose_size_varies_is_put_back_anywhere():
    """Start and size are run-time numbers then, both of them."""
    put = torch.ops.aten.slice_backward
    parts = [numbers(n, 4) for n in (5, 7, 3, 6, 3, 7, 5, 6)]
    texts = living(*map(len, parts))

    def work(parts):
        starts = range(0, 2 * len(parts), 2)
        return [put(x, [30, 4], 0, at, at + len(x), 1) for at, x in zip(starts, parts, strict=True)]

    programs, got = compiled(lambda: work([part.to(DEVICE) for part in parts]))
    same(got, work(parts), rtol=0, atol=0)
    assert texts and programs <= 3


@pytest.mark.parametrize("sizes", [(3, 7), (7, 3)])
def test_gradients_of_other_sizes_are_refused_where_sizes_vary(sizes):
    """A gradient of a row that has the row's dim has a length there, and nothing says its end."""
    texts = living(5, 6, 7, 3)
    raises_alike(
        lambda g: torch.ops.aten.slice_backward(g, [8, sizes[1]], 0, 1, 6, 1), numbers(*sizes)
    )
    for dim in (0, 1):
        raises_alike(
            lambda g, d=dim: torch.ops.aten.select_backward(g, [6, 4], d, 1), numbers(*sizes)
        )
    assert texts


def test_ends_that_are_cut_off():
    x, rows = numbers(9, 4), numbers(3, 4)

    def scatter(x, rows):
        starts = [0, 1, 5, 6, 7, -4, -3, -9, 2]
        ends = [3, 4, 8, 9, 12, -1, None, -6, 5]
        return [
            torch.slice_scatter(x, rows[: len(range(*slice(a, b).indices(9)))], 0, a, b)
            for a, b in zip(starts, ends, strict=True)
        ]

    check(scatter, x, rows, tolerance={"rtol": 0, "atol": 0})


def test_nothing_to_see():
    x = numbers(8, 6).to(DEVICE)
    for i in range(6):
        assert (x[i:i] * 2).shape == (0, 6)
        x[i:i] = 5
    same(x, numbers(8, 6), rtol=0, atol=0)


def test_bools_and_complex_numbers():
    def rows(x, z):
        flags = x > 0
        for i in range(x.shape[0]):
            flags[i].logical_not_()
            z[i] *= 2
            torch.view_as_real(z)[i, :, 1].add_(1)
        return flags, z

    z = torch.complex(numbers(9, 3), numbers(9, 3))
    check(rows, numbers(9, 3), z, tolerance={"rtol": 0, "atol": 0})


def test_random_numbers_beside_places():
    """A random operator is handed its places before its seed."""
    out, want = (torch.zeros(6, 4, device=DEVICE) for _ in range(2))
    torch.manual_seed(5)
    for i in range(6):
        out[i].uniform_(2, 3)
    torch.manual_seed(5)
    for i in range(6):
        want[i] = torch.empty(4, device=DEVICE).uniform_(2, 3)
    same(out, want.cpu(), rtol=0, atol=0)


def test_decomposed_operators():
    x = torch.randn(20, 8)

    def losses(x):
        return [F.huber_loss(x[i], x[i + 1]) + F.gelu(x[i]).sum() for i in range(19)]

    check(losses, x)
    assert compiled(lambda: losses(torch.randn(20, 8).to(DEVICE)))[0] <= 8


def test_captured_graphs():
    x, out = numbers(8, 6).to(DEVICE), torch.zeros(8, 6, device=DEVICE)
    graph = torch.tpu.Graph()
    with torch.tpu.graph(graph):
        for i in range(8):
            out[i] = x[7 - i] * 2
    x.add_(1)
    graph.replay()
    same(out, (numbers(8, 6) + 1).flip(0) * 2, rtol=0, atol=0)


def test_why():
    x = numbers(4, 6).to(DEVICE)
    for i in range(4):
        x[i].sinh()
    text = torch.tpu.explain()
    assert "operand 0 is a view whose offset changes, and is a run-time number from now on" in text


def test_threads():
    x, failed = numbers(COUNT, 16), []
    on_device = x.to(DEVICE)

    def work(first):
        for i in range(first, first + 60):
            row = i * 7 % COUNT
            if not torch.equal((on_device[row] * 3 - 1).cpu(), x[row] * 3 - 1):
                failed.append(row)

    threads = [threading.Thread(target=work, args=(11 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.slow
def test_offsets_beyond_32_bits():
    """Of one byte each; half of them are never looked at."""
    x = torch.zeros(2**31 + 4096, dtype=torch.uint8, device=DEVICE)
    for i in range(3):
        at = 2**31 + 1024 * i
        x[at : at + 8] = i + 2
        assert (x[at - 4 : at + 4] + 1).tolist() == [1] * 4 + [i + 3] * 4
