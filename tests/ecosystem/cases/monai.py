"""monai: volumes segmented, registered and generated; its losses, metrics and windows."""

import torch
from case import case
from monai import data, inferers, losses, metrics, transforms
from monai.networks import nets
from torch import Tensor, nn

DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")
Result = tuple[object, list[float]]


def numbers(*found: Tensor) -> list[float]:
    return [value for one in found for value in one.detach().float().flatten()[:32].tolist()]


def volumes(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def trained(model: nn.Module, criterion: nn.Module, classes: int, size: int = 32) -> Result:
    model = model.to(DEVICE)
    x = volumes(2, 1, size, size, size)
    labels = (x * classes).long().clamp(0, classes - 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        found.append(loss)
    with torch.no_grad():
        return x.device, numbers(*found, model.eval()(x))


@case("segmentation: a U-Net of volumes, Dice and cross entropy", 1e-3)
def unet() -> Result:
    model = nets.UNet(3, 1, 3, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    return trained(model, losses.DiceCELoss(to_onehot_y=True, softmax=True), 3)


@case("segmentation: SegResNet, focal and Tversky losses", 1e-3)
def segresnet() -> Result:
    model = nets.SegResNet(3, 8, 1, 3, blocks_down=(1, 1, 1), blocks_up=(1, 1))
    found = []
    for criterion in (losses.FocalLoss(to_onehot_y=True), losses.TverskyLoss(to_onehot_y=True)):
        device, values = trained(model, criterion, 3, 16)
        found += values
    return device, found


@case("segmentation: UNETR and Swin UNETR", 1e-3)
def unetr() -> Result:
    first = nets.UNETR(1, 2, (32, 32, 32), 4, 24, 48, 2)
    second = nets.SwinUNETR(1, 2, depths=(1, 1, 1, 1), num_heads=(1, 2, 2, 2), feature_size=12)
    found = []
    for model, size in ((first, 32), (second, 64)):
        criterion = losses.DiceLoss(to_onehot_y=True, softmax=True)
        device, values = trained(model, criterion, 2, size)
        found += values
    return device, found


@case("classification: DenseNet of volumes", 1e-3)
def densenet() -> Result:
    model = nets.DenseNet(3, 1, 3, init_features=8, growth_rate=4, block_config=(2, 2)).to(DEVICE)
    x = volumes(2, 1, 16, 16, 16)
    loss = nn.functional.cross_entropy(model(x), torch.arange(2, device=DEVICE))
    loss.backward()
    return x.device, numbers(loss, next(model.parameters()).grad)


@case("a sliding window over a large volume")
def window() -> Result:
    torch.manual_seed(0)
    model = nets.BasicUNet(3, 1, 2, features=(4, 4, 8, 8, 8, 4)).to(DEVICE).eval()
    x = volumes(1, 1, 40, 36, 32)
    with torch.no_grad():
        y = inferers.sliding_window_inference(x, (32, 32, 32), 2, model, 0.25, mode="gaussian")
    return y.device, numbers(y, y.mean())


@case("metrics: Dice, Hausdorff distance, surface distance, confusion, ROC AUC")
def measured() -> Result:
    truth = (volumes(2, 1, 16, 16, 16) > 0.6).float()
    found = (volumes(2, 1, 16, 16, 16, seed=1) > 0.6).float()
    both = [torch.cat([1 - one, one], 1) for one in (found, truth)]
    values = [
        metrics.compute_dice(*both), metrics.compute_iou(*both),
        metrics.compute_hausdorff_distance(*both), metrics.compute_average_surface_distance(*both),
        metrics.get_confusion_matrix(*both),
    ]  # fmt: skip
    area = metrics.compute_roc_auc(found.flatten()[:64], truth.flatten()[:64])
    return truth.device, [*numbers(*values), float(area)]


@case("transforms: scaled, resized, rotated, smoothed, cropped; dictionaries")
def transformed() -> Result:
    x = data.MetaTensor(volumes(1, 24, 20, 16))
    pipeline = transforms.Compose(
        [
            transforms.ScaleIntensity(), transforms.NormalizeIntensity(),
            transforms.Spacing(pixdim=(1.5, 1.5, 1.5)), transforms.Rotate((0.2, 0.1, 0.3)),
            transforms.GaussianSmooth(1.0), transforms.Resize((12, 12, 12)), transforms.Flip(0),
            transforms.CenterSpatialCrop((8, 8, 8)), transforms.AsDiscrete(threshold=0.0),
        ]
    )  # fmt: skip
    found = pipeline(x)
    return found.device, [*numbers(found, found.sum()), *found.shape]


@case("generation: an autoencoder and a diffusion model", 1e-3)
def generated() -> Result:
    torch.manual_seed(0)
    auto = nets.AutoencoderKL(
        2, 1, 1, num_res_blocks=(1, 1), channels=(8, 8), attention_levels=(False, True),
        norm_num_groups=4, latent_channels=2,
    ).to(DEVICE)  # fmt: skip
    model = nets.DiffusionModelUNet(
        2, 2, 2, num_res_blocks=(1, 1), channels=(8, 8), attention_levels=(False, True),
        norm_num_groups=4, num_head_channels=4,
    ).to(DEVICE)  # fmt: skip
    x = volumes(2, 1, 16, 16)
    mean, _ = auto.encode(x)
    noise = model(mean, torch.tensor([3, 7], device=DEVICE))
    loss = (auto.decode(mean) - x).abs().mean() + noise.square().mean()
    loss.backward()
    return x.device, numbers(loss, mean, noise, next(auto.parameters()).grad)


@case("registration: a field of displacements, warped; its gradients", 1e-3)
def registered() -> Result:
    from monai.networks.blocks import Warp

    fixed, moving = volumes(1, 1, 16, 16, 16), volumes(1, 1, 16, 16, 16, seed=1)
    field = (volumes(1, 3, 16, 16, 16, seed=2) - 0.5).requires_grad_()
    warped = Warp(mode="bilinear", padding_mode="zeros")(moving, field)
    loss = losses.LocalNormalizedCrossCorrelationLoss(3, 3)(warped, fixed)
    loss = loss + losses.BendingEnergyLoss()(field)
    loss.backward()
    return fixed.device, numbers(loss, warped, field.grad)
