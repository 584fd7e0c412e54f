"""Matryoshka representations (Kusupati et al., 2022): the first few numbers of a vector are a good vector, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hf_xsent.objectives.pairs import SentenceObjective, SentencePairs


class Matryoshka(SentenceObjective):
    """The mean of a sentence objective over vectors cut to each width; who wants the whole one to count lists it."""

    def __init__(self, objective: SentenceObjective, widths: Sequence[int]) -> None:
        super().__init__()
        self.objective = objective
        self.widths = tuple(widths)

    def forward(self, pairs: SentencePairs) -> Tensor:
        """The loss of the batch."""
        cut = (replace(pairs, source=pairs.source[:, :n], target=pairs.target[:, :n]) for n in self.widths)
        return torch.stack([self.objective(one) for one in cut]).mean()
