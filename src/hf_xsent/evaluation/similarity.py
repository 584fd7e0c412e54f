"""Semantic textual similarity: do cosines order sentence pairs as people do?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import stats

from hf_xsent.data.benchmarks.sts import STS17_TRACKS, STS22_PAIRS, StsSet, load_sts17, load_sts22
from hf_xsent.errors import DataError
from hf_xsent.evaluation.retrieval import unit
from hf_xsent.evaluation.task import Encode, Figures, Scores, fingerprint, means

if TYPE_CHECKING:
    from typing_extensions import Self


def spearman(scores: Sequence[float] | np.ndarray, gold: Sequence[float] | np.ndarray) -> float:
    """Rank correlation, times 100; equal values share their mean rank, and equal scores for all are worth 0."""
    if len(scores) != len(gold) or len(gold) < 2:
        raise DataError(f"a rank correlation needs pairs, two at least: got {len(scores)} scores and {len(gold)} gold")
    ranks = [stats.rankdata(side) for side in (scores, gold)]
    if any(side.min() == side.max() for side in ranks):
        return 0.0
    return 100 * float(np.corrcoef(*ranks)[0, 1])


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Of each vector with its partner."""
    return (unit(first) * unit(second)).sum(1)


@dataclass(frozen=True)
class _StsTask:
    """One benchmark of sentence pairs with human scores."""

    sets: Sequence[StsSet]

    title: ClassVar[str]
    protocol: ClassVar[str] = "Spearman's rank correlation of cosines with gold scores, times 100; ties share ranks"
    headings: ClassVar[Mapping[str, str]] = {"pairs": "pairs", "spearman": "spearman"}
    main: ClassVar[str] = "spearman"
    groups: ClassVar[Mapping[str, Sequence[str]]]

    def __post_init__(self) -> None:
        if not self.sets:
            raise DataError(f"no pair of languages of {self.title} was chosen: name at least one")

    @cached_property
    def fingerprint(self) -> str:
        """Of sentences and gold scores."""
        return fingerprint(
            text for one in self.sets for text in (one.pair, *one.first, *one.second, *map(repr, one.gold))
        )

    def sentences(self) -> Iterator[str]:
        """Both sides of each pair of languages."""
        for one in self.sets:
            yield from (*one.first, *one.second)

    def score(self, encode: Encode) -> Scores:
        """Spearman for each pair of languages."""
        languages: dict[str, Figures] = {
            one.pair: {
                "pairs": len(one.gold),
                "spearman": spearman(cosines(encode(one.first), encode(one.second)), one.gold),
            }
            for one in self.sets
        }
        return Scores(languages, means(languages, {**self.groups, "measured": list(languages)}))


@dataclass(frozen=True)
class Sts17Task(_StsTask):
    """STS 2017, the seven tracks of the shared task."""

    name: ClassVar[str] = "sts17"
    title: ClassVar[str] = "STS 2017"
    groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "7 tracks": tuple(STS17_TRACKS),
        "4 cross-lingual tracks": ("ar-en", "es-en", "es-en-wmt", "tr-en"),
        "3 monolingual tracks": ("ar-ar", "es-es", "en-en"),
    }

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """As ``load_sts17``; pairs are ar-ar, ar-en, es-es, es-en, es-en-wmt (track 4b), en-en, tr-en."""
        return cls(load_sts17(source, languages))


@dataclass(frozen=True)
class Sts22Task(_StsTask):
    """STS22: how alike news articles are; fr-pl has 11 pairs, too few to mean much, so means are given without, too."""

    name: ClassVar[str] = "sts22"
    title: ClassVar[str] = "STS22"
    groups: ClassVar[Mapping[str, Sequence[str]]] = {
        "18 pairs": STS22_PAIRS,
        "17 pairs, without fr-pl": tuple(pair for pair in STS22_PAIRS if pair != "fr-pl"),
    }

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """As ``load_sts22``."""
        return cls(load_sts22(source, languages))
