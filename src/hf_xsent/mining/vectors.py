"""Store sentence embeddings in shards on disk, each encoded once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hf_xsent.data.cache import load_array
from hf_xsent.data.sentences import Sentences
from hf_xsent.files import write_arrays
from hf_xsent.locks import stamp_folder
from hf_xsent.mining.shards import ProcessRunner, Runner
from hf_xsent.models.encode_interface import SupportsEncode, check_finite
from hf_xsent.models.fingerprint import fingerprint_model

if TYPE_CHECKING:
    from hf_xsent.models.embedder import SentenceEmbedder


class ShardedVectors:
    """All embeddings as one array; slices and rows are read from memory-mapped shards."""

    ndim = 2

    def __init__(self, paths: list[Path]) -> None:
        self._shards = [np.load(path, mmap_mode="r") for path in paths]
        self._rows = len(self._shards[0])  # of each shard but the last
        self.shape = (sum(map(len, self._shards)), self._shards[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        if not isinstance(rows, slice):
            shards, places = np.divmod(rows, self._rows)
            found = np.empty((len(rows), self.shape[1]), dtype=self._shards[0].dtype)
            for number in np.unique(shards):
                found[shards == number] = self._shards[number][places[shards == number]]
            return found
        start, stop, _ = rows.indices(len(self))
        parts = []
        while start < stop:
            number, row = divmod(start, self._rows)
            part = self._shards[number][row : row + stop - start]
            parts.append(part)
            start += len(part)
        return np.concatenate(parts) if len(parts) != 1 else parts[0]


@dataclass(frozen=True)
class VectorStore:
    """A folder of the embeddings of one side, one shard per batch of sentences."""

    folder: Path
    sentences: Sentences
    identity: tuple[tuple[str, str], ...]  # of `identify_model`: (model, fingerprint), (pooling, …), …
    dtype: str = "float32"

    @classmethod
    def open(cls, work: Path, sentences: Sentences, identity: dict[str, str], dtype: str = "float32") -> VectorStore:
        """Open the folder of these sentences below ``work``; raise an error if it holds embeddings of another model."""
        store = cls(work / "vectors" / sentences.fingerprint, sentences, tuple(sorted(identity.items())), dtype)
        stamp_folder(store.folder, store.stamp, "results", "give another --work folder")
        return store

    @property
    def stamp(self) -> dict[str, str]:
        """Return everything that determines the embeddings."""
        return {"sentences": self.sentences.fingerprint, "dtype": self.dtype, **dict(self.identity)}

    @cached_property
    def paths(self) -> list[Path]:
        """List the files of the shards."""
        return [self.folder / f"{number:05d}.npy" for number in range(self.sentences.batch_count)]

    @property
    def missing(self) -> int:
        """Count the sentences that are not encoded yet."""
        done = sum(path.is_file() * self.sentences.batch_length(number) for number, path in enumerate(self.paths))
        return len(self.sentences) - done

    def encode(self, model: SupportsEncode, runner: Runner | None = None) -> ShardedVectors:
        """Encode the missing shards with ``runner`` and open all."""
        shards = [EncodeShard(self, number) for number in range(len(self.paths))]
        (runner or ProcessRunner())(shards, "encoding", model)
        return ShardedVectors(self.paths)


@dataclass(frozen=True)
class EncodeShard:
    """The embeddings of one batch of sentences."""

    store: VectorStore
    number: int

    @property
    def path(self) -> Path:
        """Return the file of the shard."""
        return self.store.paths[self.number]

    def is_complete(self) -> bool:
        """Return whether the file exists and has a vector for each sentence."""
        return load_array(self.path, self.store.sentences.batch_length(self.number), self.store.dtype) is not None

    def run(self, model: SupportsEncode | None) -> None:
        """Encode and write the embeddings."""
        assert model is not None
        vectors = model.encode(self.store.sentences.batch(self.number)).astype(self.store.dtype)
        check_finite(vectors, self.store.dtype, self._name_row)
        write_arrays(self.path, vectors)

    def _name_row(self, row: int) -> str:
        text, line = self.store.sentences[self.number * self.store.sentences.rows_per_batch + row]
        return f"line {line} ({text[:40]!r})"


def identify_model(name_or_path: str, embedder: SentenceEmbedder) -> dict[str, str]:
    """Return everything that determines an embedding besides the sentence."""
    identity = {
        "model": fingerprint_model(name_or_path),
        "pooling": embedder.pooling,
        "max_length": str(embedder.max_length),
    }
    if (precision := str(embedder.model.dtype).removeprefix("torch.")) != "float32":
        identity["precision"] = precision
    return identity | ({"prompt": embedder.prompt} if embedder.prompt else {})
