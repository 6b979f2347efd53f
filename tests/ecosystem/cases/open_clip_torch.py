"""open_clip: pictures and texts, with random weights; CoCa, SigLIP's loss, a tower of timm's."""

import open_clip
import torch
from case import case
from open_clip.coca_model import CoCa
from open_clip.loss import ClipLoss, CoCaLoss, SigLipLoss
from open_clip.model import CLIP
from torch import Tensor

DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")
Result = tuple[object, list[float]]
VISION = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}


def numbers(*found: Tensor) -> list[float]:
    return [value for one in found for value in one.detach().float().flatten()[:32].tolist()]


def batch() -> tuple[Tensor, Tensor]:
    tokens = open_clip.SimpleTokenizer(context_length=16)
    texts = tokens(["a cat", "a dog that sleeps", "three birds", "the sea at night"])
    pictures = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return pictures.to(DEVICE), texts.to(DEVICE)


def trained(model: torch.nn.Module, loss: torch.nn.Module) -> Result:
    model = model.to(DEVICE)
    pictures, texts = batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        with torch.no_grad():
            model.logit_scale.clamp_(0, 4.6)
        value = loss(*model(pictures, texts))
        value.backward()
        optimizer.step()
        found.append(value)
    with torch.no_grad():
        model.eval()
        seen, read = model.encode_image(pictures, True), model.encode_text(texts, True)
    return pictures.device, numbers(*found, seen, read, (100 * seen @ read.T).softmax(-1))


@case("a vision transformer and a text transformer, contrastive loss", 1e-3)
def clip() -> Result:
    return trained(CLIP(64, dict(VISION), dict(TEXT)), ClipLoss())


@case("a ResNet with attention pooling", 1e-3)
def resnet() -> Result:
    vision = {"image_size": 32, "layers": (1, 1, 1, 1), "width": 32, "patch_size": None}
    return trained(CLIP(64, vision, dict(TEXT)), ClipLoss())


@case("SigLIP's loss, a bias of logits", 1e-3)
def siglip() -> Result:
    model = CLIP(64, dict(VISION), dict(TEXT), init_logit_scale=2.3, init_logit_bias=-10.0)
    return trained(model, SigLipLoss())


@case("a tower of timm's", 1e-3)
def tower() -> Result:
    vision = {"timm_model_name": "resnet10t", "image_size": 32, "timm_pool": "", "timm_proj": ""}
    vision |= {"timm_model_pretrained": False, "timm_pool": "avg", "timm_proj": "linear"}
    return trained(CLIP(64, vision, dict(TEXT)), ClipLoss())


@case("CoCa: captions beside contrasts", 1e-3)
def coca() -> Result:
    several = {**TEXT, "embed_cls": True, "output_tokens": True}
    seeing = {**VISION, "attentional_pool": True, "output_tokens": True, "attn_pooler_heads": 2}
    decoder = {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}
    decoder |= {"mlp_ratio": 4}
    model = CoCa(64, decoder, several, seeing, pad_id=0)
    torch.nn.init.normal_(model.text_decoder.text_projection, std=0.1)  # left as it lay in memory
    model = model.to(DEVICE)
    pictures, texts = batch()
    criterion = CoCaLoss(caption_loss_weight=2.0, clip_loss_weight=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        value = sum(criterion(**model(pictures, texts), output_dict=True).values())
        value.backward()
        optimizer.step()
        found.append(value)
    return pictures.device, numbers(*found)
