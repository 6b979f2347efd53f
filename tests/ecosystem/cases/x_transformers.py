"""x-transformers and einops: decoders of several kinds, generation, an encoder of images."""

import torch
from case import case
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import Rearrange, Reduce
from torch import nn
from x_transformers import (
    AutoregressiveWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(1, 32, shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def train(loss: object, parameters: object, steps: int = 5) -> list[float]:
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def decoder(**options: object) -> AutoregressiveWrapper:
    torch.manual_seed(0)
    layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, **options)
    return AutoregressiveWrapper(
        TransformerWrapper(num_tokens=32, max_seq_len=64, attn_layers=layers)
    )


@case("a decoder, trained: plain, rotary, ALiBi, flash, RMS norm, SwiGLU, key groups", 5e-4)
def decoders() -> tuple[object, list[float]]:
    x, found = tokens(4, 17), []
    for options in (
        {}, {"rotary_pos_emb": True}, {"alibi_pos_bias": True}, {"attn_flash": True},
        {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True}, {"attn_kv_heads": 1},
        {"rel_pos_bias": True}, {"attn_qk_norm": True},
    ):  # fmt: skip
        model = decoder(**options).to(DEVICE)
        found += train(lambda model=model: model(x), model.parameters(), 3)
    return x.device, found


@case("generate, greedy, with and without kept keys and values")
def generated() -> tuple[object, list[float]]:
    model = decoder(rotary_pos_emb=True).to(DEVICE)
    found = [
        model.generate(tokens(2, 4), 8, temperature=0.0, cache_kv=kept) for kept in (True, False)
    ]
    assert torch.equal(*found)
    return found[0].device, found[0].flatten().tolist()


@case("an encoder and a decoder with masks, trained", 5e-4)
def both() -> tuple[object, list[float]]:
    torch.manual_seed(0)
    parts = {"num_tokens": 32, "depth": 1, "heads": 2, "max_seq_len": 16}
    options = {f"{side}_{name}": v for side in ("enc", "dec") for name, v in parts.items()}
    model = XTransformer(dim=32, **options).to(DEVICE)
    source, target = tokens(4, 12), tokens(4, 10)
    mask = torch.arange(12, device=DEVICE) < torch.tensor([[12], [9], [6], [3]], device=DEVICE)
    return source.device, train(lambda: model(source, target, mask=mask), model.parameters())


@case("an encoder of images, trained", 5e-4)
def images() -> tuple[object, list[float]]:
    torch.manual_seed(0)
    model = ViTransformerWrapper(
        image_size=16, patch_size=4, num_classes=4, attn_layers=Encoder(dim=32, depth=2, heads=2)
    ).to(DEVICE)
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    wanted = torch.arange(4, device=DEVICE)
    return x.device, train(
        lambda: nn.functional.cross_entropy(model(x), wanted), model.parameters()
    )


@case("einops: rearrange, reduce, repeat, einsum, pack, layers")
def rearranged() -> tuple[object, list[float]]:
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    patches = rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
    packed, shapes = pack([patches, patches[:, 0]], "b * c")
    layers = nn.Sequential(
        Rearrange("b c h w -> b (c h) w"), Reduce("b c (w two) -> b c w", "max", two=2)
    )
    found = [
        patches, reduce(x, "b c (h two) (w also) -> b c h w", "mean", two=2, also=2),
        repeat(x[:, 0], "b h w -> b h (w three)", three=3), packed,
        unpack(packed, shapes, "b * c")[1], einsum(patches, patches, "b i c, b j c -> b i j"),
        layers(x),
    ]  # fmt: skip
    return x.device, [value for one in found for value in one.flatten()[:8].tolist()]
