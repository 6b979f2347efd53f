"""Operators whose results' sizes depend on data: computed on the device, one count read back."""

import pytest
import torch
from support import check, modes, only_tpu, raises_alike, slow_but

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]
SHAPES = [(), (7,), (3, 4), (0, 3), (2, 3, 2)]


@pytest.fixture(autouse=True, params=[m for m in modes() if m != "debug"])
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


def numbers(shape, dtype=torch.float32, most=3):
    return torch.randint(0, most, shape).to(dtype)


@pytest.mark.diagonal
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.complex64])
def test_nonzero_and_masks(shape, dtype):
    x = numbers(shape, dtype)
    mask = numbers(shape, most=2) > 0
    check(torch.nonzero, x)
    check(torch.argwhere, x)
    check(torch.masked_select, x, mask)
    check(lambda a, m: a[m], x, mask)
    check(lambda a, m: torch.where(m), x, mask)
    check(lambda a, m: a.__setitem__(m, 1), x, mask)


def test_masks_that_broadcast_and_empty_ones():
    check(torch.masked_select, numbers((3, 1, 2)), numbers((4, 1)) > 0)
    check(lambda a: a[a > 5], numbers((3, 4)))
    check(lambda a: a[a >= 0], numbers((3, 4)))


def test_masks_over_some_dims():
    x, rows, columns = numbers((3, 4, 2)), torch.tensor([True, False, True]), torch.arange(4) < 2
    check(lambda a, m: a[m], x, rows)
    check(lambda a, m: a[:, m], x, columns)
    check(lambda a, m: a[m, 1:, 0], x, rows)
    check(lambda a, m, n: a[m, torch.tensor([1, 3], device=a.device)], x, rows, columns)
    check(lambda a, m: a[m.cpu()], x, rows)
    check(lambda a, m: a[m.byte()], x, rows)


def test_writes_through_masks():
    x, rows = numbers((3, 4)), torch.tensor([True, False, True])
    check(lambda a, m: a.__setitem__(m, 5.0), x, rows)
    check(lambda a, m, v: a.__setitem__(m, v), x, rows, torch.full((), 7.0))
    check(lambda a, m, v: a.__setitem__(m, v), x, rows, numbers((2, 4)))
    check(lambda a, m, v: a.__setitem__(a > 1, v), x, rows, torch.full((1,), 7.0))
    check(lambda a, m, v: a.index_put((m,), v, accumulate=True), x, rows, numbers((4,)))
    check(lambda a, m: a[1:].__setitem__(a[1:] > 0, -1.0), x, rows)


def test_a_number_is_written_through_a_mask_without_waiting():
    x = numbers((3, 4)).to("tpu")
    reads = torch.tpu.metrics()["reads"]
    x[x > 1] = 0.0
    assert torch.tpu.metrics()["reads"] == reads
    assert x.max() <= 1


@pytest.mark.slow
@pytest.mark.diagonal
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", slow_but([torch.float32, torch.bool, torch.int32], torch.bool))
def test_unique(shape, dtype):
    x = numbers(shape, dtype)
    for wanted in (False, True):
        more = {"return_inverse": wanted, "return_counts": wanted}
        check(lambda a, m=more: torch.unique(a, **m), x)
        check(lambda a, m=more: torch.unique_consecutive(a, **m), x)
        for dim in range(x.dim() if x.numel() else 0):
            check(lambda a, d=dim, m=more: torch.unique(a, dim=d, **m), x)
            check(lambda a, d=dim, m=more: torch.unique_consecutive(a, dim=d, **m), x)


@pytest.mark.slow
def test_unique_rows_are_sorted_by_all_columns():
    x = torch.randint(-1, 2, (40, 5))
    check(lambda a: torch.unique(a, dim=0, return_inverse=True, return_counts=True), x)


def test_unique_of_several_empty_dims_is_refused():
    raises_alike(lambda a: torch.unique(a, dim=0), torch.zeros(0, 3, 0))
    raises_alike(lambda a: torch.unique(a, dim=0), torch.zeros(3, 0))


