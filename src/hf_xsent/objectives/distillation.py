"""Distillation from a teacher's vectors (Reimers & Gurevych, 2020): both sides of a pair shall get its target's.

With English on the target side, a teacher that knows English alone makes a student of many languages.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import ModelError
from hf_xsent.objectives.gathering import mean_over_processes, sum_over_processes
from hf_xsent.objectives.pairs import SentenceObjective, SentencePairs

MEASURES = {
    "mse": lambda student, teacher: (student - teacher).square().mean(1),
    "cosine": lambda student, teacher: 1 - F.cosine_similarity(student, teacher),
}


class Distillation(SentenceObjective):
    """The mean distance of the student's 2N vectors from the teacher's of the N targets, in float32."""

    def __init__(self, measure: str = "mse") -> None:
        super().__init__()
        self.measure = measure

    def forward(self, pairs: SentencePairs) -> Tensor:
        """The loss of the batch."""
        if pairs.teacher is None:
            raise ModelError("distillation needs the teacher's vectors of the targets: pass them as teacher_vectors")
        with torch.autocast(pairs.source.device.type, enabled=False):
            kind = torch.promote_types(pairs.source.dtype, torch.float32)
            teacher = pairs.teacher.to(kind).repeat(2, 1)
            distances: Tensor = MEASURES[self.measure](pairs.both.to(kind), teacher)
        count = sum_over_processes(torch.tensor(len(distances), device=distances.device))
        return mean_over_processes(distances.sum(), count)
