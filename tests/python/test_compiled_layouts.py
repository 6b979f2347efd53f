"""How results of compiled code lie: as those of eager mode, whatever fake tensors knew of it."""

import pytest
import torch
from support import DEVICE, same, strides_that_matter
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
CONVOLUTIONS = {
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), (2, 3, 8)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), (2, 3, 6, 5)),
    "conv3d": (lambda: nn.Conv3d(3, 4, 3, padding=1), (2, 3, 4, 5, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 6, 5)),
    "one channel": (lambda: nn.Conv2d(1, 4, 3), (2, 1, 6, 5)),
}


def channels_last(x):
    if x.dim() in CHANNELS_LAST:
        return x.to(memory_format=CHANNELS_LAST[x.dim()])
    return x.transpose(-1, -2).contiguous().transpose(-1, -2)


def both(module, x, function):
    """Results and the gradient of x, of the CPU and compiled on the device."""
    found = []
    for device in ("cpu", DEVICE):
        there, image = module.to(device), x.to(device).detach().requires_grad_()
        run = torch.compile(function, fullgraph=True) if device == DEVICE else function
        results = run(there, image)
        (gradient,) = torch.autograd.grad(sum((one * one).sum() for one in results), image)
        found.append((*results, gradient))
    return found


@pytest.mark.diagonal
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("whole", [False, True], ids=["image", "image and weight"])
def test_convolutions_of_channels_last(name, whole):
    make, sizes = CONVOLUTIONS[name]
    torch.manual_seed(0)
    module = make()
    if whole and len(sizes) in CHANNELS_LAST:
        module = module.to(memory_format=CHANNELS_LAST[len(sizes)])

    def function(module, x):
        y = module(x)
        return y, y.flatten(1), y.movedim(1, -1).flatten(0, -2), (y * 2).flatten(2)

    expected, actual = both(module, channels_last(torch.randn(sizes)), function)
    same(actual, expected, atol=1e-4, rtol=1e-4)
    assert [*map(strides_that_matter, actual)] == [*map(strides_that_matter, expected)]


@pytest.mark.slow
def test_images_without_a_view():
    """Fake tensors have other strides here, which would allow views."""
    functions = [
        lambda _, x: [F.pixel_shuffle(x, 2).flatten(1)],
        lambda _, x: [F.pad(x, (1, 1, 1, 1), mode="replicate").flatten(1)],
        lambda _, x: [F.glu(x, 1).flatten(1)],
        lambda norm, x: [norm(x).flatten(1)],
        lambda _, x: [x.roll(1, 1).flatten(1), F.logsigmoid(x).flatten(1)],
    ]
    for function in functions:
        x = channels_last(torch.randn(2, 4, 6, 6))
        expected, actual = both(nn.BatchNorm2d(4), x, function)
        same(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make", [nn.ReLU, lambda: nn.Conv2d(3, 4, 3)], ids=["relu", "conv"])
def test_channels_last_of_sizes_that_vary(make):
    """What is padded on the host was to lie by rows, as the program takes it."""
    module, there = make(), make().to(DEVICE)
    there.load_state_dict(module.state_dict())
    compiled = torch.compile(lambda x: there(x).flatten(1), dynamic=True)
    for count in (2, 3, 5, 9):
        x = channels_last(torch.randn(count, 3, 6, 5))
        same(compiled(x.to(DEVICE)), module(x).flatten(1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dynamic", [True, None])
def test_views_of_arguments_that_begin_elsewhere(dynamic):
    """No guard is about where in its storage an argument begins; views of it were at its start."""
    compiled = torch.compile(lambda x: (x[: len(x) // 2], x.flatten(), x[1:] * 2), dynamic=dynamic)
    whole = torch.randn(12, 3)
    there = whole.to(DEVICE)
    for first, last in ((0, 4), (2, 6), (1, 8), (3, 10)):
        x = whole[first:last]
        for argument in (there[first:last], there.as_strided(x.shape, x.stride(), 3 * first)):
            half, flat, rest = compiled(argument)
            same([half, flat, rest], [x[: len(x) // 2], x.flatten(), x[1:] * 2])
            assert half.storage_offset() == flat.storage_offset() == 3 * first


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_indices_pick(dynamic):
    """It lies as the indices do, also where sizes are symbols."""

    def function(x, index):
        return x[index.T].relu(), x[index.T, index.T]

    compiled = torch.compile(function, dynamic=dynamic, fullgraph=True)
    for rows in (2, 3, 4):
        x, index = torch.randn(6, 5), torch.randint(0, 5, (rows, 3))
        want, got = function(x, index), compiled(x.to(DEVICE), index.to(DEVICE))
        same(got, want)
        assert [strides_that_matter(one) for one in got] == [
            strides_that_matter(one) for one in want
        ]
