"""Score beads, pairs of a source span and a target span, by weighted features."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from hf_xsent.documents.spans import LONGEST_SPAN, EncodedDocument

SIZES = [(a, b) for a in range(1, LONGEST_SPAN + 1) for b in range(1, LONGEST_SPAN + 1)]


@dataclass(frozen=True)
class Weights:
    """Weights of the features of a bead and of a skipped sentence, as log odds.

    The similarity of two spans is (cosine - chance) / typical. Chance is their mean cosine with the N sentences of the
    other document times 1 - 1/N, typical the median of cosine - chance over mutual nearest neighbours. So random spans
    have 0 and a typical translation has 1.
    """

    similarity: float = 6.68
    similarity_by_size: float = 2.61  # similarity, times the mean number of sentences of both sides
    extension: float = -4.08  # highest similarity with one more sentence at any end, minus similarity
    length_ratio: float = -3.21  # absolute logarithm of the ratio of lengths, relative to that of the documents
    per_bead: float = 0.29  # constant
    size: float = -2.47  # mean number of sentences of both sides, minus 1
    not_one_to_one: float = 0.6  # at least one side has more than one sentence
    both_several: float = 0.9  # both sides have more than one sentence
    paragraph_inside: float = -1.5  # times the number of paragraph ends within the spans
    paragraph_end_mismatch: float = -1.0  # a paragraph ends with one span, but not with the other
    skip: float = -1.0
    skip_next: float = 2.5  # replaces skip, if higher, after a skipped sentence of the same side
    skip_length: float = -1.68  # times a quarter of the logarithm of the skipped characters

    def of_beads(self) -> np.ndarray:
        """Return the weights of `bead_features`, in their order."""
        names = [field.name for field in fields(self) if not field.name.startswith("skip")]
        return np.array([getattr(self, name) for name in names], np.float32)


@dataclass(frozen=True)
class Scale:
    """Statistics of the two documents that normalise similarities and lengths."""

    source_mean: np.ndarray  # mean of the source sentences' unit vectors, times 1 - 1/N
    target_mean: np.ndarray
    typical: float  # median of cosine - chance over mutual nearest neighbours
    length_ratio: float  # target characters per source character


def bead_features(
    source: EncodedDocument, target: EncodedDocument, scale: Scale, rows: tuple[int, int], columns: tuple[int, int]
) -> dict[tuple[int, int], np.ndarray]:
    """Return an array for each bead size: features × rows × columns, the beads that end before a row and a column.

    Cells whose spans would start before the document are meaningless.
    """
    (top, bottom), (left, right) = rows, columns
    similarity = _similarities(source, target, scale, (top, bottom + 1), (left, right + 1))

    def here(a: int, b: int, down: int = 0, along: int = 0) -> np.ndarray:
        """Return the similarities of the spans that end at each cell, or one sentence later."""
        return np.asarray(similarity[a, b, down : down + bottom - top, along : along + right - left])

    source_lengths = source.span_lengths(top, bottom) * scale.length_ratio + 8
    target_lengths = target.span_lengths(left, right) + 8
    crossed = source.crossed_paragraphs(top, bottom), target.crossed_paragraphs(left, right)
    unequal_ends = (source.paragraph_ends(top, bottom)[:, None] != target.paragraph_ends(left, right)).astype(
        np.float32
    )
    features = {}
    for a, b in SIZES:
        own = here(a, b)
        longer = [here(a + 1, b), here(a + 1, b, 1, 0)] if a < LONGEST_SPAN else []
        longer += [here(a, b + 1), here(a, b + 1, 0, 1)] if b < LONGEST_SPAN else []
        ratio = np.log(source_lengths[a][:, None] / target_lengths[b])
        size = (a + b) / 2
        values = (
            own,
            size * own,
            np.maximum.reduce(longer) - own if longer else 0.0,
            np.minimum(np.abs(ratio), 2),
            1.0,
            size - 1,
            float((a, b) != (1, 1)),
            float(a > 1 and b > 1),
            crossed[0][a][:, None] + crossed[1][b],
            unequal_ends,
        )
        features[a, b] = np.stack([np.broadcast_to(value, own.shape).astype(np.float32) for value in values])
    return features


def skip_scores(side: EncodedDocument, weights: Weights, length_ratio: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return two scores of skipping each sentence: as the first of a run, and after a skipped one of the same side."""
    length = weights.skip_length * np.log(side.lengths * length_ratio + 1) / 4
    return weights.skip + length, max(weights.skip, weights.skip_next) + length


def _similarities(
    source: EncodedDocument, target: EncodedDocument, scale: Scale, rows: tuple[int, int], columns: tuple[int, int]
) -> np.ndarray:
    """Return the similarities of all pairs of spans by both sizes; 0 for spans that start before the document."""
    spans, others = _padded_spans(source, *rows), _padded_spans(target, *columns)
    shape = (LONGEST_SPAN + 1, LONGEST_SPAN + 1, spans.shape[1], others.shape[1])
    flat = spans.reshape(-1, spans.shape[2]), others.reshape(-1, others.shape[2])
    chance = (flat[0] @ scale.target_mean)[:, None] + flat[1] @ scale.source_mean
    cosines = (flat[0] @ flat[1].T - chance / 2) / scale.typical
    inside = np.any(flat[0], axis=1)[:, None] & np.any(flat[1], axis=1)
    cosines *= inside
    return cosines.reshape(shape[0], shape[2], shape[1], shape[3]).swapaxes(1, 2)


def _padded_spans(side: EncodedDocument, start: int, stop: int) -> np.ndarray:
    """Return ``side.spans``, with zeros where ``start`` or ``stop`` are outside the document."""
    inside = max(start, 0), min(stop, len(side) + 1)
    spans = side.spans(*inside)
    return np.pad(spans, ((0, 0), (inside[0] - start, stop - inside[1]), (0, 0)))
