"""Results lie in memory as the CPU's do."""

import copy
import itertools
import random

import pytest
import torch
from support import DEVICE, living, only_tpu, raises_alike, same, slow_but, strides_that_matter
from torch import nn

BINARY = (torch.complex, torch.polar, torch.copysign, torch.clamp_min, torch.logical_and)
BINARY += (torch.heaviside, torch.logaddexp, torch.xlogy, torch.floor_divide, torch.eq)


def numbers(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).sin()


def strides(results):
    results = (results,) if isinstance(results, torch.Tensor) else results
    return [*map(strides_that_matter, results)]


def there(x):
    """The same on the device, with the same strides."""
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to(DEVICE)
    return whole.as_strided(x.shape, x.stride(), x.storage_offset())


def check(work, *inputs):
    assert strides(work(*map(there, inputs))) == strides(work(*inputs))


def turned(shape, draw):
    """A tensor whose dims are of these sizes or 1, in any order in memory."""
    shape = [draw.choice([1, size]) for size in shape][draw.randrange(len(shape)) :]
    order = draw.sample(range(len(shape)), len(shape))
    return numbers(*(shape[i] for i in order)).permute(torch.tensor(order).argsort().tolist())


@pytest.mark.parametrize("operator", BINARY, ids=lambda one: one.__name__)
def test_elementwise(operator):
    draw = random.Random(5)
    for _ in range(8):
        shape = [draw.choice([2, 3, 4]) for _ in range(3)]
        check(operator, turned(shape, draw), turned(shape, draw))


