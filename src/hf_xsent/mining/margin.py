"""Mine bitext by margins (Artetxe and Schwenk, 2019): a cosine relative to those of the nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_xsent.errors import DataError, did_you_mean
from hf_xsent.mining.neighbours import Vectors, nearest_both_ways
from hf_xsent.mining.top_k import Neighbours

MARGINS = ("ratio", "distance", "absolute")
CANDIDATES = ("max", "forward", "backward", "intersection")
_PAIRS_PER_BLOCK = 1 << 14


@dataclass(frozen=True)
class MinedPairs:
    """Pairs of rows (source, target), counted from 0, best first."""

    source: np.ndarray
    target: np.ndarray
    score: np.ndarray  # descending
    cosine: np.ndarray
    target_rank: np.ndarray  # of the target among the source's k neighbours, from 1; k + 1 if it is not one of them
    source_rank: np.ndarray  # of the source among the target's neighbours

    def __len__(self) -> int:
        return len(self.score)

    def above(self, threshold: float) -> MinedPairs:
        """Return the pairs that score at least ``threshold``, exactly or rounded to six decimals, as in files."""
        score = np.maximum(self.score, np.round(self.score.astype(np.float64), 6))
        return self.first(int(np.searchsorted(-score, -threshold, side="right")))

    def first(self, count: int) -> MinedPairs:
        """Return the best ``count`` pairs."""
        return self.take(slice(count))

    def rows(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Iterate over these fields of each pair, converted to Python numbers one block at a time."""
        for start in range(0, len(self), _PAIRS_PER_BLOCK):
            block = slice(start, start + _PAIRS_PER_BLOCK)
            yield from zip(*(getattr(self, name)[block].tolist() for name in names), strict=True)

    def take(self, rows: slice | np.ndarray) -> MinedPairs:
        """Select pairs by row."""
        return MinedPairs(*(getattr(self, field.name)[rows] for field in fields(self)))


def mine_bitext(
    source_embeddings: Vectors,
    target_embeddings: Vectors,
    k: int = 4,
    margin: str = "ratio",
    candidates: str = "max",
    **options: Any,
) -> MinedPairs:
    """Find translations among two sets of embeddings.

    margin: how a pair (x, y) is scored. Let a(x) be the mean cosine of x with its ``k`` nearest neighbours on the other
        side. The score is cos / ((a(x) + a(y)) / 2) for ``ratio`` (cos if a part is not positive), cos - (a(x) +
        a(y)) / 2 for ``distance``, and cos for ``absolute``.
    candidates: ``forward`` takes each source with its best target, ``backward`` each target with its best source,
        ``intersection`` the pairs that are in both lists. ``max`` takes the pairs of both lists by descending score,
        and skips pairs with a sentence that is already used.
    options: further arguments of the exact search, `nearest_both_ways`.

    Equal scores go to the lower source row, then to the lower target row. Duplicate embeddings are not merged, and
    rounding may give them different scores.
    """
    for name, value, choices in (("margin", margin, MARGINS), ("candidates", candidates, CANDIDATES)):
        if value not in choices:
            raise DataError(f"unknown {name} {value!r}: use one of {', '.join(choices)}{did_you_mean(value, choices)}")
    nearest = nearest_both_ways(source_embeddings, target_embeddings, k, **options)
    return pairs_of_neighbours(*nearest, margin, candidates)


def best_by_margin(source: Vectors, target: Vectors, k: int = 4, margin: str = "ratio") -> np.ndarray:
    """Return for each source the target with the best margin among its ``k`` nearest, as in LASER's xsim.

    >>> best_by_margin(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.1, 1.0], [1.0, 0.1]])).tolist()
    [1, 0]
    """
    return best_of_neighbours(*nearest_both_ways(source, target, k, allow_fewer=True), margin)


