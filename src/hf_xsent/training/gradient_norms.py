"""Measure the norm of each objective's gradient over the encoder's weights, at the steps that are logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from hf_xsent.errors import RecipeError
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.objectives.base import sentence_losses
from hf_xsent.tensors.gathering import mean_over_processes
from hf_xsent.training.large_batch import RandomState


class GradientNorms:
    """The norms of the last measured step, for the log.

    Each is the norm of the gradient of one unweighted loss, ``loss_NAME`` in the log. Multiplied by the objective's
    weight, it is the norm of the objective's part of the step's gradient. A measured step encodes its batch
    once more, with the same random numbers, and runs one backward pass per objective.
    """

    def __init__(self, model: SentenceEncoderForPreTraining) -> None:
        self.weights = [weight for weight in model.encoder.parameters() if weight.requires_grad]
        if not self.weights:
            raise RecipeError(
                "log_gradient_norms measures gradients of the encoder, but the encoder is frozen: drop it"
            )
        self._norms: dict[str, Tensor] = {}

    def measure_if_logged(self, trainer: Trainer, model: nn.Module, batch: Mapping[str, Any]) -> None:
        """Measure the norms if the step that runs now is logged at its end."""
        step = trainer.state.global_step + 1
        if step % trainer.state.logging_steps == 0 or (step == 1 and trainer.args.logging_first_step):
            with trainer.accelerator.autocast():
                self.measure(trainer.accelerator.unwrap_model(model), batch)

    def measure(self, model: SentenceEncoderForPreTraining, batch: Mapping[str, Any]) -> None:
        """Measure the norms on a batch; the next forward pass samples the same random numbers."""
        before = RandomState(model.device)
        losses = _losses(model, batch)
        for name, loss in losses.items():
            gradients: Any = [None]
            if loss.requires_grad:
                gradients = torch.autograd.grad(loss, self.weights, retain_graph=True, allow_unused=True)
            norms = [gradient.float().norm() for gradient in gradients if gradient is not None]
            self._norms[name] = torch.stack(norms).norm() if norms else torch.zeros(())
        for objective in model.objectives.values():
            objective.discard_batch()
        before.restore()

    def take(self) -> dict[str, float]:
        """Return the norms measured since the last call, by the name of their line in the log."""
        logged = {f"gradient_norm_{name}": norm.item() for name, norm in self._norms.items()}
        self._norms.clear()
        return logged


def _losses(model: SentenceEncoderForPreTraining, batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Compute each unweighted loss, as ``forward`` does, so that it can be differentiated."""
    encoded = model.encode_pairs({name: value for name, value in batch.items() if value is not None})
    losses = sentence_losses(model.objectives, encoded.sentences, batch)
    for name, parts in encoded.sampled.items():
        sums = [model.objectives[name].token_loss(encoded.tokens, encoded.states, part) for part in parts]
        means = [mean_over_processes(total, part.count) for total, part in zip(sums, parts, strict=True)]
        losses[name] = losses.get(name, 0) + torch.stack(means).mean()
    return {name: losses[name] for name in model.objectives}