@pytest.mark.diagonal
@pytest.mark.parametrize("shape", [(2, 3, 6), (2, 3, 4, 5)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_in_other_orders(shape, training):
    """Planes or channels last, whatever the order in memory."""

    def normalize(x):
        mean, variance = (torch.full((3,), one, device=x.device) for one in (0.0, 1.0))
        x = x.detach().requires_grad_()
        y = nn.functional.batch_norm(x, mean, variance, training=training)
        return y, *torch.autograd.grad((y * y).sum(), x)

    for order in itertools.permutations(range(len(shape))):
        lain = numbers(*(shape[i] for i in order))
        check(normalize, lain.permute(torch.tensor(order).argsort().tolist()))


def test_elementwise_in_other_orders():
    x, y = numbers(4, 3).T, numbers(3, 4)
    check(torch.rsub, x, y)
    check(lambda one: one.roll(1, 0), x)
    for loss in (nn.functional.mse_loss, nn.functional.smooth_l1_loss, nn.functional.huber_loss):
        check(lambda a, b, loss=loss: torch.func.grad(loss)(a, b), x, y.T.contiguous().T)
    check(lambda one: torch.pow(2.5, one), x)
    check(torch.nn.functional.logsigmoid, x)
    check(lambda one: one.masked_fill(one > 0, 2.5), x)
    check(lambda one: one.masked_fill(one > 0, one.sum()), x)


WITH_NUMBERS = (lambda x: x * 5, lambda x: x > 0, lambda x: 3 - x, lambda x: x % 2, torch.sign)
WITH_OTHERS = (lambda x: x + x[0], lambda x: x[0] + x, lambda x: x + x, lambda x: x.lerp(x, 0.3))
FIRST_MADE = (nn.functional.hardtanh, torch.nan_to_num, torch.deg2rad, torch.tril)


@pytest.mark.parametrize("varies", [False, True])
def test_dims_of_one_element(varies):
    """They say whether an image has its channels last, whatever was computed before."""
    texts = living(5, 6, 4) if varies else []
    for layout in (torch.channels_last, torch.contiguous_format):
        x = numbers(4, 3, 1, 1).to(memory_format=layout)
        y = there(x)
        for work in (*WITH_NUMBERS, *WITH_OTHERS, *FIRST_MADE):
            assert work(y).stride() == work(x).stride()
    assert len(texts) == 3 * varies


INDICES = {
    "turned": lambda i, j: (i.T,),
    "two": lambda i, j: (i.T, j.T),
    "behind": lambda i, j: (slice(None), i.T),
    "apart": lambda i, j: (i.T, slice(None), j.T),
    "wide": lambda i, j: (i.T, j[:1].expand(3, 3).T[:, :2]),
    "numbers": lambda i, j: (j[0, 0], slice(None), i.T),
}


@pytest.mark.parametrize("name", slow_but(INDICES, "numbers"))
def test_what_indices_pick(name):
    """The result lies as the indices do, which Meta does not say."""
    i, j = torch.tensor([[0, 2, 1], [3, 1, 0]]), torch.tensor([[1, 1, 3], [2, 0, 2]])
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        x = numbers(4, 4, 4).permute(order)
        check(lambda x, i, j: x[INDICES[name](i, j)], x, i, j)
        check(lambda x, j: x[j.flatten()[:4] > 1], x, j)


def test_normal_numbers():
    x = numbers(4, 3).T.abs()
    for normal in (lambda x: torch.normal(x, 1.0), lambda x: torch.normal(0.0, x)):
        assert normal(there(x)).stride() == normal(x).stride()
    assert torch.normal(there(x), there(x)).stride() == torch.normal(x, x).stride()


def test_membership():
    x = numbers(4, 3).T
    check(torch.isin, x, x[0])
    check(lambda x: torch.isin(x, 1.0, invert=True), x)


def test_floats_of_whole_numbers():
    for dtype in (torch.int16, torch.uint8, torch.bool):
        for work in (torch.deg2rad, torch.rad2deg):
            check(work, numbers(4, 3).T.to(dtype))


@pytest.mark.parametrize("shape", slow_but([(5, 3), (3, 5), (2, 5, 3)], (2, 5, 3)))
def test_factorisations(shape):
    for x in (numbers(*shape), numbers(*shape).mT):
        check(torch.geqrf, x)
        check(lambda a: torch.linalg.svd(a, full_matrices=False), x)
        check(lambda a: torch.linalg.svd(a), x)
    b = numbers(*shape[:-1], 2)
    for driver in ("gels", "gelsd"):
        check(lambda a, b, d=driver: torch.linalg.lstsq(a, b, driver=d).solution, x.mT, b)
        check(lambda a, b, d=driver: torch.linalg.lstsq(a, b, driver=d).solution, x, x)
    packed, factors = torch.geqrf(numbers(5, 3))
    check(torch.ormqr, packed, factors, numbers(5, 4))


@pytest.mark.diagonal
@pytest.mark.parametrize("dims", [(0,), (2,), (0, 1), (2, 0), (0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_transforms(dims, order):
    x = numbers(4, 5, 6).permute(order)
    for transform in (torch.fft.rfftn, torch.fft.fftn, torch.fft.irfftn, torch.fft.ihfftn):
        z = x if transform in (torch.fft.rfftn, torch.fft.ihfftn) else x + 1j
        check(lambda one, f=transform: f(one, dim=dims), z)


def test_images():
    functional = torch.nn.functional
    for last in (torch.contiguous_format, torch.channels_last):
        x = numbers(2, 4, 6, 6).contiguous(memory_format=last)
        where = torch.arange(36).expand(2, 4, 36).reshape(2, 4, 6, 6)
        check(lambda one: functional.channel_shuffle(one, 2), x)
        check(lambda one: functional.pixel_shuffle(one, 2), x)
        check(lambda one, i: functional.max_unpool2d(one, i, 2), x, where)
        for mode in ("replicate", "reflect", "constant", "circular"):
            check(lambda one, m=mode: functional.pad(one, (-1, 2, 1, 0), m), x)


@pytest.mark.slow
def test_targets_that_are_resized():
    x, image = numbers(4, 3).T, numbers(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    check(lambda a, out: torch.add(a, a, out=out), x, torch.empty(0))
    check(lambda a, out: torch.exp(a, out=out), x, torch.empty(0))
    check(lambda a, out: torch.sum(a, 2, out=out), image, torch.empty(0))
    check(lambda a, out: torch.linalg.inv(a @ a.T + 1, out=out), x, torch.empty(0))
    check(lambda a, out: torch.logit(a, out=out), x, torch.empty(0))
    check(lambda a, out: torch.complex(a, a, out=out), x, torch.empty(0, dtype=torch.complex64))
    check(lambda a, q, f: torch.geqrf(a, out=(q, f)), x, torch.empty(0), torch.empty(0))


def test_images_of_targets_that_are_resized():
    """Where the CPU has a kernel for out= they lie as without it, else by rows."""
    aten, image = torch.ops.aten, numbers(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    check(lambda a, out: torch.cat((a, a), 1, out=out), image, torch.empty(0))
    check(
        lambda a, out: aten.upsample_bilinear2d.out(a, [6, 7], True, out=out), image, torch.empty(0)
    )
    check(lambda a, out: aten.reflection_pad2d.out(a, [1, 1, 1, 1], out=out), image, torch.empty(0))
    check(lambda a, out: aten.clone.out(a, out=out), image, torch.empty(0))
    pool = aten.max_pool2d_with_indices.out
    both = torch.empty(0), torch.empty(0, dtype=torch.int64)
    check(lambda a, out, at: pool(a, [2, 2], out=out, indices=at), image, *both)


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_images_of_targets_of_other_sizes():
    aten, image = torch.ops.aten, numbers(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    check(lambda a, out: torch.cat((a, a), 1, out=out), image, torch.empty(3))
    check(lambda a, out: torch.add(a, a, out=out), image, torch.empty(3))
    check(lambda a, out: aten.clone.out(a, out=out), image, torch.empty(3))


@pytest.mark.slow
def test_coordinates_lie_together():
    for column in there(numbers(5, 5)).nonzero().unbind(1):
        assert column.is_contiguous()


@only_tpu
def test_shape_functions_are_left_as_they_are_for_others():
    _, _, vh = torch.linalg.svd(torch.empty(5, 3, device="meta"))
    assert vh.is_contiguous()  # as on CUDA


@pytest.mark.slow
def test_targets_with_gaps_where_zeros_are_no_numbers():
    factors, pivots = torch.linalg.lu_factor(numbers(3, 3))
    b = numbers(3, 4)

    def solve(factors, pivots, b, wide):
        return torch.linalg.lu_solve(factors, pivots, b, out=wide[..., 1])

    wide = torch.zeros(3, 4, 2)
    expected, actual = (
        solve(factors, pivots, b, wide),
        solve(*map(there, (factors, pivots, b, wide))),
    )
    same(actual, expected)
    raises_alike(solve, factors, pivots, b, wide.double())


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_into_targets(training):
    def work(x, mean, var, *outs):
        torch.native_batch_norm(x, None, None, mean, var, training, 0.1, 1e-5, out=outs)
        return mean, var, *outs

    inputs = [numbers(3, 2, 4), torch.zeros(2), torch.ones(2)]
    inputs += [torch.empty(0) for _ in range(3)]
    same(work(*map(there, inputs)), work(*inputs))


LAYERS = {
    "convolution": (nn.Conv2d(4, 6, 3), 4),
    "grouped": (nn.Conv2d(4, 8, 3, groups=2, padding=1), 4),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), 4),
    "dilated": (nn.Conv2d(4, 4, 3, dilation=2), 4),
    "of volumes": (nn.Conv3d(4, 6, 3), 5),
    "transposed": (nn.ConvTranspose2d(4, 6, 3), 4),
    "transposed, of volumes": (nn.ConvTranspose3d(4, 6, 3), 5),
    "batch norm": (nn.BatchNorm2d(4), 4),
    "reflection": (nn.ReflectionPad2d(1), 4),
    "reflection of volumes": (nn.ReflectionPad3d(1), 5),
    "replication": (nn.ReplicationPad2d(1), 4),
    "replication of volumes": (nn.ReplicationPad3d(1), 5),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("last", [(1, 0, 0), (0, 1, 0), (1, 0, 1), (0, 0, 1)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_keep_channels_last(name, last):
    """Of which the image, the gradient of the result, and the weights have them."""
    layer, rank = LAYERS[name]
    formats = [torch.contiguous_format, {4: torch.channels_last, 5: torch.channels_last_3d}[rank]]

    def strides(device):
        own = copy.deepcopy(layer).to(device)
        for p in own.parameters():
            if p.dim() == rank:
                p.data = p.data.contiguous(memory_format=formats[last[2]])
        x = torch.randn(2, 4, *[8] * (rank - 2)).to(device)
        x = x.contiguous(memory_format=formats[last[0]]).requires_grad_()
        y = own(x)
        g = torch.ones_like(y, memory_format=torch.contiguous_format)
        g = g.contiguous(memory_format=formats[last[1]])
        return [one.stride() for one in (y, *torch.autograd.grad(y, (x, *own.parameters()), g))]

    assert strides(DEVICE) == strides("cpu")
