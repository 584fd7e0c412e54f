"""Bitext mining by margins (Artetxe and Schwenk, 2019): a cosine counts by how far it stands out from neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_xsent.errors import DataError, nearest
from hf_xsent.mining.best import Neighbours
from hf_xsent.mining.index import nearest_by_index
from hf_xsent.mining.neighbours import Vectors, nearest_both_ways

MARGINS = ("ratio", "distance", "absolute")
CANDIDATES = ("max", "forward", "backward", "intersection")
_PAIRS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class MinedPairs:
    """Pairs of row numbers, best first."""

    source: np.ndarray
    target: np.ndarray
    score: np.ndarray  # by which they are ordered
    cosine: np.ndarray
    target_rank: np.ndarray  # of the target among the source's nearest, from 1; k + 1 where it is none of the k
    source_rank: np.ndarray

    def __len__(self) -> int:
        return len(self.score)

    def above(self, threshold: float) -> MinedPairs:
        """Those that score at least so much."""
        return self.first(int(np.searchsorted(-self.score, -threshold, side="right")))

    def first(self, count: int) -> MinedPairs:
        """The best so many."""
        return self.take(slice(count))

    def rows(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """These figures of each pair, of which only so many are Python's numbers at a time."""
        for start in range(0, len(self), _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            yield from zip(*(getattr(self, name)[some].tolist() for name in names), strict=True)

    def take(self, rows: slice | np.ndarray) -> MinedPairs:
        """Some of the pairs, by their places."""
        return MinedPairs(*(getattr(self, field.name)[rows] for field in fields(self)))


def mine_bitext(
    source_embeddings: Vectors,
    target_embeddings: Vectors,
    k: int = 4,
    margin: str = "ratio",
    candidates: str = "max",
    index: str | None = None,
    probes: int = 32,
    **options: Any,
) -> MinedPairs:
    """Find translations among two sets of vectors.

    With a(x) the mean cosine of x with its ``k`` nearest neighbours on the other side, a pair scores
    ``ratio``: cos / ((a(x) + a(y)) / 2), ``distance``: cos - (a(x) + a(y)) / 2, or ``absolute``: cos.
    ``candidates`` are each source's best target (``forward``), each target's best source (``backward``), those that are
    both (``intersection``), or all of them, of which the best are taken so that no sentence is in two pairs (``max``).
    Of equal scores the lower source number comes first, then the lower target number; equal sentences count as
    different ones. ``options`` go to ``nearest_both_ways``. With ``index``, a faiss factory string such as
    ``IVF4096,Flat``, neighbours are looked up instead of compared with all; its recall on a sample is logged.
    """
    check_choices(margin, candidates)
    if index is None:
        of_source, of_target = nearest_both_ways(source_embeddings, target_embeddings, k, **options)
    else:
        of_source, of_target, _ = nearest_by_index(source_embeddings, target_embeddings, k, index, probes)
    return pairs_of_neighbours(of_source, of_target, margin, candidates)


def check_choices(margin: str, candidates: str) -> None:
    """Tell of unknown ones before any work."""
    for name, value, choices in (("margin", margin, MARGINS), ("candidates", candidates, CANDIDATES)):
        if value not in choices:
            raise DataError(f"unknown {name} {value!r}: use one of {', '.join(choices)}{nearest(value, choices)}")


def pairs_of_neighbours(of_source: Neighbours, of_target: Neighbours, margin: str, candidates: str) -> MinedPairs:
    """Score the neighbours of both sides and choose among them."""
    averages = of_source.cosines.mean(1), of_target.cosines.mean(1)
    forward = _best(of_source, averages[0], averages[1], margin)
    backward = _best(of_target, averages[1], averages[0], margin)
    sources, targets = torch.arange(len(forward[0])), torch.arange(len(backward[0]))
    there = (sources, *forward)
    back = (backward[0], targets, *backward[1:])
    if candidates == "forward":
        chosen: tuple[Tensor, ...] = there
    elif candidates == "backward":
        chosen = back
    elif candidates == "intersection":
        mutual = backward[0][forward[0]] == sources
        chosen = tuple(part[mutual] for part in there)
    else:
        new = forward[0][backward[0]] != targets
        chosen = tuple(torch.cat((one, other[new])) for one, other in zip(there, back, strict=True))
    pairs = _in_order(of_source, of_target, *chosen)
    return _without_repetition(pairs) if candidates == "max" else pairs


def margin_score(cosine: Tensor, source_average: Tensor, target_average: Tensor, margin: str) -> Tensor:
    """A pair's score from its cosine and the mean cosine of either side's neighbours."""
    average = (source_average + target_average) / 2
    if margin == "ratio":
        return cosine / average
    return cosine - average if margin == "distance" else cosine


def _best(of: Neighbours, own: Tensor, others: Tensor, margin: str) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row's neighbours the one with the best margin: number, score and cosine; of equal ones the lowest."""
    numbers, order = of.numbers.sort(1)
    cosines = of.cosines.gather(1, order)
    scores = margin_score(cosines, own[:, None], others[numbers], margin)
    best = (scores == scores.amax(1, keepdim=True)).int().argmax(1, keepdim=True)
    return tuple(one.gather(1, best).squeeze(1) for one in (numbers, scores, cosines))  # type: ignore[return-value]


def _in_order(
    of_source: Neighbours, of_target: Neighbours, source: Tensor, target: Tensor, score: Tensor, cosine: Tensor
) -> MinedPairs:
    """Sorted, with ranks."""
    order = torch.as_tensor(np.lexsort((target.numpy(), source.numpy(), -score.numpy())))
    source, target = source[order], target[order]
    ranks = _rank(of_source.numbers[source], target), _rank(of_target.numbers[target], source)
    return MinedPairs(*(one.numpy() for one in (source, target, score[order], cosine[order], *ranks)))


def _rank(numbers: Tensor, wanted: Tensor) -> Tensor:
    """The place of each wanted number in its row, from 1."""
    found = numbers == wanted[:, None]
    return torch.where(found.any(1), found.int().argmax(1), numbers.shape[1]) + 1


def _without_repetition(pairs: MinedPairs) -> MinedPairs:
    """Take pairs from the top, and none whose sentence is taken."""
    taken = [bytearray(int(side.max(initial=-1)) + 1) for side in (pairs.source, pairs.target)]
    kept = np.zeros(len(pairs), dtype=np.bool_)
    for number, (source, target) in enumerate(pairs.rows("source", "target")):
        if not (taken[0][source] or taken[1][target]):
            taken[0][source] = taken[1][target] = kept[number] = True
    return pairs.take(kept)
