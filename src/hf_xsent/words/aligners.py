"""Open one of the word aligners by its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hf_xsent.data.words.links import Link
from hf_xsent.data.words.splitting import Words
from hf_xsent.models.precision import choose_device
from hf_xsent.words.settings import AlignerSettings


class WordAligner(Protocol):
    """An aligner of the words of sentence pairs."""

    @property
    def identity(self) -> tuple[Any, ...]:
        """All that decides the links besides sentences and weights."""

    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """Return the links of each pair as (source word index, target word index), the most reliable first."""


def open_aligner(settings: AlignerSettings) -> WordAligner:
    """Load the aligner and its model."""
    if settings.aligner == "statistical":
        from hf_xsent.words.statistical import StatisticalAligner

        return StatisticalAligner()
    options: dict[str, Any] = {"device": choose_device(settings.device), "precision": settings.precision}
    if settings.threshold is not None:
        options["threshold"] = settings.threshold
    if settings.aligner == "span":
        from hf_xsent.words.span_prediction import SpanAligner

        return SpanAligner.from_pretrained(str(settings.model), **options)
    from hf_xsent.words.embedding import EmbeddingAligner

    return EmbeddingAligner.from_pretrained(str(settings.model), settings.layer, **options)
