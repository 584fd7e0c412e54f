"""Find mutual nearest neighbours, which calibrate scores; the confident ones (anchors) bound the search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hf_xsent.documents.beads import Scale
from hf_xsent.documents.spans import EncodedDocument

_SAMPLE = 4096
_ROWS_AT_ONCE = 512
_MIN_GAIN = 0.5  # times the median of cosine - chance over mutual nearest neighbours
_ANCHORS_IN_BAND = 3  # before and after each sentence
_BAND_MARGIN = 12  # ignore anchors within N source sentences of a position; extend the band N sentences beyond anchors
_MAX_BAND = 2048


@dataclass(frozen=True)
class Anchors:
    """Confident mutual nearest neighbours; ``in_order`` selects those in the same order in both documents."""

    source: np.ndarray
    target: np.ndarray
    score: np.ndarray  # (cosine - chance) / (1 - chance): 0 for a random pair, 1 for equal embeddings
    in_order: np.ndarray  # indices of the longest increasing subsequence
    scale: Scale


def find_anchors(source: EncodedDocument, target: EncodedDocument) -> Anchors:
    """Find mutual nearest neighbours of a sample of the source sentences, in linear time."""
    rows = np.unique(np.linspace(0, len(source) - 1, min(_SAMPLE, len(source))).astype(np.int64))
    means = _mean_of_unit_vectors(source), _mean_of_unit_vectors(target)
    chance = _chance(source, means[1]), _chance(target, means[0])
    rows, best, gains = _mutual_neighbours(source, target, rows, chance)
    random = (chance[0][rows] + chance[1][best]) / 2
    typical = max(float(np.median(gains)) if len(gains) else 0.0, 1e-3)
    confident = gains >= _MIN_GAIN * typical
    rows, best = rows[confident], best[confident]
    score = gains[confident] / np.maximum(1 - random[confident], 1e-3)
    ratio = float(target.lengths.sum() + len(target)) / float(source.lengths.sum() + len(source))
    return Anchors(rows, best, score, longest_increasing(best), Scale(means[0], means[1], typical, ratio))


def mutual_neighbours(
    source: EncodedDocument, target: EncodedDocument, scale: Scale
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find all mutual nearest neighbours; return source and target indices, and similarities as in `Weights`."""
    chance = _chance(source, scale.target_mean), _chance(target, scale.source_mean)
    rows, best, gains = _mutual_neighbours(source, target, np.arange(len(source)), chance)
    return rows, best, gains / scale.typical


def band(anchors: Anchors, source_length: int, target_length: int) -> tuple[np.ndarray, ...]:
    """Return the first and last target boundary of the band, for each boundary between source sentences.

    Its limits at a boundary are the third anchor before and the third after, not counting anchors within 12 sentences,
    so that one wrong anchor does not exclude the right path. They are also at most _MAX_BAND / 2 below the line through
    the anchors at the boundary before, and above it at the boundary after, so memory is linear.
    """
    path_rows = np.concatenate(([-1], anchors.source[anchors.in_order], [source_length])) + 0.5
    path_columns = np.concatenate(([-1], anchors.target[anchors.in_order], [target_length])) + 0.5
    positions = np.arange(source_length + 1)
    behind = np.searchsorted(path_rows, positions - _BAND_MARGIN)
    ahead = np.searchsorted(path_rows, positions + _BAND_MARGIN, side="right") - 1
    line = np.interp(np.arange(-1, source_length + 2), path_rows, path_columns)
    lowest = path_columns[np.clip(behind - _ANCHORS_IN_BAND, 0, None)] - _BAND_MARGIN
    lowest = np.maximum(lowest, line[:-2] - _MAX_BAND / 2)
    highest = path_columns[np.clip(ahead + _ANCHORS_IN_BAND, None, len(path_columns) - 1)] + _BAND_MARGIN
    highest = np.minimum(highest, line[2:] + _MAX_BAND / 2)
    low = np.clip(np.floor(np.minimum.accumulate(lowest[::-1])[::-1]), 0, target_length).astype(np.int64)
    high = np.clip(np.ceil(np.maximum.accumulate(highest)), 0, target_length).astype(np.int64)
    low[0], high[-1] = 0, target_length
    high[:-1] = np.maximum(high[:-1], low[1:])  # rows overlap, so that a path exists
    return low, high


def longest_increasing(values: np.ndarray) -> np.ndarray:
    """Return the indices of a longest strictly increasing subsequence.

    >>> longest_increasing(np.array([3, 1, 2, 9, 4])).tolist()
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


def _mean_of_unit_vectors(side: EncodedDocument) -> np.ndarray:
    """Return the mean times 1 - 1/N: one of the N may be the translation of the sentence that is compared with it."""
    mean = side.unit_vectors(slice(None)).mean(0, dtype=np.float64)
    return np.asarray(mean * (1 - 1 / len(side)), np.float32)


def _chance(side: EncodedDocument, mean: np.ndarray) -> np.ndarray:
    """Return the product of each sentence's unit vector and ``mean``, that of the other document."""
    return np.asarray(side.unit_vectors(slice(None)) @ mean)


def _mutual_neighbours(
    source: EncodedDocument, target: EncodedDocument, rows: np.ndarray, chance: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the mutual nearest neighbours of ``rows``; return both indices, and cosine minus chance."""
    best, gains = _nearest(source, target, rows, chance)
    distinct = np.unique(best)
    back, _ = _nearest(target, source, distinct, chance[::-1])
    mutual = back[np.searchsorted(distinct, best)] == rows
    return rows[mutual], best[mutual], gains[mutual]


def _nearest(
    side: EncodedDocument, other: EncodedDocument, rows: np.ndarray, chance: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best sentence of the other document for each of ``rows``, and its cosine minus chance."""
    best, gains = np.zeros(len(rows), np.int64), np.full(len(rows), -np.inf, np.float32)
    vectors = side.unit_vectors(rows)
    for start in range(0, len(other), _ROWS_AT_ONCE):
        block = vectors @ other.unit_vectors(slice(start, start + _ROWS_AT_ONCE)).T
        block -= chance[1][start : start + _ROWS_AT_ONCE] / 2
        places = block.argmax(1)
        values = block[np.arange(len(rows)), places]
        better = values > gains
        best[better], gains[better] = places[better] + start, values[better]
    return best, gains - chance[0][rows] / 2
