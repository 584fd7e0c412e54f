"""An objective over sentence embeddings that trains weights of its own, as somebody might add to the registry."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hf_xsent.objectives.base import Parts, SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.registry import OBJECTIVES
from hf_xsent.objectives.translation_ranking import translation_ranking_loss


class Projected(SentenceObjective):
    """Rank the targets by a linear map of the sources."""

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        width = parts.encoder_config.hidden_size
        self.projection = nn.Linear(width, width, bias=False)

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        return translation_ranking_loss(self.projection(pairs.source), pairs.target)


def register_projected(put: Callable[[Any, str, Any], None] = dict.__setitem__) -> str:
    """Add the objective to the registry, and return its name."""
    put(sys.modules, "hf_xsent.objectives.projected", sys.modules[__name__])
    put(OBJECTIVES, "projected", "projected:Projected")
    return "projected"
