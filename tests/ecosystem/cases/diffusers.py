"""diffusers: a tiny U-Net trained, pipelines with several schedulers, offload; random weights."""

import tempfile

import torch
from case import case
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMPipeline,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    UNet2DConditionModel,
    UNet2DModel,
)
from diffusers.training_utils import EMAModel

DEVICE = torch.accelerator.current_accelerator() or "cpu"


def unet() -> UNet2DModel:
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@case("UNet2DModel: trained, with EMA, DDPMScheduler, saved and loaded", 5e-4)
def trained() -> tuple[object, list[float]]:
    model, scheduler = unet().to(DEVICE), DDPMScheduler(num_train_timesteps=50)
    average = EMAModel(model.parameters(), decay=0.9)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(4):
        x, noise = draw(4, 3, 16, 16, seed=1), draw(4, 3, 16, 16, seed=step)
        times = torch.arange(4, device=DEVICE) * 10 + step
        found = model(scheduler.add_noise(x, noise, times), times).sample
        loss = torch.nn.functional.mse_loss(found, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        losses.append(loss.item())
    average.copy_to(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = UNet2DModel.from_pretrained(folder).to(DEVICE)
    with torch.no_grad():
        found = again(draw(1, 3, 16, 16), 3).sample
    return found.device, [*losses, *found.flatten()[:8].tolist()]


@case("DDPMPipeline with DDPM, DDIM, DPM-Solver, Euler", 2e-3)
def pipelines() -> tuple[object, list[float]]:
    found = []
    for kind in (DDPMScheduler, DDIMScheduler, DPMSolverMultistepScheduler, EulerDiscreteScheduler):
        scheduler = kind(num_train_timesteps=50)
        model = unet().to(DEVICE).eval()
        scheduler.set_timesteps(4, device=DEVICE)
        x = draw(1, 3, 16, 16) * scheduler.init_noise_sigma
        with torch.no_grad():
            for time in scheduler.timesteps:
                noise = model(scheduler.scale_model_input(x, time), time).sample
                options = {} if kind is not DDPMScheduler else {"generator": torch.Generator()}
                x = scheduler.step(noise, time, x, **options).prev_sample
        found += x.flatten()[:6].tolist()
    work = DDPMPipeline(unet(), DDPMScheduler(num_train_timesteps=50)).to(DEVICE)
    work.set_progress_bar_config(disable=True)
    drawn = torch.Generator().manual_seed(0)
    image = work(generator=drawn, num_inference_steps=3, output_type="np").images
    return work.device, [*found, *image.flatten()[:8]]


@case("DDPMPipeline.enable_model_cpu_offload(): the device is found", 2e-3)
def offloaded() -> tuple[object, list[float]]:
    work = DDPMPipeline(unet(), DDPMScheduler(num_train_timesteps=50))
    if torch.accelerator.is_available():
        work.enable_model_cpu_offload()
    work.set_progress_bar_config(disable=True)
    drawn = torch.Generator().manual_seed(0)
    image = work(generator=drawn, num_inference_steps=3, output_type="np").images
    return work._execution_device, image.flatten()[:8]


@case("AutoencoderKL and UNet2DConditionModel, in bf16 as well", 3e-2)
def conditioned() -> tuple[object, list[float]]:
    torch.manual_seed(0)
    coder = AutoencoderKL(
        block_out_channels=(16,), norm_num_groups=8, sample_size=16, latent_channels=4
    )
    model = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(16, 32), norm_num_groups=8, cross_attention_dim=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=8,
    )  # fmt: skip
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        coder, model = coder.to(DEVICE, dtype), model.to(DEVICE, dtype)
        x, words = draw(1, 3, 16, 16).to(dtype), draw(1, 5, 16, seed=1).to(dtype)
        with torch.no_grad():
            latent = coder.encode(x).latent_dist.mode()
            latent = model(latent, 3, encoder_hidden_states=words).sample
            found += coder.decode(latent).sample.flatten()[:8].tolist()
    return latent.device, found
