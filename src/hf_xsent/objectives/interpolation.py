"""Interpolation (SALT): pull both sides of a pair to the middle of their starting embeddings.

    L = 1/2N Σ_i ( MSE(x_i, m_i) + MSE(y_i, m_i) ),    m_i = ( t(x_i) + t(y_i) ) / 2

t is a frozen copy of the model before training. Compared with distillation, the embedding space stays near its start on
both sides.

>>> x, y, start_x, start_y = torch.randn(4, 3, 2)
>>> middle = (start_x + start_y) / 2
>>> loss = (F.mse_loss(x, middle) + F.mse_loss(y, middle)) / 2
>>> torch.allclose(distillation_loss(torch.cat((x, y)), middle), loss)
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch  # noqa: F401 - for the docstring's computation
from torch import Tensor
from torch.nn import functional as F  # noqa: F401 - for the docstring's computation

from hf_xsent.objectives.base import SIDES, Needs
from hf_xsent.objectives.distillation import Distillation, distillation_loss  # noqa: F401 - likewise
from hf_xsent.objectives.settings import ObjectiveSettings


class Interpolation(Distillation):
    """Minimize the squared distance of both sides' embeddings to the mean of both by the model before training."""

    Settings = ObjectiveSettings
    needs = Needs(embeddings=SIDES, teacher=SIDES)

    @classmethod
    def teacher(cls, settings: Any) -> None:
        """Return None: the teacher is the model before training."""

    def taught(self, teacher: Mapping[str, Tensor]) -> Tensor:
        """Return the mean of both sides' starting embeddings."""
        return (teacher["source"] + teacher["target"]) / 2
