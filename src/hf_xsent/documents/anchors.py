"""Sentences that surely translate each other: they measure the documents and bound the search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_xsent.documents.beads import Scale
from hf_xsent.documents.spans import Side

SAMPLE = 4096
_ROWS_AT_ONCE = 512
_SURE = 0.5  # of the median margin of mutual neighbours
_SIDESTEPS = 3  # anchors to each side that the band covers
_MARGIN = 12  # sentences beyond them
_WIDEST = 2048


@dataclass(frozen=True)
class Anchors:
    """Mutual nearest neighbours, and those of them whose order is the same in both documents."""

    source: np.ndarray
    target: np.ndarray
    score: np.ndarray  # (cosine - chance) / (1 - chance): 0 is a random pair, 1 the same vector
    in_order: np.ndarray  # places of the longest rising chain
    falling: int  # length of the longest falling chain
    scale: Scale


def find_anchors(source: Side, target: Side, sample: int = SAMPLE) -> Anchors:
    """Find mutual nearest neighbours of at most ``sample`` source sentences: time is linear in both documents."""
    rows = np.unique(np.linspace(0, len(source) - 1, min(sample, len(source))).astype(np.int64))
    means = _mean_unit_vector(source), _mean_unit_vector(target)
    chance = _chance(source, means[1]), _chance(target, means[0])
    best, margins = _nearest(source, target, rows, chance)
    found = np.unique(best)
    back, _ = _nearest(target, source, found, chance[::-1])
    mutual = back[np.searchsorted(found, best)] == rows
    rows, best, margins = rows[mutual], best[mutual], margins[mutual]
    random = (chance[0][rows] + chance[1][best]) / 2
    typical = max(float(np.median(margins)) if len(margins) else 0.0, 1e-3)
    sure = margins >= _SURE * typical
    rows, best = rows[sure], best[sure]
    score = margins[sure] / np.maximum(1 - random[sure], 1e-3)
    ratio = float(target.lengths.sum() + len(target)) / float(source.lengths.sum() + len(source))
    return Anchors(
        rows,
        best,
        score,
        longest_rising(best),
        len(longest_rising(-best)),
        Scale(means[0], means[1], typical, ratio),
    )


def band(anchors: Anchors, source_length: int, target_length: int, widest: int = _WIDEST) -> tuple[np.ndarray, ...]:
    """Give the first and last target position to search before each source sentence, and after the last.

    The band reaches from the third anchor before to the third anchor behind: a wrong anchor does not bound it alone.
    Where there are no anchors it follows their line, ``widest`` positions wide at most, so that memory stays linear.
    """
    path_rows = np.concatenate(([-1], anchors.source[anchors.in_order], [source_length])) + 0.5
    path_columns = np.concatenate(([-1], anchors.target[anchors.in_order], [target_length])) + 0.5
    positions = np.arange(source_length + 1)
    behind = np.searchsorted(path_rows, positions - _MARGIN)
    ahead = np.searchsorted(path_rows, positions + _MARGIN, side="right") - 1
    line = np.interp(positions, path_rows, path_columns)
    lowest = np.maximum(path_columns[np.clip(behind - _SIDESTEPS, 0, None)] - _MARGIN, line - widest / 2)
    highest = path_columns[np.clip(ahead + _SIDESTEPS, None, len(path_columns) - 1)] + _MARGIN
    highest = np.minimum(highest, line + widest / 2)
    low = np.clip(np.floor(np.minimum.accumulate(lowest[::-1])[::-1]), 0, target_length).astype(np.int64)
    high = np.clip(np.ceil(np.maximum.accumulate(highest)), 0, target_length).astype(np.int64)
    low[0], high[-1] = 0, target_length
    high[:-1] = np.maximum(high[:-1], low[1:])  # a path leads through: a step down ends within the next row
    return low, high


def longest_rising(values: np.ndarray) -> np.ndarray:
    """Places of a longest strictly rising subsequence.

    >>> longest_rising(np.array([3, 1, 2, 9, 4])).tolist()
    [1, 2, 4]
    """
    tails: list[int] = []
    ends: list[int] = []
    before = np.full(len(values), -1)
    for place, value in enumerate(values.tolist()):
        length = int(np.searchsorted(tails, value))
        before[place] = ends[length - 1] if length else -1
        if length == len(tails):
            tails.append(value)
            ends.append(place)
        else:
            tails[length], ends[length] = value, place
    chain = []
    place = ends[-1] if ends else -1
    while place >= 0:
        chain.append(place)
        place = int(before[place])
    return np.array(chain[::-1], dtype=np.int64)


def _mean_unit_vector(side: Side) -> np.ndarray:
    total = np.zeros(side.vectors.shape[1], np.float64)
    for start in range(0, len(side), _ROWS_AT_ONCE):
        total += side.unit_vectors(slice(start, start + _ROWS_AT_ONCE)).sum(0)
    return np.asarray(total / len(side) * (1 - 1 / len(side)), np.float32)  # one of them may be the translation


def _chance(side: Side, mean: np.ndarray) -> np.ndarray:
    """Mean cosine of each sentence with the sentences of the other document."""
    parts = [
        side.unit_vectors(slice(start, start + _ROWS_AT_ONCE)) @ mean for start in range(0, len(side), _ROWS_AT_ONCE)
    ]
    return np.concatenate(parts)


def _nearest(
    side: Side, other: Side, rows: np.ndarray, chance: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Give the best sentence of the other document for each of ``rows``, and by how much it is above chance."""
    best, margins = np.zeros(len(rows), np.int64), np.full(len(rows), -np.inf, np.float32)
    vectors = side.unit_vectors(rows)
    for start in range(0, len(other), _ROWS_AT_ONCE):
        block = vectors @ other.unit_vectors(slice(start, start + _ROWS_AT_ONCE)).T
        block -= chance[1][start : start + _ROWS_AT_ONCE] / 2
        places = block.argmax(1)
        values = block[np.arange(len(rows)), places]
        better = values > margins
        best[better], margins[better] = places[better] + start, values[better]
    return best, margins - chance[0][rows] / 2
