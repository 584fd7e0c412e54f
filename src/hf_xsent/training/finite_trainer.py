"""End a training whose loss or gradients are NaN or infinite before its weights change."""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import Trainer

from hf_xsent.errors import TrainingError


class FiniteTrainer(Trainer):
    """Refuse gradients that are NaN or infinite; subclasses refuse such losses by ``not_finite``."""

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """Raise an error for NaN or infinite gradients before the weights change; fp16's scaler skips such steps."""
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is not None and not math.isfinite(float(norm)) and self.accelerator.scaler is None:
            raise self.not_finite(f"gradients are NaN or infinite (norm {float(norm):g})", self.state.global_step + 1)
        return norm

    def not_finite(self, what: str, step: int) -> TrainingError:
        """Return the error of a step, which also names the first weight that is not finite."""
        model: Any = self.model
        names = (name for name, weight in model.named_parameters() if not weight.isfinite().all())
        first = next(names, None)
        weights = "all weights are finite" if first is None else f"weights are NaN or infinite, {first} first"
        return TrainingError(
            f"step {step}: {what}; {weights}: lower the learning rate; outside a study, --resume_with_changes "
            "(from Python: train(allow_changes=True)) continues from the last checkpoint"
        )
