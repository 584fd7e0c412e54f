"""Measure semantic textual similarity: the rank correlation of cosines with human scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import stats

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.sts import STS17_TRACKS, STS22_PAIRS, load_sts17, load_sts22
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import Encode, EvaluationTask, Scores
from hf_xsent.evaluation.translation_retrieval import unit


def rank_correlation(scores: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation × 100 along the last axis; ties share their mean rank, equal scores give 0.

    NaN and infinity, which have no rank, are errors.
    """
    if not (np.isfinite(scores).all() and np.isfinite(gold).all()):
        raise DataError("a rank correlation needs finite scores: a score or a gold score is NaN or infinite")
    first, second = (stats.rankdata(side, axis=-1) for side in (scores, gold))
    first, second = (side - side.mean(-1, keepdims=True) for side in (first, second))
    scale = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    return 100 * np.divide((first * second).sum(-1), scale, out=np.zeros_like(scale), where=scale > 0)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosine of each row of ``first`` with the same row of ``second``."""
    return (unit(first) * unit(second)).sum(1)


@dataclass(frozen=True)
class _StsTask(EvaluationTask):
    """A benchmark of sentence pairs with human scores."""

    sets: Sequence[PairSet]

    protocol: ClassVar[str] = "Spearman's rank correlation of cosines with gold scores, times 100; ties share ranks"
    headings: ClassVar[Mapping[str, str]] = {"pairs": "pairs", "spearman": "spearman"}
    main_metric: ClassVar[str] = "spearman"

    def score(self, encode: Encode) -> Scores:
        """Measure Spearman's correlation of each pair of languages."""
        rows = {}
        for test_set in self.sets:
            similar = cosines(encode(test_set.sources), encode(test_set.targets))
            rows[test_set.language] = np.stack([similar, test_set.gold], axis=1)
        return self.scored(rows)

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute Spearman's correlation of cosines with gold scores."""
        return {"spearman": rank_correlation(rows[..., 0], rows[..., 1])}


@dataclass(frozen=True)
class Sts17Task(_StsTask):
    """STS 2017, seven tracks: ar-ar, ar-en, es-es, es-en, es-en-wmt (track 4b), en-en, tr-en."""

    name: ClassVar[str] = "sts17"
    unit: ClassVar[str] = "language pair"
    title: ClassVar[str] = "STS 2017"
    groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "7 tracks": tuple(STS17_TRACKS),
        "6 tracks, without es-en-wmt": tuple(test_set for test_set in STS17_TRACKS if test_set != "es-en-wmt"),
        "4 cross-lingual tracks": ("ar-en", "es-en", "es-en-wmt", "tr-en"),
        "3 monolingual tracks": ("ar-ar", "es-es", "en-en"),
    }
    figures: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "STS 2017 within a language": ("3 monolingual tracks", "spearman"),
        "… across languages": ("4 cross-lingual tracks", "spearman"),
    }
    read = staticmethod(load_sts17)


@dataclass(frozen=True)
class Sts22Task(_StsTask):
    """STS22, similarity of news articles; test_set mean excludes fr-pl, whose 11 pairs are too few."""

    name: ClassVar[str] = "sts22"
    unit: ClassVar[str] = "language pair"
    title: ClassVar[str] = "STS22"
    groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "18 pairs": STS22_PAIRS,
        "17 pairs, without fr-pl": tuple(pair for pair in STS22_PAIRS if pair != "fr-pl"),
    }
    read = staticmethod(load_sts22)
