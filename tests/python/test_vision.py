"""torchvision's operators, against what their definitions say, in f64 on the CPU.

Where torchvision is not installed, its schemas are defined here: the device knows the operators by
their names, whoever defines them.
"""

import contextlib

import numpy as np
import pytest
import torch
from support import DEVICE, counted, modes, move, only_tpu, same, slow_but

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]
POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
TENSORS = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
GEOMETRY = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
    "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)
FIVE = ", ".join(["Tensor"] * 5)
POINTS, MAPPING = "int sampling_ratio", "Tensor channel_mapping"
SCHEMAS = f"""
nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
roi_align(Tensor input, Tensor rois, {POOLED}, {POINTS}, bool aligned) -> Tensor
_roi_align_backward(Tensor grad, Tensor rois, {POOLED}, {SIZES}, {POINTS}, bool aligned) -> Tensor
ps_roi_align(Tensor input, Tensor rois, {POOLED}, {POINTS}) -> (Tensor, Tensor)
_ps_roi_align_backward(Tensor grad, Tensor rois, {MAPPING}, {POOLED}, {POINTS}, {SIZES}) -> Tensor
roi_pool(Tensor input, Tensor rois, {POOLED}) -> (Tensor, Tensor)
_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {POOLED}, {SIZES}) -> Tensor
ps_roi_pool(Tensor input, Tensor rois, {POOLED}) -> (Tensor, Tensor)
_ps_roi_pool_backward(Tensor grad, Tensor rois, {MAPPING}, {POOLED}, {SIZES}) -> Tensor
deform_conv2d({TENSORS}, {GEOMETRY}) -> Tensor
_deform_conv2d_backward(Tensor grad, {TENSORS}, {GEOMETRY}) -> ({FIVE})
"""

with contextlib.suppress(ImportError):
    import torchvision  # noqa: F401
if not hasattr(torch.ops.torchvision, "nms"):
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS.strip().splitlines():
        library.define(schema)

vision = torch.ops.torchvision
# image, x1, y1, x2, y2: inside, beyond all edges, very small, and turned around
ROIS = [
    [0, 1.3, 2.6, 14.2, 11.1],
    [1, -5, 3.3, 30, 26.5],
    [1, 9.4, 9.1, 9.6, 9.2],
    [0, 12.5, 10.2, 3.1, 15.9],
]
SCALE, BINS = 0.45, (2, 3)


@pytest.fixture(params=slow_but(modes(), "strict"))
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


# -- Definitions --


