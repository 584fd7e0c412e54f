"""The vectors of all sentences of a run: each distinct sentence encoded once, for all tasks, layers and poolings."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from hf_xsent.errors import OutputError
from hf_xsent.evaluation.task import Encode

if TYPE_CHECKING:
    from typing_extensions import Self

    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.models.sentence_encoder import View


class SentenceVectors:
    """Vectors by view, in files that are mapped into memory and vanish at the end: a sweep may hold many."""

    def __init__(self, embedder: SentenceEmbedder, views: Sequence[View], sentences: Iterable[str]) -> None:
        self._embedder = embedder
        self._views = list(views)
        self._rows: dict[str, int] = {}  # of those encoded so far
        self._count = max(1, len(set(sentences)))  # of all that will be asked for
        self._folder = Path(tempfile.mkdtemp(prefix="hf-xsent-vectors-"))
        shape = (self._count, embedder.width)
        needed, free = len(self._views) * shape[0] * shape[1] * 4, shutil.disk_usage(self._folder).free
        if needed > free:
            self._folder.rmdir()
            raise OutputError(
                f"the vectors take {needed >> 20:,} MiB but {self._folder.parent} has {free >> 20:,} MiB free: "
                "choose fewer layers at once, or set TMPDIR to a larger disk"
            )
        self._vectors = {
            view: np.memmap(self._folder / f"{view.layer}-{view.pooling}", np.float32, "w+", shape=shape)
            for view in self._views
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._vectors.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, sentences: Iterable[str]) -> None:
        """Encode those that were not yet."""
        new = [one for one in dict.fromkeys(sentences) if one not in self._rows]
        if not new:
            return
        start = len(self._rows)
        into = [self._vectors[view][start : start + len(new)] for view in self._views]
        self._embedder.encode_views(new, self._views, show_progress=True, into=into)
        self._rows |= {one: start + place for place, one in enumerate(new)}

    def of(self, view: View, dim: int) -> Encode:
        """Gives the first ``dim`` numbers of each sentence's vector in this view."""

        def encode(sentences: Sequence[str]) -> np.ndarray:
            return np.asarray(self._vectors[view][[self._rows[one] for one in sentences], :dim])

        return encode
