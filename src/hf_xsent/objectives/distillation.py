"""Distillation (Reimers & Gurevych, 2020): train both sides of a pair to match a teacher's embedding of the target.

    L = 1/2N Σ_i ( MSE(x_i, t(y_i)) + MSE(y_i, t(y_i)) ), with t the teacher, frozen.

With English on the target side, an English teacher trains a student of many languages.

>>> x, y, teacher = torch.eye(2), torch.zeros(2, 2), torch.ones(2, 2)
>>> plain = (F.mse_loss(x, teacher) + F.mse_loss(y, teacher)) / 2
>>> torch.allclose(distillation_loss(torch.cat((x, y)), teacher), plain)
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: F401 - for the docstring's computation

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.base import SIDES, Needs, SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.gathering import mean_over_rows


@dataclass(frozen=True)
class DistillationSettings(ObjectiveSettings):
    """The settings of distillation."""

    teacher: str | None = setting(
        None, "Teacher: a Hub id or a folder. Both sides learn its embedding of the target sentence.", saved=False
    )


def distillation_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Compute the mean squared error between 2N embeddings (both sides) and the teacher's N target embeddings."""
    distances = (student - teacher.repeat(2, 1)).square().mean(1)
    return mean_over_rows(distances.sum(), distances)


class Distillation(SentenceObjective):
    """Minimize the squared distance of both sides' embeddings to a teacher's embedding of the target."""

    Settings: ClassVar[Any] = DistillationSettings
    needs = Needs(embeddings=SIDES, teacher=frozenset(("target",)))

    @classmethod
    def teacher(cls, settings: Any) -> str | None:
        """Return the teacher that the settings name."""
        if settings.teacher is None:
            raise RecipeError("objectives.distillation.teacher is missing: set it to a Hub id or a folder")
        return str(settings.teacher)

    def taught(self, teacher: Mapping[str, Tensor]) -> Tensor:
        """Return the N embeddings to match, from the teacher's by side."""
        return teacher["target"]

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute the loss of the batch."""
        with torch.autocast(pairs.source.device.type, enabled=False):
            kind = torch.promote_types(pairs.source.dtype, torch.float32)
            return distillation_loss(pairs.both.to(kind), self.taught(pairs.teacher).to(kind))
