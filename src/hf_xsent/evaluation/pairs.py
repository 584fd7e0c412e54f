"""Measure retrieval of translations on any sentence pairs: accuracy in both directions, by cosine and by margin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.tatoeba import TatoebaSet
from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.hub import select_names
from hf_xsent.evaluation.task import Encode, EvaluationTask, Metrics, Outcomes, Scores, means
from hf_xsent.mining.margin import best_by_margin
from hf_xsent.mining.neighbours import nearest_both_ways

if TYPE_CHECKING:
    from typing_extensions import Self

NEAREST = 5


@dataclass(frozen=True)
class PairsTask(EvaluationTask):
    """Pairs: retrieve the translation of each sentence among all sentences of the other side of your pairs."""

    sets: Sequence[TatoebaSet]

    name: ClassVar[str] = "pairs"
    title: ClassVar[str] = "Pairs"
    protocol: ClassVar[str] = (
        "percent of sentences whose nearest sentence of the other side is their translation (P@1) or that have it "
        "among the 5 nearest (P@5), by cosine; by margin: with the best ratio margin among the 4 nearest. Equal "
        "sentences are the same; P@5, margin and mean are means of both directions"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "pairs",
        "forward": "P@1 →",
        "backward": "P@1 ←",
        "mean": "P@1",
        "mean_5": "P@5",
        "margin": "P@1 by margin",
    }
    main_metric: ClassVar[str] = "mean"
    folders: ClassVar[tuple[str, ...]] = ()
    figures: ClassVar[Mapping[str, str]] = {"own pairs: P@1 by cosine": "mean", "own pairs: P@1 by margin": "margin"}
    several_sources: ClassVar[bool] = True

    @classmethod
    def load(
        cls,
        source: Any,
        languages: Iterable[str] | None = None,
        max_pairs: int | None = None,
        target_language: str | None = None,
        cache_dir: str | PathLike[str] | None = None,
    ) -> Self:
        """Read pairs in the format of ``pretrain --data``: some or all languages, the first pairs of each."""
        bitext = load_bitext(
            source, target_language=target_language or "en", cleaning=None, max_pairs=max_pairs, cache_dir=cache_dir
        )
        codes = select_names("the bitext", bitext.languages, languages)
        return cls([TatoebaSet(code, code, *bitext.pairs(code)) for code in codes])

    def texts(self, test_set: TatoebaSet) -> Iterable[str]:
        """Return language and sentences."""
        return test_set.language, *test_set.sources, *test_set.targets

    def measure(self, encode: Encode) -> tuple[Scores, Outcomes]:
        """Measure both directions of each language."""
        rows = {test_set.language: _hits(test_set, encode) for test_set in self.sets}
        languages = {language: _metrics(hits) for language, hits in rows.items()}
        groups = {"all": list(languages)}
        return Scores(languages, means(languages, groups)), Outcomes(rows, groups)

    @staticmethod
    def main_score(rows: np.ndarray) -> np.ndarray:
        """Compute the mean accuracy@1 of both directions."""
        return 100 * np.asarray(rows[..., :2].mean(axis=(-2, -1)))


def _hits(test_set: TatoebaSet, encode: Encode) -> np.ndarray:
    """Return for each pair whether P@1, P@5 and P@1 by margin count it, each in both directions (N × 6)."""
    vectors = encode(test_set.sources), encode(test_set.targets)
    numbers = [
        np.unique(np.array(side, dtype=object), return_inverse=True)[1] for side in (test_set.sources, test_set.targets)
    ]
    nearest = nearest_both_ways(*vectors, k=NEAREST, allow_fewer=True)
    by_margin = best_by_margin(*vectors), best_by_margin(*vectors[::-1])
    hits = np.empty((len(vectors[0]), 6), dtype=bool)
    for direction, (neighbours, best, texts) in enumerate(zip(nearest, by_margin, reversed(numbers), strict=True)):
        found = texts[neighbours.indices.numpy()] == texts[:, None]
        hits[:, direction] = found[:, 0]
        hits[:, 2 + direction] = found.any(1)
        hits[:, 4 + direction] = texts[best] == texts
    return hits


def _metrics(hits: np.ndarray) -> Metrics:
    share = (100 * hits.mean(0)).tolist()
    return {
        "pairs": len(hits),
        "forward": share[0],
        "backward": share[1],
        "mean": (share[0] + share[1]) / 2,
        "forward_5": share[2],
        "backward_5": share[3],
        "mean_5": (share[2] + share[3]) / 2,
        "forward_margin": share[4],
        "backward_margin": share[5],
        "margin": (share[4] + share[5]) / 2,
    }
