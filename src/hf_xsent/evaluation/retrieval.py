"""Measure retrieval of translations on Tatoeba or any dev set: accuracy@1 in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba, tatoeba_groups
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import Encode, EvaluationTask, Scores
from hf_xsent.mining.neighbours import nearest_both_ways, nearest_one_way
from hf_xsent.models.text_encoder import SupportsEncode

PROTOCOL = (
    "accuracy@1 by cosine, no margin; a query is correct if its nearest sentence has the same line number; "
    "ties go to the first line"
)


@dataclass(frozen=True)
class RetrievalAccuracy:
    """Percent of sentences whose nearest neighbour on the other side is their translation."""

    forward: float  # source → target, xx→en
    backward: float  # target → source, en→xx
    pairs: int
    beside: float = field(default=0.0, compare=False)  # nearer than all other sentences of both sides

    @property
    def mean(self) -> float:
        """Return the mean of both directions."""
        return (self.forward + self.backward) / 2


def accuracy_at_1(source: np.ndarray, target: np.ndarray) -> RetrievalAccuracy:
    """Measure how often the nearest neighbour of ``source[i]`` is ``target[i]``, and the reverse."""
    hits = retrieval_hits(source, target)
    source, target = unit(source), unit(target)
    whole = np.flatnonzero(np.any(source, 1) & np.any(target, 1))  # zero vectors count as wrong
    beside = _beside(source[whole], target[whole], hits[whole]) if len(whole) else hits[whole]
    forward, backward = (100 * float(side.sum() / len(side)) for side in hits.T)
    return RetrievalAccuracy(forward, backward, len(hits), beside=100 * float(beside.sum()) / hits.size)


def _beside(source: np.ndarray, target: np.ndarray, hits: np.ndarray) -> np.ndarray:
    """Return the hits whose translation is also nearer than the other sentences of the query's side; unit vectors."""
    texts = _first_equal(source), _first_equal(target)
    own = nearest_of_own_side(source, *texts), nearest_of_own_side(target, *reversed(texts))
    return np.asarray(hits & ((source * target).sum(1)[:, None] > np.stack(own, axis=1)))


def retrieval_hits(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return for each pair whether source finds target, and whether target finds source (N × 2)."""
    if len(source) != len(target) or len(source) == 0:
        raise DataError(f"retrieval needs pairs: got {len(source)} source and {len(target)} target vectors")
    source, target = (np.asarray(side, dtype=np.float32) for side in (source, target))
    lines = [np.flatnonzero(side.any(1)) for side in (source, target)]  # zero vectors have no cosine and count as wrong
    hits = np.zeros((len(source), 2), dtype=bool)
    if not all(map(len, lines)):
        return hits
    of_source, of_target = nearest_both_ways(source[lines[0]], target[lines[1]], k=1)
    nearest_target, nearest_source = lines[1][of_source.indices[:, 0]], lines[0][of_target.indices[:, 0]]
    hits[lines[0], 0] = _first_equal(target)[nearest_target] == lines[0]
    hits[lines[1], 1] = _first_equal(source)[nearest_source] == lines[1]
    return hits


def nearest_of_own_side(vectors: np.ndarray, texts: np.ndarray, translations: np.ndarray) -> np.ndarray:
    """Return the cosine of the nearest text of the same side that is not paired with the translation of the sentence.

    Texts and translations are numbers of different texts; -inf if all texts are paired with the translation.
    """
    first, texts = np.unique(texts, return_index=True, return_inverse=True)[1:]  # a row of each text
    known = np.unique(np.stack([translations, texts], axis=1), axis=0)
    paired = int(np.unique(known[:, 0], return_counts=True)[1].max())  # texts of one translation, at most
    nearest = nearest_one_way(vectors, vectors[first], k=min(paired + 1, len(first)))
    candidates = nearest.indices.numpy()
    same = np.isin(translations[:, None] * len(first) + candidates, known @ [len(first), 1])
    return np.asarray(np.where(same, -np.inf, nearest.cosines.numpy()).max(1))


def _first_equal(vectors: np.ndarray) -> np.ndarray:
    """Return for each row the index of the first equal row, so that rounding does not decide ties."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(vector.tobytes(), line) for line, vector in enumerate(vectors)])


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to unit length in float32; zero vectors stay zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def retrieval_by_language(
    model: SupportsEncode,
    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    target_language: str | None = None,
) -> dict[str, RetrievalAccuracy]:
    """Measure accuracy@1 between the sources and targets of each language.

    A model with language embeddings needs ``target_language``; the keys of ``pairs`` are the languages of the sources.
    """
    results = {}
    for language, (sources, targets) in pairs.items():
        if target_language is None:
            vectors = model.encode([*sources, *targets])
            results[language] = accuracy_at_1(vectors[: len(sources)], vectors[len(sources) :])
        else:
            encode: Any = model.encode
            results[language] = accuracy_at_1(
                encode(sources, language=language), encode(targets, language=target_language)
            )
    return results


@dataclass(frozen=True)
class TatoebaTask(EvaluationTask):
    """Tatoeba: retrieve the English translation of each sentence among all English ones, and the reverse."""

    sets: Sequence[PairSet]

    name: ClassVar[str] = "tatoeba"
    title: ClassVar[str] = "Tatoeba"
    protocol: ClassVar[str] = PROTOCOL
    headings: ClassVar[Mapping[str, str]] = {"pairs": "pairs", "forward": "xx→en", "backward": "en→xx", "mean": "mean"}
    main_metric: ClassVar[str] = "mean"
    groups: ClassVar[Mapping[str, Sequence[str]]] = tatoeba_groups()
    read = staticmethod(load_tatoeba)

    def score(self, encode: Encode) -> Scores:
        """Measure accuracy@1 in both directions, and its means over the groups of languages that papers report."""
        return self.scored(
            {one.language: retrieval_hits(encode(one.sources), encode(one.targets)) for one in self.sets}
        )

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute accuracy@1 of each direction and of both."""
        forward, backward = np.moveaxis(100 * rows.mean(-2), -1, 0)
        return {"forward": forward, "backward": backward, "mean": (forward + backward) / 2}
