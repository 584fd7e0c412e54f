"""Encode each text once for all tasks, views and dimensions, and look up its embedding."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from hf_xsent.files import check_free_space
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.sentence_encoder import View
from hf_xsent.models.text_encoder import check_finite


class SentenceVectors:
    """Embeddings by view, in memory-mapped temporary files, because a sweep over layers can exceed memory.

    A text has a role: with ``query`` and ``document`` it gets the model's prompts of these names, without one the
    model's default prompt.
    """

    def __init__(self, embedder: SentenceEmbedder, views: Sequence[View], inputs: Iterable[tuple[str, str]]) -> None:
        self.embedder: SentenceEmbedder | None = copy(embedder)
        self.embedder.cut = set()
        self._prompts = embedder.role_prompts
        self._views = list(dict.fromkeys(views))
        self._rows: dict[str, int] = {}  # of the texts encoded so far, with their prompts
        shape = (max(1, len({*self._prompted(inputs)})), embedder.width)  # of all texts
        needed = len(self._views) * shape[0] * shape[1] * 4
        cure = "choose fewer layers at once, or set TMPDIR to a larger disk"
        check_free_space(tempfile.gettempdir(), needed, "the vectors", cure)
        self._vectors = {}
        for view in self._views:
            with tempfile.TemporaryFile() as file:
                self._vectors[view] = np.memmap(file, np.float32, "w+", shape=shape)

    def add(self, inputs: Iterable[tuple[str, str]]) -> None:
        """Encode the texts that are not encoded yet."""
        new = [text for text in dict.fromkeys(self._prompted(inputs)) if text not in self._rows]
        if not new or self.embedder is None:
            return
        start = len(self._rows)
        into = [self._vectors[view][start : start + len(new)] for view in self._views]
        encoder = copy(self.embedder)
        encoder.prompt = ""  # the texts have theirs
        encoder.encode_views(new, self._views, show_progress=True, into=into)
        precision = str(self.embedder.model.dtype).removeprefix("torch.")
        for vectors in into:
            check_finite(vectors, precision, lambda row: f"the sentence {new[row][:40]!r}")
        self._rows |= {text: start + place for place, text in enumerate(new)}

    def release_model(self, inputs: Iterable[tuple[str, str]]) -> None:
        """Free the memory of the model if only texts that are encoded already will be looked up: these."""
        if all(text in self._rows for text in self._prompted(inputs)):
            self.embedder = None

    def of(self, view: View, dim: int) -> VectorLookup:
        """Return an encoder that looks up embeddings in this view, truncated to ``dim`` dimensions."""
        return VectorLookup(self, view, dim)

    def rows(self, view: View, dim: int, role: str, texts: Sequence[str]) -> np.ndarray:
        """Return the embeddings of texts of one role."""
        inputs = [(role, text) for text in texts]
        self.add(inputs)
        return np.asarray(self._vectors[view][[self._rows[text] for text in self._prompted(inputs)], :dim])

    def _prompted(self, inputs: Iterable[tuple[str, str]]) -> Iterable[str]:
        return (self._prompts[role] + text for role, text in inputs)


@dataclass(frozen=True)
class VectorLookup:
    """An encoder of the texts that ``SentenceVectors`` has."""

    vectors: SentenceVectors
    view: View
    dim: int

    @property
    def embedder(self) -> SentenceEmbedder | None:
        """The model, unless it is released."""
        return self.vectors.embedder

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Look up texts with the default prompt."""
        return self.as_role("", texts)

    def as_role(self, role: str, texts: Sequence[str]) -> np.ndarray:
        """Look up texts of one role."""
        return self.vectors.rows(self.view, self.dim, role, texts)
