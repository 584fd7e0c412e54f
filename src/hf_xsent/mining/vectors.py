"""Sentence vectors in shards on disk, each written whole or not at all: encoding goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Protocol

import numpy as np
from tqdm import tqdm

from hf_xsent.data.sentences import ROWS_PER_BATCH, Sentences
from hf_xsent.errors import OutputError


class Encodes(Protocol):
    """What mining needs of a model; SentenceEmbedder and SentenceTransformer have it."""

    def encode(self, sentences: list[str]) -> np.ndarray:
        """One vector a sentence."""


class ShardedVectors:
    """The vectors of all sentences as one array that is read from memory-mapped shards, a slice at a time."""

    ndim = 2

    def __init__(self, paths: list[Path]) -> None:
        self._shards = [np.load(path, mmap_mode="r") for path in paths]
        self.shape = (sum(map(len, self._shards)), self._shards[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        parts = []
        while start < stop:
            number, place = divmod(start, ROWS_PER_BATCH)
            part = self._shards[number][place : place + stop - start]
            parts.append(part)
            start += len(part)
        return np.concatenate(parts) if parts else self._shards[0][:0]

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Single vectors, by their numbers."""
        shards, places = np.divmod(numbers, ROWS_PER_BATCH)
        found = np.empty((len(numbers), self.shape[1]), dtype=self._shards[0].dtype)
        for number in np.unique(shards):
            here = shards == number
            found[here] = self._shards[number][places[here]]
        return found


def encode_to_shards(
    model: Encodes,
    sentences: Sentences,
    folder: Path,
    identity: dict[str, str],
    dtype: str = "float32",
    rank: int = 0,
    processes: int = 1,
    show_progress: bool = True,
) -> ShardedVectors:
    """Encode each batch of sentences once into a shard; of several processes each takes every so many.

    ``identity`` says whose vectors these are (model, pooling, …): a folder of other ones is refused. Every process
    returns when all shards are there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stamp = {"sentences": sentences.fingerprint, "dtype": dtype, **identity}
    _claim(folder / "vectors.json", stamp)
    paths = [folder / f"{number:05d}.npy" for number in range(sentences.batch_count)]
    missing = [number for number, path in enumerate(paths) if not path.is_file() and number % processes == rank]
    done = sum(path.is_file() for path in paths) * ROWS_PER_BATCH
    hidden = None if show_progress and rank == 0 else True
    with tqdm(total=len(sentences), initial=min(done, len(sentences)), unit=" sentences", disable=hidden) as bar:
        bar.set_description("encoding")
        for number in missing:
            texts = sentences.batch(number)
            part = paths[number].with_suffix(f".part{rank}")
            with part.open("wb") as file:
                np.save(file, model.encode(texts).astype(dtype))
            part.replace(paths[number])
            bar.update(len(texts))
    while not all(path.is_file() for path in paths):  # other processes are still at work
        time.sleep(0.5)
    return ShardedVectors(paths)


def _claim(path: Path, stamp: dict[str, str]) -> None:
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")) != stamp:
            raise OutputError(
                f"{path.parent} holds vectors of another model or other sentences: give another --work folder"
            )
        return
    part = path.with_suffix(f".{hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:8]}.part")
    part.write_text(json.dumps(stamp, indent=1), encoding="utf-8")
    part.replace(path)
