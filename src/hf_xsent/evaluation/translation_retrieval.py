"""Measure retrieval of translations in both directions, and Tatoeba."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba, tatoeba_groups
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import Encode, EvaluationTask, Scores
from hf_xsent.mining.margin import best_of_neighbours
from hf_xsent.mining.neighbours import nearest_both_ways, nearest_one_way
from hf_xsent.mining.top_k import Neighbours

NEAREST, MARGIN_K = 5, 4
ROUNDING = 1e-6  # of a cosine in float32


def pair_hits(source: np.ndarray, target: np.ndarray, texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return for each pair whether P@1, P@5, P@1 by margin and P@1 beside the own side count it, in both directions.

    Beside that, return what is found first in both directions, also beside the own side: a pair whose text of the other
    side it is, or N plus a pair whose text of the own side it is; -1 for a zero vector.
    ``texts`` are the numbers of the texts of each side, equal for one text on both sides; a text is one candidate in
    all its pairs. Of texts with equal vectors, the first is found. A pair with a zero vector, which has no cosine,
    counts as wrong.
    """
    if len(source) != len(target) or len(source) == 0:
        raise DataError(f"retrieval needs pairs: got {len(source)} source and {len(target)} target vectors")
    vectors = [np.asarray(side, dtype=np.float32) for side in (source, target)]
    hits, found_first = np.zeros((len(source), 8), dtype=bool), np.full((len(source), 2), -1)
    known = [np.flatnonzero(side.any(1)) for side in vectors]  # rows that are candidates
    pairs = np.intersect1d(known[0], known[1])
    if not len(pairs):
        return hits, found_first
    sides = [
        np.unique(_first_equal(side[rows].tolist()), return_index=True, return_inverse=True)[1:]
        for side, rows in zip(texts, known, strict=True)
    ]
    candidates = [side[rows[first]] for side, rows, (first, _) in zip(vectors, known, sides, strict=True)]
    nearest = nearest_both_ways(candidates[0], candidates[1], k=NEAREST, allow_fewer=True)
    few = [Neighbours(of_side.cosines[:, :MARGIN_K], of_side.indices[:, :MARGIN_K]) for of_side in nearest]
    numbers = [inverse[np.searchsorted(rows, pairs)] for rows, (_, inverse) in zip(known, sides, strict=True)]
    for direction, (neighbours, rows, answers) in enumerate(zip(nearest, numbers, numbers[::-1], strict=True)):
        other = 1 - direction
        first = _first_equal(vector.tobytes() for vector in candidates[other])  # rounding decides no ties
        nearest_text = first[neighbours.indices[:, 0].numpy()][rows]
        among = (neighbours.indices.numpy()[rows] == answers[:, None]).any(1)
        by_margin = first[best_of_neighbours(few[direction], few[other])][rows] == answers
        own_side = known[direction]
        own, own_place = nearest_of_own_side(
            vectors[direction][own_side], *(texts[side][own_side] for side in (direction, other))
        )
        of_pairs = np.searchsorted(own_side, pairs)
        nearer = neighbours.cosines[:, 0].numpy()[rows] > own[of_pairs]
        found = nearest_text == answers
        hits[pairs, direction::2] = np.stack([found, among, by_margin, found & nearer], axis=1)
        own_rows, other_rows = own_side[own_place][of_pairs], known[other][sides[other][0]][nearest_text]
        found_first[pairs, direction] = np.where(nearer, other_rows, len(source) + own_rows)
    return hits, found_first


def retrieval_hits(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return for each pair whether source finds target, and whether target finds source (N × 2), by line number."""
    return pair_hits(source, target, [np.arange(len(source))] * 2)[0][:, :2]


def nearest_of_own_side(
    vectors: np.ndarray, texts: np.ndarray, translations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest text of the same side except the translation and texts paired with it: cosine and row.

    Texts and translations are numbers of different texts; the cosine is -inf if all texts are excepted.
    """
    different, first = np.unique(texts, return_index=True)  # a row of each text
    both = np.intersect1d(texts, translations)  # occur on both sides
    pairs = [np.stack([translations, texts], axis=1), np.stack([both, both], axis=1)]
    excepted = np.unique(np.concatenate(pairs), axis=0)
    most = int(np.unique(excepted[:, 0], return_counts=True)[1].max())  # for one translation
    nearest = nearest_one_way(vectors, vectors[first], k=min(most + 1, len(first)))
    candidates = nearest.indices.numpy()
    base = int(excepted.max()) + 1
    same = np.isin(translations[:, None] * base + different[candidates], excepted @ [base, 1])
    cosines = np.where(same, -np.inf, nearest.cosines.numpy())
    best = cosines.argmax(1)[:, None]
    return np.take_along_axis(cosines, best, 1)[:, 0], first[np.take_along_axis(candidates, best, 1)[:, 0]]


def _first_equal(values: Iterable[Hashable]) -> np.ndarray:
    """Return for each value the place of the first equal one."""
    first: dict[Hashable, int] = {}
    return np.array([first.setdefault(value, place) for place, value in enumerate(values)])


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to unit length in float32; zero vectors stay zero."""
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


@dataclass(frozen=True)
class TatoebaTask(EvaluationTask):
    """Tatoeba: retrieve the English translation of each sentence among all English ones, and the reverse."""

    sets: Sequence[PairSet]

    name: ClassVar[str] = "tatoeba"
    title: ClassVar[str] = "Tatoeba"
    protocol: ClassVar[str] = (
        "accuracy@1 by cosine, no margin; a query is correct if its nearest sentence has the same line number; "
        "ties go to the first line"
    )
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
