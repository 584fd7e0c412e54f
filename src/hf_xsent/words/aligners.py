"""Choose one of the word aligners by its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hf_xsent.data.words.links import Link
from hf_xsent.data.words.splitting import Words
from hf_xsent.errors import RecipeError, did_you_mean

ALIGNERS = ("embedding", "statistical", "span")


class WordAligner(Protocol):
    """An aligner of the words of sentence pairs."""

    needs_all_pairs: bool  # True if one call of align must get all pairs, to estimate statistics from them

    @property
    def identity(self) -> tuple[Any, ...]:
        """All that decides the links besides sentences and weights."""

    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """Return the links of each pair as (source word index, target word index), the most reliable first."""


@dataclass(frozen=True)
class AlignerSettings:
    """Which aligner to use, and its settings."""

    name: str = "embedding"
    model: str | None = None
    layer: int | None = None
    threshold: float | None = None  # None: the aligner's default
    precision: str = "float32"

    def check(self) -> None:
        """Refuse wrong settings."""
        if self.name not in ALIGNERS:
            raise RecipeError(
                f"unknown aligner {self.name!r}: use {', '.join(ALIGNERS)}" + did_you_mean(self.name, ALIGNERS)
            )
        if self.name != "statistical" and self.model is None:
            raise RecipeError(f"the {self.name} aligner needs a model: a folder or a Hub id")
        if self.name == "statistical" and self.model is not None:
            raise RecipeError("the statistical aligner has no model: use the embedding or span aligner")
        if self.name != "embedding" and self.layer is not None:
            raise RecipeError(f"the {self.name} aligner has no layer: use the embedding aligner")
        if self.threshold is None:
            return
        if self.name == "statistical":
            raise RecipeError("the statistical aligner has no threshold: use the embedding or span aligner")
        highest, score = (1, "a probability") if self.name == "embedding" else (2, "the sum of two probabilities")
        if not 0 < self.threshold <= highest:
            raise RecipeError(f"threshold must be above 0 and at most {highest} ({score}), not {self.threshold}")

    def build(self, device: str | None = None) -> WordAligner:
        """Load the aligner and its model."""
        self.check()
        if self.name == "statistical":
            from hf_xsent.alignment.statistical import StatisticalAligner

            return StatisticalAligner()
        chosen = {} if self.threshold is None else {"threshold": self.threshold}
        shared: dict[str, Any] = {"device": device, "precision": self.precision, **chosen}
        if self.name == "span":
            from hf_xsent.alignment.span_prediction import SpanAligner

            return SpanAligner.from_pretrained(str(self.model), **shared)
        from hf_xsent.alignment.embedding import EmbeddingAligner

        return EmbeddingAligner.from_pretrained(str(self.model), self.layer, **shared)
