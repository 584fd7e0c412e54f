"""Find the best monotone alignment of two documents by dynamic programming over beads within a band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hf_xsent.documents.anchors import Anchors, band, mutual_neighbours
from hf_xsent.documents.beads import SIZES, Scale, Weights, bead_features, skip_scores
from hf_xsent.documents.spans import LONGEST_SPAN, EncodedDocument, Span

_ROWS_AT_ONCE = 64
_CELLS_AT_ONCE = 1 << 16
_MIN_SIMILARITY = 0.7  # of a confident pair; 1 is a typical translation
_IMPOSSIBLE = np.float64(-1e12)
# A cell has one byte. Low six bits: the best last step (0 skips a target sentence, 1 a source sentence, k + 2 is a bead
# of SIZES[k]). The flag 64 (128): the best path that ends here by skipping a target (source) sentence
# also skips the one before.
_SKIP_TARGET, _SKIP_SOURCE, _STEP_MASK = 0, 1, 63
_FOLLOWS = {_SKIP_TARGET: 64, _SKIP_SOURCE: 128}

Bead = tuple[range, range]


def search(source: EncodedDocument, target: EncodedDocument, anchors: Anchors, weights: Weights) -> list[Bead]:
    """Return the beads of the best alignment.

    Memory is one byte per cell of the band plus one block of scores; time is linear in the cells.
    """
    low, high = band(anchors, len(source), len(target))
    source_first, source_next = skip_scores(source, weights, anchors.scale.length_ratio)
    target_first, target_next = skip_scores(target, weights)
    target_total = np.concatenate(([0.0], np.cumsum(target_next)))
    choices: list[np.ndarray] = []
    recent: list[np.ndarray] = []  # scores of the last rows, each over its band
    skipped = np.array([])  # previous row: scores of the paths whose last step skips a source sentence
    for row, scores in _rows(source, target, anchors, weights.of_beads(), low, high):
        left, right = int(low[row]), int(high[row]) + 1
        best, following = np.full((2, right - left), _IMPOSSIBLE)
        if row:
            _overlay(best, left, recent[-1] + source_first[row - 1], int(low[row - 1]))
            _overlay(following, left, skipped + source_next[row - 1], int(low[row - 1]))
        choice = np.where(following > best, _FOLLOWS[_SKIP_SOURCE], 0).astype(np.uint8)
        skipped = np.maximum(best, following)
        best = skipped.copy()
        if row == 0:
            best[0] = 0  # the start, which no skipped sentence precedes
        step = np.full(right - left, _SKIP_SOURCE, np.uint8)
        for number, (a, b) in enumerate(SIZES):
            if a > row:
                break
            before = np.full(right - left, _IMPOSSIBLE)
            _overlay(before, left, recent[-a], int(low[row - a]) + b)
            before += scores[number]
            better = before > best
            best[better] = before[better]
            step[better] = number + 2
        total = target_total[left:right]
        first = best[:-1] - total[:-1] + (target_first - target_next)[left : right - 1]
        runs = np.maximum.accumulate(first)
        choice[2:][runs[:-1] > first[1:]] |= _FOLLOWS[_SKIP_TARGET]
        better = np.concatenate(([False], runs + total[1:] > best[1:]))
        best[1:] = np.maximum(best[1:], runs + total[1:])
        step[better] = _SKIP_TARGET
        choices.append(choice | step)
        recent = [*recent[1 - LONGEST_SPAN :], best]
    return _trace(choices, low, len(source), len(target))


def doubtful_spans(
    source: EncodedDocument, target: EncodedDocument, anchors: Anchors, beads: Sequence[Bead]
) -> tuple[list[Span], ...]:
    """List the spans of both sides to encode as one text: those near a bead that is not a confident 1–1 pair."""
    scale = anchors.scale

    def is_confident(sources: range, targets: range) -> bool:
        if len(sources) != 1 or len(targets) != 1:
            return False
        vector, translation = source.unit_vectors(np.array(sources))[0], target.unit_vectors(np.array(targets))[0]
        chance = (vector @ scale.target_mean + translation @ scale.source_mean) / 2
        return bool(vector @ translation - chance >= _MIN_SIMILARITY * scale.typical)

    confident = np.array([is_confident(*bead) for bead in beads])
    settled = confident.copy()
    settled[1:] &= confident[:-1]  # the beads before and after must be confident, too
    settled[:-1] &= confident[1:]
    doubtful: tuple[list[Span], list[Span]] = ([], [])
    for spans, length, ranges in zip(doubtful, (len(source), len(target)), zip(*beads, strict=True), strict=True):
        inside = np.zeros(length + 1, np.int64)
        for numbers, is_settled in zip(ranges, settled, strict=True):
            inside[numbers.start + 1 : numbers.stop + 1] = not is_settled
        total = np.cumsum(inside)
        for size in range(2, LONGEST_SPAN + 1):
            ends = np.arange(size, length + 1)
            spans += [(size, end) for end in ends[total[ends] - total[ends - size] == size].tolist()]
    return doubtful


def pair_moved(source: EncodedDocument, target: EncodedDocument, scale: Scale, beads: Sequence[Bead]) -> list[Bead]:
    """Pair skipped sentences with translations elsewhere in the document: captions, notes and other moved text.

    They are the confident mutual nearest neighbours among the skipped sentences, as 1–1 beads in source order.
    """
    rows = np.array([sources.start for sources, targets in beads if not targets], np.int64)
    columns = np.array([targets.start for sources, targets in beads if not sources], np.int64)
    if not len(rows) or not len(columns):
        return list(beads)
    near_rows, near_columns, similarity = mutual_neighbours(source.select(rows), target.select(columns), scale)
    confident = similarity >= _MIN_SIMILARITY
    moved = dict(zip(rows[near_rows[confident]].tolist(), columns[near_columns[confident]].tolist(), strict=True))
    paired = set(moved.values())
    return [
        (sources, range(moved[sources.start], moved[sources.start] + 1))
        if not targets and sources.start in moved
        else (sources, targets)
        for sources, targets in beads
        if sources or targets.start not in paired
    ]


def _overlay(line: np.ndarray, start: int, earlier: np.ndarray, earlier_start: int) -> None:
    """Copy ``earlier`` into ``line`` where their columns overlap; the starts are their first columns."""
    first, last = max(start, earlier_start), min(start + len(line), earlier_start + len(earlier))
    if first < last:
        line[first - start : last - start] = earlier[first - earlier_start : last - earlier_start]


def _rows(
    source: EncodedDocument,
    target: EncodedDocument,
    anchors: Anchors,
    weights: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each row of the band with the scores, sizes × columns, of all beads that end there."""
    row = 0
    while row <= len(source):
        stop = row + 1
        while stop <= len(source) and stop - row < _ROWS_AT_ONCE:
            if (stop + 1 - row) * (high[stop] + 1 - low[row]) > _CELLS_AT_ONCE:
                break
            stop += 1
        left = int(low[row])
        features = bead_features(source, target, anchors.scale, (row, stop), (left, int(high[stop - 1]) + 1))
        scores = np.stack([np.tensordot(weights, features[size], 1) for size in SIZES])
        for number in range(row, stop):
            yield number, scores[:, number - row, low[number] - left : high[number] + 1 - left]
        row = stop


def _trace(choices: list[np.ndarray], low: np.ndarray, row: int, column: int) -> list[Bead]:
    beads = []
    follows = None
    while row or column:
        choice = int(choices[row][column - low[row]])
        step = choice & _STEP_MASK if follows is None else follows
        follows = step if choice & _FOLLOWS.get(step, 0) else None
        a, b = SIZES[step - 2] if step > _SKIP_SOURCE else (step, 1 - step)
        beads.append((range(row - a, row), range(column - b, column)))
        row, column = row - a, column - b
    return beads[::-1]