def at(image, y, x):
    """[C] of an image [C, H, W] at a point, interpolated linearly; 0 beyond its pixels."""
    total = image.new_zeros(image.shape[0])
    above, left = int(y // 1), int(x // 1)
    for i, down in ((above, 1 - (y - above)), (above + 1, y - above)):
        for j, across in ((left, 1 - (x - left)), (left + 1, x - left)):
            if 0 <= i < image.shape[1] and 0 <= j < image.shape[2]:
                total = total + image[:, i, j] * down * across
    return total


def weigh(weights, y, x):
    """Adds the pixels' weights at a point; one less than a pixel beyond an edge is on the edge."""
    height, width = weights.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    for i in {int(y), min(int(y) + 1, height - 1)}:
        for j in {int(x), min(int(x) + 1, width - 1)}:
            weights[i, j] += (1 - abs(y - i)) * (1 - abs(x - j))


def over_bins(image, rois, own, pooled):
    """[K, C, bins] of pooled(image of the bin's channels, roi, ph, pw) -> [C]."""
    (height, width), results = BINS, []
    for roi in rois.double().tolist():
        source = image[int(roi[0])]
        if own:
            source = source.unflatten(0, (-1, height * width))
        for ph in range(height):
            for pw in range(width):
                part = source[:, ph * width + pw] if own else source
                results.append(pooled(part, roi[1:], ph, pw))
    return torch.stack(results).unflatten(0, (len(rois), height, width)).permute(0, 3, 1, 2)


def aligned_average(image, rois, sampling, aligned=True, own=False):
    def pooled(part, box, *bin_):
        shift, points = 0.5 if aligned else 0.0, []
        for axis in (1, 0):
            start, end = box[axis] * SCALE - shift, box[axis + 2] * SCALE - shift
            extent = end - start if aligned else max(end - start, 1.0)
            size = extent / BINS[1 - axis]
            count = sampling if sampling > 0 else -int(-size // 1)
            first = start + bin_[1 - axis] * size
            points.append([first + (k + 0.5) * size / count for k in range(count)])
        weights = np.zeros(part.shape[1:])
        for y in points[0]:
            for x in points[1]:
                weigh(weights, y, x)
        count = len(points[0]) * len(points[1])  # 0 / 0 where torchvision does not mind
        weights = torch.tensor(weights) / (count if own else max(count, 1))
        return (part * weights).sum((1, 2))

    return over_bins(image, rois, own, pooled)


def whole_bins(box, bin_, more, limits):
    """The first pixel and the end of a bin, along y and x."""
    for axis in (1, 0):
        start, end = (int(value * SCALE + (0.5 if value > 0 else -0.5)) for value in box[axis::2])
        size = max(end - start + more, 1) / BINS[1 - axis]
        k, limit = bin_[1 - axis], limits[1 - axis]
        edges = (int(k * size // 1), -int(-(k + 1) * size // 1))
        yield [min(max(start + edge, 0), limit) for edge in edges]


def largest(image, rois):
    def pooled(part, box, *bin_):
        (top, bottom), (left, right) = whole_bins(box, bin_, 1, part.shape[1:])
        inside = part[:, top:bottom, left:right].flatten(1)
        return inside.amax(1) if inside.shape[1] else part.new_zeros(part.shape[0])

    return over_bins(image, rois, False, pooled)


def whole_average(image, rois):
    def pooled(part, box, *bin_):
        limits = [size - 1 for size in part.shape[1:]]
        (top, bottom), (left, right) = whole_bins(box, bin_, 0, limits)
        inside = part[:, top:bottom, left:right].flatten(1)
        return inside.mean(1) if inside.shape[1] else part.new_zeros(part.shape[0])

    return over_bins(image, rois, True, pooled)


def deformed(x, weight, offset, mask, bias, stride, pad, dilation, groups):
    """A convolution whose taps are moved by offsets; groups: of the weight and of the offsets."""
    out, (rows, columns) = offset.shape[2:], weight.shape[2:]
    parts = x.shape[1] // groups[1]
    result = []
    for n in range(len(x)):
        for i in range(out[0]):
            for j in range(out[1]):
                taps = []
                for g in range(groups[1]):
                    for k in range(rows * columns):
                        move_y, move_x = offset[n, (g * rows * columns + k) * 2 :, i, j][:2]
                        y = i * stride[0] - pad[0] + k // columns * dilation[0] + move_y
                        t = j * stride[1] - pad[1] + k % columns * dilation[1] + move_x
                        value = at(x[n, g * parts : (g + 1) * parts], y, t)
                        taps.append(value * mask[n, g * rows * columns + k, i, j])
                read = torch.stack(taps).unflatten(0, (groups[1], -1)).transpose(1, 2)
                read = read.reshape(groups[0], 1, -1)
                wide = weight.flatten(1).unflatten(0, (groups[0], -1))
                result.append((read * wide).sum(2).flatten() + bias)
    return torch.stack(result).unflatten(0, (len(x), *out)).permute(0, 3, 1, 2)


def kept(boxes, scores, threshold):
    order = scores.argsort(descending=True, stable=True).tolist()
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    both = (high - low).clamp(min=0).prod(2)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    overlap = ((both / (area[:, None] + area - both)).double() > threshold).tolist()
    chosen = []
    for one in order:
        if not any(overlap[better][one] for better in chosen):
            chosen.append(one)
    return torch.tensor(chosen)


# -- Boxes --


def images(dtype=torch.float32, channels=6):
    return torch.randn(2, channels, 7, 9).to(dtype), torch.tensor(ROIS, dtype=dtype)


LIMITS = {
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float64: {"rtol": 1e-11, "atol": 1e-12},
}
DTYPES = slow_but(LIMITS, torch.float32)


def check_pooling(reference, operator, backward, image, rois, dtype, more=(), more_backward=()):
    """Compares what an operator makes of an image, and its gradient, with a definition."""
    source = image.double().requires_grad_()
    expected = reference(source, rois)
    grad = torch.randn(expected.shape).to(dtype)
    (expected_grad,) = torch.autograd.grad((expected * grad.double()).nansum(), source)
    moved = move((image, rois, grad))
    found = operator(moved[0], moved[1], SCALE, *BINS, *more)
    found, extra = (found[0], found[1:]) if isinstance(found, tuple) else (found, ())
    same(found, expected.to(dtype), **LIMITS[dtype])
    before, after = more_backward
    found_grad = backward(moved[2], moved[1], *extra, SCALE, *BINS, *before, *image.shape, *after)
    same(found_grad, expected_grad.to(dtype), **LIMITS[dtype])
    return extra


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", slow_but([(-1, False), (2, True), (3, False)], (-1, False)))
def test_roi_align(mode, way, dtype):
    check_pooling(
        lambda image, rois: aligned_average(image, rois, *way),
        vision.roi_align,
        vision._roi_align_backward,
        *images(dtype, 3),
        dtype,
        way,
        ((), way),
    )


def test_roi_align_of_boxes_whose_points_the_last_bit_decides():
    """0.1 * 30 - 0.1 * 10 is 2 if each product is rounded, and 2 points; else it is more, and 3."""
    edges = torch.arange(0.0, 60.0)
    low, high = (one.flatten() for one in torch.meshgrid(edges, edges, indexing="ij"))
    low, high = low[low + 1 < high], high[low + 1 < high]
    rois = torch.stack([low * 0, low, low * 0, high, low * 0 + 20], 1)
    scale = torch.tensor(0.1)
    width = (high * scale - low * scale).clamp(min=1) / 2
    ramp = torch.arange(8.0).square().expand(1, 1, 3, 8).contiguous()  # which is not linear
    image = ramp.double()
    found = vision.roi_align(*move((ramp, rois)), 0.1, 1, 2, -1, False).cpu()[:, 0, 0]
    for k in range(2):
        wanted = []
        for start, size in zip((low * scale).tolist(), width.tolist(), strict=True):
            count = -int(-size // 1)
            points = [start + (k + (i + 0.5) / count) * size for i in range(count)]
            weights = np.zeros((1, 8))
            for x in points:
                weigh(weights, 0, x)
            wanted.append((image[0, 0, 0].numpy() * weights[0]).sum() / count)
        same(found[:, k], torch.tensor(wanted).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sampling", slow_but([-1, 2], 2))
def test_ps_roi_align(mode, sampling, dtype):
    image, rois = images(dtype, 12)
    (mapping,) = check_pooling(
        lambda image, rois: aligned_average(image, rois, sampling, own=True),
        vision.ps_roi_align,
        vision._ps_roi_align_backward,
        image,
        rois[:3],
        dtype,
        (sampling,),
        ((sampling,), ()),
    )
    same(mapping, torch.arange(12, dtype=torch.int32).view(1, 2, *BINS).expand(3, -1, -1, -1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_roi_pool(mode, dtype):
    image, rois = images(dtype, 3)
    (where,) = check_pooling(
        largest, vision.roi_pool, vision._roi_pool_backward, image, rois, dtype, (), ((), ())
    )
    values = image[rois[:, 0].long()].flatten(2).gather(2, where.cpu().long().flatten(2).clamp(0))
    pooled = vision.roi_pool(*move((image, rois)), SCALE, *BINS)[0]
    same(torch.where(where < 0, 0, values.view(where.shape).to(DEVICE)), pooled)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ps_roi_pool(mode, dtype):
    image, rois = images(dtype, 12)
    check_pooling(
        whole_average,
        vision.ps_roi_pool,
        vision._ps_roi_pool_backward,
        image,
        rois[::2],  # its gradient knows of the last row and column, which are never read
        dtype,
        (),
        ((), ()),
    )


def test_no_boxes():
    image, rois = move(images(channels=12))
    none = rois[:0]
    assert vision.roi_align(image, none, 1.0, 2, 2, -1, False).shape == (0, 12, 2, 2)
    for operator, more in ((vision.ps_roi_align, (2,)), (vision.roi_pool, ())):
        result, places = operator(image, none, 1.0, 2, 2, *more)
        assert result.shape == places.shape and places.dtype == torch.int32
    grad = torch.zeros(0, 12, 2, 2, device=DEVICE)
    same(vision._roi_align_backward(grad, none, 1.0, 2, 2, 2, 12, 7, 9, -1, False), image * 0)


def test_boxes_that_do_not_fit():
    image, rois = move(images())
    for wrong in (rois[:, :4], rois.double()):
        with pytest.raises(RuntimeError, match="roi_align"):
            vision.roi_align(image, wrong, 1.0, 2, 2, -1, False)
    with pytest.raises((RuntimeError, NotImplementedError), match="not implemented for"):
        vision.roi_align(image.bfloat16(), rois.bfloat16(), 1.0, 2, 2, -1, False)
    with pytest.raises(RuntimeError, match="multiple of"):
        vision.ps_roi_pool(image, rois, 1.0, 2, 2)


def test_debug_checks_images():
    image, rois = move(images())
    with torch.tpu.set_eager_mode("debug"), pytest.raises(IndexError, match="rois"):
        vision.roi_align(image[:1], rois, 1.0, 2, 2, -1, False)


# -- Deformable convolutions --


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", slow_but([False, True], True))
def test_deform_conv2d(mode, masked, dtype):
    numbers = ((2, 1), (1, 2), (1, 2), (2, 2))  # stride, padding, dilation, groups
    shapes = [(2, 4, 5, 4), (6, 2, 3, 2), (2, 24, 3, 6), (2, 12, 3, 6), (6,)]
    args = [torch.randn(shape).to(dtype) for shape in shapes]
    args[2] = (args[2] * 64).round() / 64  # of which half precision knows where they lead
    leaves = [one.double().requires_grad_() for one in args]
    given = list(leaves)
    if not masked:
        given[3] = torch.ones_like(leaves[3])
    expected = deformed(*given, *numbers)
    grad = torch.randn(expected.shape).to(dtype)
    grads = torch.autograd.grad(expected, leaves, grad.double(), allow_unused=True)
    grads = [torch.zeros(s) if g is None else g for g, s in zip(grads, shapes, strict=True)]
    moved, *static = move(args), *(n for pair in numbers for n in pair), masked
    limits = {torch.float16: {"rtol": 2e-2, "atol": 5e-2}}.get(dtype, LIMITS[dtype])
    same(vision.deform_conv2d(*moved, *static), expected.to(dtype), **limits)
    found = vision._deform_conv2d_backward(grad.to(DEVICE), *moved, *static)
    same(list(found), [one.to(dtype) for one in grads], **limits)


def test_deform_conv2d_of_no_images():
    shapes = [(0, 2, 5, 4), (3, 2, 2, 2), (0, 8, 4, 3), (0, 4, 4, 3), (3,)]
    args = [torch.randn(shape, device=DEVICE) for shape in shapes]
    numbers = (1, 1, 0, 0, 1, 1, 1, 1, True)
    grad = vision.deform_conv2d(*args, *numbers)
    assert grad.shape == (0, 3, 4, 3)
    for found, one in zip(vision._deform_conv2d_backward(grad, *args, *numbers), args, strict=True):
        same(found, torch.zeros_like(one))


def test_offsets_that_do_not_fit():
    x, weight, offset = torch.randn(1, 2, 4, 4), torch.randn(2, 2, 2, 2), torch.randn(1, 6, 3, 3)
    x, weight, offset = move((x, weight, offset))
    with pytest.raises(RuntimeError, match=r"deform_conv2d|offset"):
        vision.deform_conv2d(x, weight, offset, x[:, 0, 0], weight[:, 0, 0, 0], *[1] * 8, False)


# -- Overlapping boxes --


def boxes(count, dtype=torch.float32):
    corner, size = torch.rand(count, 2) * 50, torch.rand(count, 2) * 20
    return torch.cat([corner, corner + size], 1).to(dtype), torch.rand(count).to(dtype)


@pytest.mark.parametrize("dtype", slow_but([torch.float32, torch.float64], torch.float32))
@pytest.mark.parametrize("count", slow_but([1, 128, 129, 300, 700], 300))
def test_nms(mode, count, dtype):
    given = boxes(count, dtype)
    for threshold in (0.5,) if count == 1 else (0.1, 0.5):
        same(vision.nms(*move(given), threshold), kept(*given, threshold))


def test_nms_of_a_chain():
    """Each box overlaps its neighbours: every other one is kept, which takes as many rounds."""
    start = torch.arange(300.0)[:, None]
    chain = torch.cat([start, start * 0, start + 2, start * 0 + 1], 1)
    scores = torch.linspace(1, 0, 300)
    same(vision.nms(*move((chain, scores)), 0.3), torch.arange(0, 300, 2))


def test_nms_keeps_what_overlaps_by_no_more_than_is_said():
    """The overlap is 0.2, which float32 holds as more than that, and scores may be equal."""
    both = torch.tensor([[0.0, 0, 3, 2], [2.0, 0, 5, 2]])
    same(vision.nms(*move((both, torch.ones(2))), 0.2), kept(both, torch.ones(2), 0.2))
    same(vision.nms(*move((both, torch.ones(2))), 0.21), torch.arange(2))
    none = torch.empty(0, 4, device=DEVICE)
    assert vision.nms(none, none[:, 0], 0.5).shape == (0,)


def test_nms_of_counts_that_change():
    """What is picked, and what is kept of it, needs no program for each count."""
    torch.tpu.eager_mode = "strict"
    given = boxes(200)

    def run(count):
        mask = (torch.arange(200) * 7 % 200) < count
        corners, scores = (one.to(DEVICE)[mask.to(DEVICE)] for one in given)
        found = vision.nms(corners, scores, 0.5)
        same(found, kept(*(one[mask] for one in given), 0.5))
        same(corners[found].sum(0), given[0][mask][found.cpu()].sum(0), rtol=1e-4, atol=1e-3)

    for count in (70, 81, 75, 99, 120):
        run(count)
    assert counted(lambda: [run(one) for one in (73, 88, 101, 127)], "programs")[0] == [0]


def test_nms_refuses():
    given, scores = move(boxes(4))
    for wrong in ((given[:, :3], scores), (given, scores[:3]), (given[0], scores), (given, given)):
        with pytest.raises(RuntimeError, match="should"):
            vision.nms(*wrong, 0.5)
    with pytest.raises(RuntimeError, match="same type"):
        vision.nms(given, scores.double(), 0.5)


# -- As torchvision uses them --


def test_autocast():
    image, rois = move(images(torch.float16))
    with torch.autocast("tpu", dtype=torch.bfloat16):
        found = vision.roi_align(image, rois.float(), SCALE, *BINS, 2, True)
        chosen = vision.nms(rois[:, 1:].float(), rois[:, 0], 0.5)
    assert found.dtype == torch.float16 and chosen.dtype == torch.int64
    wide = vision.roi_align(image.float(), rois.float(), SCALE, *BINS, 2, True)
    same(found, wide.half())


def test_rows_are_used():
    image, rois = move(images())
    before = torch.tpu.metrics()
    vision.roi_align(image, rois, SCALE, *BINS, 2, True)
    after = torch.tpu.metrics()
    assert after["ops_row"] == before["ops_row"] + 1
    assert after["ops_decomposed"] == before["ops_decomposed"]
