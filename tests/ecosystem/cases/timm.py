"""timm: 15 architectures with random weights, each trained for two steps, then evaluated."""

import numpy as np
import timm
import torch
from case import case
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3

DEVICE = torch.accelerator.current_accelerator() or "cpu"
SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 3}
MODELS = {
    "resnet10t": {},
    "resnext26ts": {},
    "mobilenetv3_small_050": {},
    "ghostnet_050": {"drop_rate": 0.0},
    "regnetx_002": {},
    "densenet121": {"block_config": (2, 2, 2), "growth_rate": 8},
    "convnext_atto": {},
    "vit_tiny_patch16_224": {**SMALL, "img_size": 64},
    "deit3_small_patch16_224": {**SMALL, "img_size": 64},
    "beit_base_patch16_224": {**SMALL, "img_size": 64},
    "swin_tiny_patch4_window7_224": {
        "embed_dim": 24, "depths": (1, 2), "num_heads": (2, 4), "img_size": 64, "window_size": 4,
        "drop_path_rate": 0.0,
    },
    "gmlp_ti16_224": {"img_size": 64},
    "pvt_v2_b0": {},
    "mobilevit_xxs": {},
    "poolformer_s12": {},
}  # fmt: skip


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def trained(name: str) -> tuple[object, list[float]]:
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=10, **MODELS[name]).to(DEVICE)
    x, labels = images(4), torch.arange(4, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    with torch.no_grad():
        logits = model.eval()(x)
        found += (logits / logits.std()).flatten().tolist()
    return x.device, found


for _name in MODELS:
    case(f"{_name}: trained, evaluated", 1e-3)(lambda name=_name: trained(name))


@case("a training script: mixup, AdamW by layer, cosine schedule, averaged weights", 1e-3)
def script() -> tuple[object, list[float]]:
    torch.manual_seed(0)
    np.random.seed(0)
    options = MODELS["vit_tiny_patch16_224"]
    model = timm.create_model("vit_tiny_patch16_224", num_classes=10, **options).to(DEVICE)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, layer_decay=0.75)
    scheduler = CosineLRScheduler(optimizer, t_initial=3, warmup_t=1)
    averaged = ModelEmaV3(model, decay=0.9)
    mixup = Mixup(mixup_alpha=0.2, num_classes=10)
    criterion = SoftTargetCrossEntropy()
    found = []
    for step in range(3):
        x, labels = mixup(images(4), torch.arange(4, device=DEVICE))
        optimizer.zero_grad()
        loss = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        scheduler.step(step)
        averaged.update(model)
        found.append(loss.item())
    found += averaged.module(images(2)).double().square().mean(1).tolist()
    return x.device, found