def test_repeat_interleave():
    x, repeats = numbers((3, 4)), torch.tensor([2, 0, 3])
    check(torch.repeat_interleave, repeats)
    check(lambda a, r: torch.repeat_interleave(a, r, dim=0), x, repeats)
    check(torch.repeat_interleave, repeats[:0])
    raises_alike(torch.repeat_interleave, torch.tensor([1, -1]))


def test_bincount():
    x = numbers((20,), torch.int64, 6)
    check(torch.bincount, x)
    check(torch.bincount, x.byte(), minlength=9)
    for dtype in (torch.float32, torch.float64, torch.int64):
        check(torch.bincount, x, torch.randint(0, 5, (20,)).to(dtype))
    check(torch.bincount, x[:0], minlength=3)
    raises_alike(torch.bincount, torch.tensor([1, -1]))
    raises_alike(torch.bincount, torch.tensor([1.0]))
    raises_alike(torch.bincount, x, torch.ones(3))


def test_errors_are_the_cpus():
    raises_alike(lambda a, m: a[m], torch.zeros(3), torch.ones(2, dtype=torch.bool))
    raises_alike(torch.masked_select, torch.zeros(3), torch.ones(3))
    raises_alike(torch.masked_select, torch.zeros(3), torch.ones(2, dtype=torch.bool))


def test_results_are_given():
    x = numbers((3, 4))
    check(lambda a, out: torch.nonzero(a, out=out), x, torch.empty(0, dtype=torch.int64))
    check(lambda a, out: torch.masked_select(a, a > 0, out=out), x, torch.empty(0))


def test_gradients_through_masks():
    for device in ("cpu", "tpu"):
        x = torch.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        (x[x > 2] ** 2).sum().backward()
        assert x.grad.tolist() == [[0, 0, 0], [6, 8, 10]]


def test_the_programs_do_not_depend_on_the_count():
    x = torch.arange(10.0, device="tpu")

    def run(limit):
        few = torch.unique(x.clamp(max=limit), return_counts=True)[1]
        return len(x[x > limit]), len((x > limit).nonzero()), len(few)

    # With the third count there is room for more.
    assert [run(2.0), run(5.0), run(3.0)] == [(7, 7, 3), (4, 4, 6), (6, 6, 4)]
    torch.tpu.synchronize()
    calls = torch.tpu.metrics()["calls_new"]
    assert [run(7.0), run(4.0)] == [(2, 2, 8), (5, 5, 5)]
    assert torch.tpu.metrics()["calls_new"] == calls


def test_a_small_part_of_much_is_copied():
    x = torch.zeros(1 << 20, device="tpu")
    x[5] = 1
    assert x.nonzero().untyped_storage().nbytes() == 8
    assert x[:100].nonzero().untyped_storage().nbytes() == 800


def test_the_count_is_a_synchronisation_at_the_users_line():
    def lines():
        return dict(torch.tpu.metrics()["synchronisations"])

    x = torch.arange(43.0, device="tpu")
    for limit in (3.0, 7.0, 5.0, 9.0):  # with the third count there is room for more
        mask, before = x > limit, lines()
        mask.nonzero(), x[mask], x.masked_select(mask)
        [line] = [line for line, times in lines().items() if times != before.get(line)]
        assert "test_sizes.py" in line and lines()[line] - before.get(line, 0) == 3


def test_coordinates_lie_as_on_the_cpu(mode):
    """They showed the places of the elements that are not picked, in strides and in files."""
    for size in (3, 4, 5):
        for x in (torch.eye(size), torch.ones(size, 2, 2)):
            found = x.to("tpu").nonzero()
            assert found.stride() == x.nonzero().stride()
            assert found.t().view(-1).tolist() == x.nonzero().t().reshape(-1).tolist()
            assert found.untyped_storage().nbytes() == x.nonzero().untyped_storage().nbytes()
