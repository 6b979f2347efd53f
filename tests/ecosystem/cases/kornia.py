"""kornia: filters, colours, warps, features, losses, augmentations; without torchvision."""

import kornia as K
import torch
from case import case

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def picture(*shape: int, seed: int = 0) -> torch.Tensor:
    """Smooth, so that edges and corners do not hang on the last bit."""
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
    return K.filters.gaussian_blur2d(x, (7, 7), (2.0, 2.0)).mul(2).clamp(0, 1).to(DEVICE)


def numbers(*all_found: torch.Tensor) -> tuple[object, list[float]]:
    found = [one.float() for one in all_found]
    parts = [torch.stack([one.mean(), one.std(), one.flatten()[7]]) for one in found]
    return found[0].device, torch.cat(parts).tolist()


@case("filters: blurs, edges, median, bilateral, unsharp, Canny")
def filters() -> tuple[object, list[float]]:
    x = picture(2, 3, 32, 32)
    f = K.filters
    return numbers(
        f.gaussian_blur2d(x, (5, 5), (1.5, 1.5)), f.box_blur(x, (3, 3)), f.median_blur(x, (3, 3)),
        f.sobel(x), f.laplacian(x, 3), f.spatial_gradient(x), f.unsharp_mask(x, (5, 5), (1.5, 1.5)),
        f.bilateral_blur(x, (5, 5), 0.1, (1.5, 1.5)), f.canny(x)[0], f.motion_blur(x, 5, 30.0, 0.5),
    )  # fmt: skip


@case("colours: HSV, Lab, YCbCr, HLS, Luv, XYZ, grey, there and back")
def colours() -> tuple[object, list[float]]:
    x = picture(2, 3, 16, 16)
    found = [K.color.rgb_to_grayscale(x), K.color.sepia(x)]
    for name in ("hsv", "lab", "ycbcr", "hls", "luv", "xyz"):
        there = getattr(K.color, f"rgb_to_{name}")(x)
        back = getattr(K.color, f"{name}_to_rgb")(there)
        torch.testing.assert_close(back, x, atol=5e-3, rtol=0)
        found += [there]
    return numbers(*found)


@case("geometry: rotate, warp, resize, crop, homography; gradients")
def geometry() -> tuple[object, list[float]]:
    x = picture(2, 3, 24, 24).requires_grad_()
    g = K.geometry
    angle = torch.tensor([30.0, -10.0], device=DEVICE, requires_grad=True)
    start = torch.tensor([[[0.0, 0], [23, 0], [23, 23], [0, 23]]] * 2, device=DEVICE)
    end = start + torch.tensor([[1.0, 2], [-2, 1], [-1, -2], [2, -1]], device=DEVICE)
    matrix = g.get_perspective_transform(start, end)
    found = [
        g.rotate(x, angle), g.resize(x, (16, 20)), g.center_crop(x, (12, 12)), g.hflip(x),
        g.warp_perspective(x, matrix, (24, 24)), g.pyrdown(x), matrix,
        g.homography.find_homography_dlt(start, end), g.scale(x, angle.abs() / 20),
    ]  # fmt: skip
    slopes = torch.autograd.grad(sum(one.square().sum() for one in found[:5]), [x, angle])
    return numbers(*[one.detach() for one in found], slopes[0], slopes[1].repeat(8))


@case("rotations: quaternions, axis and angle, poses")
def rotations() -> tuple[object, list[float]]:
    c = K.geometry.conversions
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    quaternion = c.axis_angle_to_quaternion(x)
    matrix = c.quaternion_to_rotation_matrix(quaternion)
    again = c.rotation_matrix_to_quaternion(matrix)
    turned = K.geometry.transform_points(K.eye_like(4, x[:, None]), x[:, None])
    return numbers(quaternion, matrix, again.abs(), c.rotation_matrix_to_axis_angle(matrix), turned)


@case("features and losses: corners, SIFT, SSIM, dice, focal, total variation", 5e-4)
def features() -> tuple[object, list[float]]:
    x, y = picture(2, 1, 32, 32), picture(2, 1, 32, 32, seed=1)
    f = K.feature
    scores = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    wanted = scores.roll(1, 2).argmax(1)
    losses = [
        K.losses.ssim_loss(x, y, 5), K.losses.psnr_loss(x, y, 1.0),
        K.losses.dice_loss(scores, wanted), K.losses.focal_loss(scores, wanted, 0.5).mean(),
        K.losses.total_variation(x).mean() / 100,
    ]  # fmt: skip
    sift = f.SIFTDescriptor(32).to(DEVICE)(x)
    return numbers(f.harris_response(x), f.gftt_response(x), sift, torch.stack(losses).repeat(2))


@case("augmentations: drawn on the host, applied on the device")
def augmented() -> tuple[object, list[float]]:
    x = picture(4, 3, 32, 32)
    a = K.augmentation
    work = a.AugmentationSequential(
        a.RandomHorizontalFlip(p=1.0), a.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0),
        a.RandomAffine(10.0, p=1.0), a.RandomErasing(p=1.0), a.Normalize(0.5, 0.5),
        data_keys=["input"],
    )  # fmt: skip
    found = work(x)
    return found.device, [*found.shape, float(found.isfinite().all())]
