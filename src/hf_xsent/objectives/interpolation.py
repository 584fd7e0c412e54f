"""Interpolation (SALT): pull both sides of a pair to the middle of their starting embeddings.

    L = 1/2N Σ_i ( MSE(x_i, m_i) + MSE(y_i, m_i) ),    m_i = ( t(x_i) + t(y_i) ) / 2

t is a frozen copy of the model before training. Compared with distillation, the embedding space stays near its start on
both sides.

>>> x, y, start_x, start_y = torch.randn(4, 3, 2)
>>> middle = (start_x + start_y) / 2
>>> torch.allclose(interpolation_loss(x, y, start_x, start_y), (F.mse_loss(x, middle) + F.mse_loss(y, middle)) / 2)
True
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: F401 - for the docstring's computation

from hf_xsent.objectives.base import SIDES, Needs, SentenceObjective
from hf_xsent.objectives.distillation import distillation_loss
from hf_xsent.objectives.pairs import SentencePairs


def interpolation_loss(source: Tensor, target: Tensor, start_source: Tensor, start_target: Tensor) -> Tensor:
    """Compute the mean squared error between both sides' embeddings and the mean of both sides' starting embeddings."""
    return distillation_loss(torch.cat((source, target)), (start_source + start_target) / 2)


class Interpolation(SentenceObjective):
    """Minimize the squared distance of both sides' embeddings to the mean of both by the model before training."""

    needs = Needs(embeddings=SIDES, teacher=SIDES)

    @classmethod
    def teacher(cls, settings: Any) -> None:
        """Return None: the teacher is the model before training."""

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute the loss of the batch."""
        vectors = (pairs.source, pairs.target, pairs.teacher["source"], pairs.teacher["target"])
        with torch.autocast(pairs.source.device.type, enabled=False):
            kind = torch.promote_types(pairs.source.dtype, torch.float32)
            return interpolation_loss(*(embeddings.to(kind) for embeddings in vectors))
