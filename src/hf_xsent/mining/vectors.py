"""Store sentence embeddings in files, one for each batch of sentences, each encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.data.sentences import Sentences
from hf_xsent.errors import DataError
from hf_xsent.files import digest, write_arrays
from hf_xsent.models.encoder import Encoder
from hf_xsent.models.text_encoder import check_finite
from hf_xsent.runs.engines import Fill
from hf_xsent.runs.store import Store


class ShardedVectors:
    """Memory-mapped arrays as one array; all but the last have the same number of rows."""

    ndim = 2

    def __init__(self, shards: Sequence[np.ndarray]) -> None:
        self._shards = shards
        self._rows = len(shards[0])
        self.shape = (sum(map(len, shards)), shards[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        if not isinstance(rows, slice):
            shards, places = np.divmod(rows, self._rows)
            vectors = np.empty((len(rows), self.shape[1]), dtype=self._shards[0].dtype)
            for number in np.unique(shards):
                vectors[shards == number] = self._shards[number][places[shards == number]]
            return vectors
        start, stop, _ = rows.indices(len(self))
        parts = []
        while start < stop:
            number, row = divmod(start, self._rows)
            part = self._shards[number][row : row + stop - start]
            parts.append(part)
            start += len(part)
        return np.concatenate(parts) if len(parts) != 1 else parts[0]


class VectorStore:
    """The embeddings of one side, below the folder ``work``, by ``encoder`` or read from ``files`` (`VectorFiles`)."""

    def __init__(
        self, work: Path, sentences: Sentences, encoder: Encoder, dtype: str = "float32", files: Any = None
    ) -> None:
        self.sentences, self.identity = sentences, encoder.identity
        self.job = VectorJob(sentences, dtype, encoder, files)
        self.made_from = {"sentences": sentences.fingerprint, "dtype": dtype, **self.identity}
        self.store = Store(work / "vectors" / digest(self.made_from))
        self.names = [f"{number:05d}.npy" for number in range(sentences.batch_count)]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle what reads the embeddings, not the model that writes them."""
        return self.__dict__ | {"job": None}

    def fill(self, fill: Fill = Store.fill) -> ShardedVectors:
        """Write the embeddings that are not stored yet, and return all."""
        fill(self.store, self.names, self.job, "encoding")
        return self.read()

    def read(self, names: Sequence[str] | None = None) -> ShardedVectors:
        """Return all embeddings, or those of some files."""
        return ShardedVectors([self.store.read(name, _memory_map) for name in names or self.names])


@dataclass(frozen=True)
class VectorJob:
    """Write the embeddings of a batch of sentences: encode them, or read them from ``files``."""

    sentences: Sentences
    dtype: str
    encoder: Encoder
    files: Any

    def __call__(self, name: str, path: Path) -> None:
        """Encode or read, check, write."""
        number = int(Path(name).stem)
        texts, lines = self.sentences.batch(number), self.sentences.line_numbers(number)
        vectors = self.encoder.encode(texts) if self.files is None else self.files.vectors(lines - 1)
        vectors = vectors.astype(self.dtype)
        of_file = "" if self.files is None else f" of {self.files.path}"

        def place(row: int) -> str:
            return f"sentence {lines[row]}{of_file} ({texts[row][:40]!r})"

        check_finite(vectors, self.dtype, place)
        if not (nonzero := vectors.any(1)).all():
            raise DataError(f"{place(int(nonzero.argmin()))} has a zero vector, which has no cosine: remove it")
        write_arrays(path, vectors)


def _memory_map(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r"))
