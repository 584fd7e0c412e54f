"""Compute the embeddings of spans of sentences of one document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

LONGEST_SPAN = 4
Span = tuple[int, int]  # number of sentences, and the index after the last one
_SPECIAL_TOKENS = 4  # added to the characters of a sentence for its weight in the mean of a span


@dataclass(frozen=True)
class EncodedDocument:
    """One document: sentence embeddings as the model returns them, lengths and paragraphs."""

    vectors: np.ndarray  # N × width
    lengths: np.ndarray  # characters, N
    paragraphs: np.ndarray  # paragraph numbers, N, consecutive in a whole document
    encoded: np.ndarray | None = None  # unit vectors of spans encoded as one text
    places: np.ndarray | None = None  # their rows in ``encoded`` by size and end; -1 for other spans

    @classmethod
    def from_sentences(
        cls, sentences: Sequence[str], vectors: np.ndarray, paragraphs: Sequence[int] | None = None
    ) -> EncodedDocument:
        """Build a document from its sentences and their embeddings; a paragraph ends where its number changes."""
        numbers = np.zeros(len(sentences), np.int64)
        if paragraphs is not None:
            numbers[1:] = np.cumsum(np.diff(np.asarray(paragraphs)) != 0)
        return cls(np.asarray(vectors), np.array(list(map(len, sentences)), np.float32), numbers)

    def __len__(self) -> int:
        return len(self.lengths)

    def with_spans(self, spans: Sequence[Span], vectors: np.ndarray) -> EncodedDocument:
        """Return a copy with the embeddings of spans that were encoded as one text."""
        places = np.full((LONGEST_SPAN + 1, len(self) + 1), -1, np.int32)
        for place, (size, end) in enumerate(spans):
            places[size, end] = place
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return replace(self, encoded=unit.astype(np.float32), places=places)

    def select(self, rows: np.ndarray) -> EncodedDocument:
        """Return a document of these sentences only."""
        return EncodedDocument(self.vectors[rows], self.lengths[rows], self.paragraphs[rows])

    def unit_vectors(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return sentence embeddings of length 1."""
        vectors = np.asarray(self.vectors[rows], np.float32)
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))

    def spans(self, start: int, stop: int) -> np.ndarray:
        """Return size × end unit vectors of the spans that end before sentences ``start`` … ``stop - 1``.

        A span without an embedding from `with_spans` has the mean of its sentences' embeddings, weighted by length.
        With mean pooling, this is about the mean over all its tokens, without attention between sentences. Spans that
        would start before the document are zero.
        """
        first = start - LONGEST_SPAN
        rows = np.arange(max(first, 0), stop - 1)
        weighted = np.zeros((stop - first - 1, self.vectors.shape[1]), np.float32)
        weighted[max(-first, 0) :] = self.vectors[rows] * (self.lengths[rows, None] + _SPECIAL_TOKENS)
        spans = np.zeros((LONGEST_SPAN + 1, stop - start, weighted.shape[1]), np.float32)
        for size in range(1, LONGEST_SPAN + 1):
            end = LONGEST_SPAN - size
            spans[size] = spans[size - 1] + weighted[end : end + stop - start]
        spans /= np.maximum(np.linalg.norm(spans, axis=2, keepdims=True), 1e-12)
        for size in range(1, LONGEST_SPAN + 1):
            spans[size, : max(0, size - start)] = 0
        if self.encoded is not None and self.places is not None:
            places = self.places[:, start:stop]
            spans[places >= 0] = self.encoded[places[places >= 0]]
        return spans

    def span_lengths(self, start: int, stop: int) -> np.ndarray:
        """Return the lengths of the same spans in characters, plus one per sentence."""
        first = start - LONGEST_SPAN
        ends = np.concatenate((np.zeros(max(-first, 0) + 1), np.cumsum(self.lengths[max(first, 0) : stop - 1] + 1.0)))
        last = ends[LONGEST_SPAN:]
        return np.stack([last - ends[LONGEST_SPAN - size : len(ends) - size] for size in range(LONGEST_SPAN + 1)])

    def paragraph_ends(self, start: int, stop: int) -> np.ndarray:
        """Return whether a paragraph ends before each of these sentences."""
        rows = np.arange(start, stop)
        inside = (rows > 0) & (rows < len(self))
        before, after = np.clip(rows - 1, 0, len(self) - 1), np.clip(rows, 0, len(self) - 1)
        return np.asarray(~inside | (self.paragraphs[before] != self.paragraphs[after]))

    def crossed_paragraphs(self, start: int, stop: int) -> np.ndarray:
        """Return the number of paragraph ends within the same spans."""
        rows = np.arange(start, stop)
        last = self.paragraphs[np.clip(rows - 1, 0, len(self) - 1)]
        firsts = [self.paragraphs[np.clip(rows - max(1, size), 0, len(self) - 1)] for size in range(LONGEST_SPAN + 1)]
        return np.asarray(last - np.stack(firsts))
