"""torchvision: models trained for two steps and evaluated, detection among them, and transforms.

torchvision chooses no device, so this file does. Its operators are in the build that fits that of
PyTorch: with PyTorch's CPU build, the one from the same index (scripts/setup_env.sh), or one made
from torchvision's sources. Without CUDA's libraries PyPI's has none, and detection fails.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from case import case
from torch import Tensor, nn
from torchvision import models, ops, tv_tensors
from torchvision.transforms import v2

OFF = os.environ.get("TORCH_TPU_INTEGRATIONS") == "off"
DEVICE = torch.device("cpu") if OFF else torch.accelerator.current_accelerator()
Result = tuple[object, list[float]]
ALL = 1 << 20  # samples: who takes all of them draws none


def trained(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> list[float]:
    """The losses of two steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def classified(model: nn.Module) -> Result:
    model = model.to(DEVICE)
    images, labels = torch.randn(4, 3, 64, 64).to(DEVICE), torch.arange(4).to(DEVICE)
    losses = trained(model, lambda one: nn.functional.cross_entropy(one(images), labels))
    with torch.no_grad():
        return images.device, losses + model.eval()(images).flatten().tolist()


@case("classification: ResNet-18")
def resnet() -> Result:
    return classified(models.resnet18(num_classes=5))


@case("classification: MobileNetV3, EfficientNet's squeezes and swishes")
def mobilenet() -> Result:
    return classified(models.mobilenet_v3_small(num_classes=5, dropout=0.0))


@case("classification: a vision transformer")
def transformer() -> Result:
    return classified(models.VisionTransformer(64, 16, 2, 4, 32, 64, num_classes=5))


@case("classification: Swin V2, shifted windows")
def swin() -> Result:
    more: dict[str, Any] = {"stochastic_depth_prob": 0.0, "num_classes": 5}
    block = models.swin_transformer.SwinTransformerBlockV2
    merging = models.swin_transformer.PatchMergingV2
    return classified(
        models.SwinTransformer(
            [4, 4], 24, [2, 2], [2, 4], [4, 4], block=block, downsample_layer=merging, **more
        )
    )


def targets(masks: bool) -> list[dict[str, Tensor]]:
    found = []
    for shift in (0, 20):
        boxes = torch.tensor([[10.0, 12, 60, 70], [30, 20, 100, 64]]).double() + shift
        one = {"boxes": boxes, "labels": torch.tensor([1, 3])}
        if masks:
            one["masks"] = torch.zeros(2, 128, 128, dtype=torch.uint8)
            for mask, box in zip(one["masks"], boxes.int().tolist(), strict=True):
                mask[box[1] : box[3], box[0] : box[2]] = 1
        found.append({name: value.to(DEVICE) for name, value in one.items()})
    return found


def detected(build: Callable[..., nn.Module], masks: bool = False, **more: Any) -> Result:
    """In double precision: untrained models give scores whose order the last bit decides else."""
    backbone = models.detection.backbone_utils.resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, trainable_layers=5
    )
    model = build(backbone, num_classes=5, min_size=128, max_size=128, **more)
    model, images = model.double().to(DEVICE), list(torch.rand(2, 3, 128, 128).double().to(DEVICE))
    losses = trained(model, lambda one: sum(one(images, targets(masks)).values()))
    with torch.no_grad():
        found = model.eval()(images)
    return images[0].device, losses + [
        value.double().sum().item() for one in found for _, value in sorted(one.items())
    ]


SAMPLES = {"rpn_batch_size_per_image": ALL, "box_batch_size_per_image": ALL}


@case("detection: Faster R-CNN", 1e-3)
def faster_rcnn() -> Result:
    return detected(models.detection.FasterRCNN, **SAMPLES)


@case("detection: Mask R-CNN", 1e-3)
def mask_rcnn() -> Result:
    return detected(models.detection.MaskRCNN, masks=True, **SAMPLES)


@case("detection: RetinaNet", 1e-3)
def retinanet() -> Result:
    return detected(models.detection.RetinaNet, score_thresh=0.0)


@case("segmentation: LR-ASPP and DeepLabV3")
def segmented() -> Result:
    numbers = []
    images = torch.randn(2, 3, 64, 64).to(DEVICE)
    labels = (torch.arange(2 * 64 * 64).view(2, 64, 64) % 5).to(DEVICE)
    for build in ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"):
        model = getattr(models.segmentation, build)(
            weights=None, weights_backbone=None, num_classes=5
        ).to(DEVICE)
        for part in model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        numbers += trained(
            model, lambda one: nn.functional.cross_entropy(one(images)["out"], labels)
        )
    return images.device, numbers


@case("deformable convolution, position-sensitive pooling")
def operators() -> Result:
    layer = ops.DeformConv2d(4, 8, 3, padding=1, groups=2).to(DEVICE)
    offsets, masks = nn.Conv2d(4, 18, 3, padding=1), nn.Conv2d(4, 9, 3, padding=1)
    both = nn.ModuleList([layer, offsets.to(DEVICE), masks.to(DEVICE)])
    images = torch.randn(2, 4, 16, 16).to(DEVICE)
    boxes = [torch.tensor([[1.0, 2, 13, 11], [4, 4, 9, 15]]).to(DEVICE)] * 2

    def loss(parts: nn.Module) -> Tensor:
        moved = layer(images, offsets(images), masks(images).sigmoid())
        pooled = ops.ps_roi_align(moved, boxes, 2, sampling_ratio=2)
        return pooled.square().mean() + ops.roi_pool(moved, boxes, 3).mean()

    return images.device, trained(both, loss)


@case("transforms of images, boxes and masks")
def transformed() -> Result:
    pipeline = v2.Compose(
        [
            v2.RandomResizedCrop(48, antialias=True),
            v2.RandomHorizontalFlip(1.0),
            v2.RandomAffine(20, translate=(0.1, 0.1), scale=(0.8, 1.2)),
            v2.ColorJitter(0.3, 0.3, 0.3, 0.1),
            v2.GaussianBlur(3),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    pixels = (torch.arange(3 * 64 * 64) * 7919 % 256).to(torch.uint8).view(3, 64, 64)
    image = tv_tensors.Image(pixels.to(DEVICE))
    boxes = tv_tensors.BoundingBoxes(
        torch.tensor([[5.0, 5, 40, 30]]).to(DEVICE), format="XYXY", canvas_size=(64, 64)
    )
    mask = tv_tensors.Mask((pixels[:1] > 127).to(DEVICE))
    found = pipeline(image, boxes, mask)
    sums = [part.float().abs().mean().item() for part in found]
    return image.device, sums + found[1].flatten().tolist()
