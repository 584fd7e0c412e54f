"""Encode each distinct sentence of a run once, for all tasks, layers and poolings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hf_xsent.evaluation.task import Encode
from hf_xsent.files import check_free_space
from hf_xsent.models.encodes import check_finite

if TYPE_CHECKING:
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.models.sentence_encoder import View


class SentenceVectors:
    """Embeddings by view, memory-mapped from unnamed temporary files, since a sweep exceeds memory."""

    def __init__(self, embedder: SentenceEmbedder, views: Sequence[View], sentences: Iterable[str]) -> None:
        self._embedder = embedder
        self._views = list(views)
        self._rows: dict[str, int] = {}  # of the sentences encoded so far
        shape = (max(1, len(set(sentences))), embedder.width)  # of all sentences
        needed = len(self._views) * shape[0] * shape[1] * 4
        cure = "choose fewer layers at once, or set TMPDIR to a larger disk"
        check_free_space(tempfile.gettempdir(), needed, "the vectors", cure)
        self._vectors = {}
        for view in self._views:
            with tempfile.TemporaryFile() as file:
                self._vectors[view] = np.memmap(file, np.float32, "w+", shape=shape)

    def add(self, sentences: Iterable[str]) -> None:
        """Encode the sentences that are not encoded yet."""
        new = [one for one in dict.fromkeys(sentences) if one not in self._rows]
        if not new:
            return
        start = len(self._rows)
        into = [self._vectors[view][start : start + len(new)] for view in self._views]
        self._embedder.encode_views(new, self._views, show_progress=True, into=into)
        precision = str(self._embedder.model.dtype).removeprefix("torch.")
        for vectors in into:
            check_finite(vectors, precision, lambda row: f"the sentence {new[row][:40]!r}")
        self._rows |= {one: start + place for place, one in enumerate(new)}

    def of(self, view: View, dim: int) -> Encode:
        """Return an encoder that looks up the first ``dim`` dimensions of embeddings in this view."""

        def encode(sentences: Sequence[str]) -> np.ndarray:
            return np.asarray(self._vectors[view][[self._rows[one] for one in sentences], :dim])

        return encode