def best_of_neighbours(of_source: Neighbours, of_target: Neighbours, margin: str = "ratio") -> np.ndarray:
    """Return for each source the target with the best margin among its neighbours."""
    return _best(of_source, of_source.cosines.mean(1), of_target.cosines.mean(1), margin)[0].numpy()


def pairs_of_neighbours(of_source: Neighbours, of_target: Neighbours, margin: str, candidates: str) -> MinedPairs:
    """Score the neighbours of both sides and select pairs."""
    averages = of_source.cosines.mean(1), of_target.cosines.mean(1)
    forward = _best(of_source, averages[0], averages[1], margin)
    backward = _best(of_target, averages[1], averages[0], margin)
    sources, targets = torch.arange(len(forward[0])), torch.arange(len(backward[0]))
    forward_pairs = (sources, *forward)
    backward_pairs = (backward[0], targets, *backward[1:])
    if candidates == "forward":
        selected: tuple[Tensor, ...] = forward_pairs
    elif candidates == "backward":
        selected = backward_pairs
    elif candidates == "intersection":
        mutual = backward[0][forward[0]] == sources
        selected = tuple(part[mutual] for part in forward_pairs)
    else:
        new = forward[0][backward[0]] != targets
        selected = tuple(torch.cat((a, b[new])) for a, b in zip(forward_pairs, backward_pairs, strict=True))
    pairs = _sort(of_source, of_target, *selected)
    return _without_repetition(pairs) if candidates == "max" else pairs


def margin_score(cosine: Tensor, source_average: Tensor, target_average: Tensor, margin: str = "ratio") -> Tensor:
    """Return the score of pairs from their cosines and the mean cosines of both sides with their neighbours.

    A ratio orders pairs only if both its parts are positive; the score of other pairs is their cosine.
    """
    average = (source_average + target_average) / 2
    if margin == "ratio":
        return torch.where((cosine > 0) & (average > 0), cosine / average, cosine)
    return cosine - average if margin == "distance" else cosine


def _best(of: Neighbours, averages: Tensor, other_averages: Tensor, margin: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return index, score and cosine of each row's neighbour with the best margin; ties go to the lowest index."""
    indices, order = of.indices.sort(1)
    cosines = of.cosines.gather(1, order)
    scores = margin_score(cosines, averages[:, None], other_averages[indices], margin)
    best = (scores == scores.amax(1, keepdim=True)).int().argmax(1, keepdim=True)
    return tuple(values.gather(1, best).squeeze(1) for values in (indices, scores, cosines))  # type: ignore[return-value]


def _sort(
    of_source: Neighbours, of_target: Neighbours, source: Tensor, target: Tensor, score: Tensor, cosine: Tensor
) -> MinedPairs:
    """Sort pairs by score, and add the rank of each sentence among the neighbours of the other."""
    order = torch.as_tensor(np.lexsort((target.numpy(), source.numpy(), -score.numpy())))
    source, target = source[order], target[order]
    ranks = _rank(of_source.indices[source], target), _rank(of_target.indices[target], source)
    return MinedPairs(*(column.numpy() for column in (source, target, score[order], cosine[order], *ranks)))


def _rank(indices: Tensor, wanted: Tensor) -> Tensor:
    """Return the position of each wanted index in its row, from 1; k + 1 if it is not there."""
    equal = indices == wanted[:, None]
    return torch.where(equal.any(1), equal.int().argmax(1), indices.shape[1]) + 1


def _without_repetition(pairs: MinedPairs) -> MinedPairs:
    """Select pairs greedily from the top, each sentence at most once."""
    used = [bytearray(int(side.max(initial=-1)) + 1) for side in (pairs.source, pairs.target)]
    selected = np.zeros(len(pairs), dtype=np.bool_)
    for number, (source, target) in enumerate(pairs.rows("source", "target")):
        if not (used[0][source] or used[1][target]):
            used[0][source] = used[1][target] = selected[number] = True
    return pairs.take(selected)
