"""lightning: Trainer and Fabric in each precision, validation, checkpoints, the tuner."""

import tempfile

import lightning
import torch
from case import case
from lightning.pytorch.callbacks import DeviceStatsMonitor, ModelCheckpoint
from lightning.pytorch.tuner import Tuner
from torch import nn

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


def loader(batch_size: int = 16) -> torch.utils.data.DataLoader:
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=batch_size)


class Classifier(lightning.LightningModule):
    def __init__(self, fits: int = 1024) -> None:
        super().__init__()
        lightning.seed_everything(0, verbose=False)
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(8, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2)
        )
        self.losses: list[float] = []
        self.batch_size, self.fits = 16, fits

    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        if len(batch[0]) > self.fits:
            torch.ones(2**40, device=self.device).sum().item()
        loss = self.loss(batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("validation", self.loss(batch))

    def predict_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return self.net(batch[0]).argmax(1)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2, eps=1e-3)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
        }

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        return loader(self.batch_size)

    val_dataloader = train_dataloader


def train(**options: object) -> tuple[object, list[float]]:
    model = Classifier()
    trainer = lightning.Trainer(max_epochs=2, enable_checkpointing=False, **QUIET, **options)
    trainer.fit(model, loader(), loader())
    device = trainer.strategy.root_device
    found = trainer.validate(model, loader(), verbose=False)[0]["validation"]
    assert model.losses[-1] < model.losses[0]
    return device, [*model.losses, float(found)]


@case("Trainer()")
def plain() -> tuple[object, list[float]]:
    return train(gradient_clip_val=1.0)


@case("Trainer(accelerator='auto', devices='auto')")
def auto() -> tuple[object, list[float]]:
    return train(accelerator="auto", devices="auto")


@case("precision='bf16-mixed'", 2e-2)
def bf16_mixed() -> tuple[object, list[float]]:
    return train(precision="bf16-mixed")


@case("precision='16-mixed', a GradScaler (bf16-mixed on the CPU)", 3e-2)
def fp16_mixed() -> tuple[object, list[float]]:
    return train(precision="16-mixed", gradient_clip_val=1.0)


@case("precision='bf16-true'", 5e-2)
def bf16_true() -> tuple[object, list[float]]:
    return train(precision="bf16-true")


@case("precision='16-true'", 2e-2)
def fp16_true() -> tuple[object, list[float]]:
    return train(precision="16-true")


@case("precision='64-true'")
def fp64_true() -> tuple[object, list[float]]:
    return train(precision="64-true")


@case("a checkpoint, resumed; load_from_checkpoint, predict")
def resumed() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        saved = ModelCheckpoint(folder, save_top_k=-1, save_last=True)
        model = Classifier()
        trainer = lightning.Trainer(max_epochs=2, callbacks=[saved], **QUIET)
        trainer.fit(model, loader(), loader())
        again = Classifier()
        trainer = lightning.Trainer(max_epochs=2, enable_checkpointing=False, **QUIET)
        trainer.fit(again, loader(), loader(), ckpt_path=f"{folder}/epoch=0-step=4.ckpt")
        loaded = Classifier.load_from_checkpoint(f"{folder}/last.ckpt")
    assert again.losses == model.losses[4:], (again.losses, model.losses)
    device = trainer.strategy.root_device
    assert loaded.device == device
    found = torch.cat(trainer.predict(loaded, loader()))
    return device, [*model.losses, *found.tolist()]


@case("gradients of two batches, DeviceStatsMonitor")
def accumulated() -> tuple[object, list[float]]:
    from lightning.pytorch.loggers import CSVLogger

    with tempfile.TemporaryDirectory() as folder:
        options = QUIET | {"logger": CSVLogger(folder), "enable_checkpointing": False}
        trainer = lightning.Trainer(
            max_epochs=1, accumulate_grad_batches=2, callbacks=[DeviceStatsMonitor()],
            log_every_n_steps=1, **options,
        )  # fmt: skip
        model = Classifier()
        trainer.fit(model, loader(), loader())
    return trainer.strategy.root_device, model.losses


@case("Tuner: scale_batch_size to the memory, lr_find")
def tuned() -> tuple[object, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        options = QUIET | {"default_root_dir": folder, "enable_checkpointing": False}
        trainer = lightning.Trainer(max_epochs=1, **options)
        size = Tuner(trainer).scale_batch_size(
            Classifier(fits=32), init_val=16, max_trials=4, steps_per_trial=2
        )
        trainer = lightning.Trainer(max_epochs=1, **options)
        found = Tuner(trainer).lr_find(Classifier(), num_training=8, update_attr=False)
    return trainer.strategy.root_device, [size, *found.results["loss"]]


def fabric(**options: object) -> tuple[object, list[float]]:
    work = lightning.Fabric(**options)
    work.launch()
    work.seed_everything(0, verbose=False)
    model = Classifier()
    model, optimizer = work.setup(model.net, torch.optim.AdamW(model.parameters(), lr=1e-2))
    data = work.setup_dataloaders(loader())
    losses = []
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(3):
            for x, y in data:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                work.backward(loss)
                work.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                losses.append(loss.item())
            state = {"model": model, "optimizer": optimizer}
            if epoch == 0:
                work.save(f"{folder}/state.ckpt", state)
            if epoch == 1:
                work.load(f"{folder}/state.ckpt", state)
    assert losses[8:] == losses[4:8], losses
    return work.device, losses


@case("Fabric(): a loop, a checkpoint")
def fabric_plain() -> tuple[object, list[float]]:
    return fabric()


@case("Fabric(accelerator='auto', precision='bf16-mixed')", 2e-2)
def fabric_bf16() -> tuple[object, list[float]]:
    return fabric(accelerator="auto", precision="bf16-mixed")


@case("Fabric(precision='16-mixed') (bf16-mixed on the CPU)", 3e-2)
def fabric_fp16() -> tuple[object, list[float]]:
    return fabric(precision="16-mixed")


@case("an explicit accelerator='cpu' is the CPU")
def on_cpu() -> tuple[object, list[float]]:
    device, losses = train(accelerator="cpu")
    assert device.type == fabric(accelerator="cpu")[0].type == "cpu"
    return "tpu is not taken" if hasattr(torch, "tpu") else device, losses
