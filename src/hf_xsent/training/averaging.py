"""Average weights: over all steps by an exponential moving average (EMA), or with those of the start."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback

from hf_xsent.errors import OutputError
from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.sentence_encoder import SentenceEncoder

logger = logging.getLogger(__name__)

AVERAGE_FILE = "averaged_weights.safetensors"  # of a checkpoint of a run with ema_decay


class MovingAverage(TrainerCallback):
    """An exponential moving average of the trained weights: after each step, average = d × average + (1 - d) × weights.

    After n steps the decay d is at most (1 + n) / (10 + n), so that the average does not stay at the start in a short
    run. Checkpoints hold the weights, from which a resumed run continues, and next to them the average. All processes
    have equal weights, so that they have equal averages.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.average: dict[str, Tensor] = {}
        self.checkpoint: str | None = None  # to resume from

    @torch.no_grad()
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start from the weights, or from the checkpoint's average; the weights are loaded already."""
        self.average = {name: weight.clone() for name, weight in _trained(kwargs["model"])}
        if self.checkpoint is not None:
            saved = self._read(self.checkpoint)
            for name, average in self.average.items():
                average.copy_(saved[name])

    @torch.no_grad()
    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Update the average."""
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        weights = [weight for _, weight in _trained(kwargs["model"])]
        get_ema_multi_avg_fn(decay)([*self.average.values()], weights, None)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Swap the weights and their average within the block, without another copy; no effect before training."""
        self._exchange(model)
        try:
            yield
        finally:
            self._exchange(model)

    @torch.no_grad()
    def _exchange(self, model: nn.Module) -> None:
        weights = dict(_trained(model))
        for name, average in self.average.items():
            before = weights[name].clone()
            weights[name].copy_(average)
            average.copy_(before)

    @torch.no_grad()
    def finish(self, model: nn.Module, checkpoint: str | None = None) -> None:
        """Replace the weights by the average, or by that of a checkpoint, and free its memory."""
        averages = self.average if checkpoint is None else self._read(checkpoint)
        for name, weight in _trained(model):
            weight.copy_(averages[name])
        self.average, self.checkpoint = {}, None

    def save(self, checkpoint: str | Path) -> None:
        """Write the average into a checkpoint."""
        save_file(self.average, Path(checkpoint) / AVERAGE_FILE)

    def _read(self, checkpoint: str) -> dict[str, Tensor]:
        path = Path(checkpoint) / AVERAGE_FILE
        if not path.is_file():
            raise OutputError(
                f"{checkpoint} holds no averaged weights, because its run had no ema_decay: drop --ema_decay, or train "
                "from the start with --overwrite"
            )
        return load_file(path)


def starting_weights(model: SentenceEncoder) -> dict[str, Tensor]:
    """Copy the weights of the encoder and of a linear map into main memory, before training."""
    weights = plain_weights(model.encoder) | dict(_weights_of_map(model))
    return {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}


@torch.no_grad()
def average_with_start(model: SentenceEncoder, start: Mapping[str, Tensor], share: float) -> None:
    """Set the weights to (1 - share) × trained + share × starting weights (Wortsman et al., 2022)."""
    model.merge_adapters()
    for name, weight in (*model.encoder.named_parameters(), *_weights_of_map(model)):
        weight.lerp_(start[name].to(weight), share)


def _weights_of_map(model: SentenceEncoder) -> list[tuple[str, nn.Parameter]]:
    """Return the weights of the linear map after pooling, if the model has one."""
    return [] if model.linear_map is None else list(model.linear_map.named_parameters(prefix="linear_map"))


def _trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
