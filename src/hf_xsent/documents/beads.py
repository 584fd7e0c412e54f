"""What a bead of an alignment scores: features of source spans beside target spans, and their weights."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from hf_xsent.documents.spans import LONGEST_SPAN, Side

SIZES = [(a, b) for a in range(1, LONGEST_SPAN + 1) for b in range(1, LONGEST_SPAN + 1)]
_REACH = LONGEST_SPAN + 1  # a bead's features look at spans that end so many sentences before it


@dataclass(frozen=True)
class Weights:
    """Log odds of a bead by its features, and of a skipped sentence.

    The similarity of two spans is their cosine less what it is to random sentences, over what translations of these
    documents have: 0 is chance, 1 a typical translation.
    """

    similarity: float = 6.68
    similarity_by_size: float = 2.61  # times the mean number of sentences of both sides
    longer: float = -4.08  # how much more similar the spans are with one sentence more
    shorter: float = 1.2  # how much more similar they are with one sentence less
    length_ratio: float = -3.21  # logarithm of the lengths' ratio, over that of the documents
    bead: float = 0.29
    size: float = -2.47  # times the mean number of sentences of both sides, above 1
    unequal: float = 0.6  # more than one sentence on a side
    both_several: float = 0.9  # on both
    paragraph_inside: float = -1.5  # times the ends of paragraphs within the spans
    paragraph_unequal: float = -1.0  # a paragraph ends with one span and not with the other
    skip: float = 1.55
    skip_length: float = -1.68  # times a quarter of the logarithm of the characters skipped

    @classmethod
    def names(cls) -> list[str]:
        """The names in order; those of skips come last."""
        return [field.name for field in fields(cls)]


@dataclass(frozen=True)
class Scale:
    """What similarities and lengths are measured against, learnt from the two documents."""

    source_mean: np.ndarray  # mean unit vector of the source's sentences
    target_mean: np.ndarray
    typical: float  # margin of a typical translation
    length_ratio: float  # target characters for one source character


def bead_features(
    source: Side, target: Side, scale: Scale, rows: tuple[int, int], columns: tuple[int, int]
) -> dict[tuple[int, int], np.ndarray]:
    """Features × rows × columns of the beads of each size that end before these sentences of both sides.

    Cells whose spans would start before a document hold no meaning.
    """
    (top, bottom), (left, right) = rows, columns
    first_row, first_column = top - _REACH, left - _REACH
    similarity = _similarities(source, target, scale, (first_row, bottom + 1), (first_column, right + 1))
    here = _Window(similarity, _REACH, bottom - top, right - left)
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
        shorter = [here(a - 1, b), here(a - 1, b, -1, 0)] if a > 1 else []
        shorter += [here(a, b - 1), here(a, b - 1, 0, -1)] if b > 1 else []
        ratio = np.log(source_lengths[a][:, None] / target_lengths[b])
        size = (a + b) / 2
        values = (
            own,
            size * own,
            np.maximum.reduce(longer) - own if longer else 0.0,
            np.maximum.reduce(shorter) - own if shorter else 0.0,
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


def skip_features(side: Side, length_ratio: float = 1.0) -> np.ndarray:
    """Features × sentences of leaving a sentence out."""
    return np.stack([np.ones(len(side)), np.log(side.lengths * length_ratio + 1) / 4])


def _similarities(
    source: Side, target: Side, scale: Scale, rows: tuple[int, int], columns: tuple[int, int]
) -> np.ndarray:
    """Similarity of all spans, by both sizes; 0, as that of random spans, where a document has none."""
    spans, others = _padded_spans(source, *rows), _padded_spans(target, *columns)
    shape = (LONGEST_SPAN + 1, LONGEST_SPAN + 1, spans.shape[1], others.shape[1])
    flat = spans.reshape(-1, spans.shape[2]), others.reshape(-1, others.shape[2])
    chance = (flat[0] @ scale.target_mean)[:, None] + flat[1] @ scale.source_mean
    cosines = (flat[0] @ flat[1].T - chance / 2) / scale.typical
    there = np.any(flat[0], axis=1)[:, None] & np.any(flat[1], axis=1)
    cosines *= there
    return cosines.reshape(shape[0], shape[2], shape[1], shape[3]).swapaxes(1, 2)


def _padded_spans(side: Side, start: int, stop: int) -> np.ndarray:
    """As ``spans``, where ``start`` may lie before the document and ``stop`` behind it."""
    inside = max(start, 0), min(stop, len(side) + 1)
    spans = side.spans(*inside)
    return np.pad(spans, ((0, 0), (inside[0] - start, stop - inside[1]), (0, 0)))


@dataclass(frozen=True)
class _Window:
    """Similarities of the spans that end at each cell, or so many sentences away from it."""

    similarity: np.ndarray
    margin: int
    rows: int
    columns: int

    def __call__(self, a: int, b: int, down: int = 0, along: int = 0) -> np.ndarray:
        top, left = self.margin + down, self.margin + along
        return np.asarray(self.similarity[a, b, top : top + self.rows, left : left + self.columns])
