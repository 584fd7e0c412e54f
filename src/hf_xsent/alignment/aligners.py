"""What a word aligner is, and the three there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hf_xsent.data.words.links import Link
from hf_xsent.data.words.splitting import Words
from hf_xsent.errors import RecipeError, nearest

ALIGNERS = ("embedding", "statistical", "span")


class WordAligner(Protocol):
    """Links the words of sentence pairs, most trusted links first."""

    learns: bool  # from all the pairs that it is given, so that they must come in one call

    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """The links of each pair, as numbers of words."""


@dataclass(frozen=True)
class AlignerSettings:
    """Which aligner, and how it works; also the key under which its links are kept."""

    name: str = "embedding"
    model: str | None = None
    layer: int | None = None
    method: str = "itermax"
    threshold: float = 0.9

    def check(self) -> None:
        """Tell a wrong setting before anything is read."""
        if self.name not in ALIGNERS:
            raise RecipeError(
                f"unknown aligner {self.name!r}: use {', '.join(ALIGNERS)}" + nearest(self.name, ALIGNERS)
            )
        if self.name != "statistical" and self.model is None:
            raise RecipeError(f"the {self.name} aligner needs a model: a folder or a Hub id")
        if self.method not in ("argmax", "itermax"):
            raise RecipeError(f"unknown method {self.method!r}: use argmax or itermax")
        if not 0 < self.threshold <= 2:
            raise RecipeError(f"threshold {self.threshold} is not above 0 and at most 2, the sum of both directions")

    def build(self, device: str | None = None) -> WordAligner:
        """The aligner, with its model loaded."""
        self.check()
        if self.name == "statistical":
            from hf_xsent.alignment.statistical import StatisticalAligner

            return StatisticalAligner()
        if self.name == "span":
            from hf_xsent.alignment.span_prediction import SpanAligner

            return SpanAligner.from_pretrained(str(self.model), self.threshold, device)
        from hf_xsent.alignment.embedding import EmbeddingAligner

        return EmbeddingAligner.from_pretrained(str(self.model), self.layer, self.method, device)
