"""A training function with PyTorch Lightning, imported where its users import it."""

from __future__ import annotations

import warnings

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gandiva_ray as tune
from tests.runtime.kinds import EPOCHS, SECONDS
from tests.runtime.trainables import Config, burn


class Line(LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.lr = lr

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        (inputs,) = batch
        loss = (self.layer(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        self.log("value", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Report(Callback):
    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        burn(SECONDS)
        tune.report({"value": float(trainer.callback_metrics["value"])})


def fit(config: Config) -> None:
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    data = DataLoader(TensorDataset(torch.randn(64, 4)), 16, shuffle=True)
    trainer = Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[Report()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Line(config["x"]), data)
