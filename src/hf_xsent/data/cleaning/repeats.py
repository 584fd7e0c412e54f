"""Find repeated texts in constant memory: hashes are written to bucket files, which are read one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_xsent.files import reserve_space

BUCKETS = 64


def normalise(text: str) -> str:
    """Fold case and collapse whitespace."""
    return " ".join(text.casefold().split())


def hash_texts(*texts: str) -> int:
    """Hash normalised texts to 64 bits, equal in every run."""
    import xxhash

    return int(xxhash.xxh3_64_intdigest("\0".join(map(normalise, texts)).encode("utf-8", "surrogatepass")))


class RepeatFinder:
    """Find rows whose hash occurred before; 36 million rows take 576 MB of disk in ``folder`` and 20 MB of memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = 0
        self._files = ExitStack()
        self._paths = [folder / f"bucket-{number:02d}" for number in range(BUCKETS)]
        self._buckets: list[Any] = [self._files.enter_context(path.open("wb")) for path in self._paths]

    def add(self, hashes: Sequence[int]) -> None:
        """Append the hashes of the next rows."""
        records = np.empty((len(hashes), 2), dtype=np.uint64)
        records[:, 0] = hashes
        records[:, 1] = np.arange(self.rows, self.rows + len(hashes))
        self.rows += len(hashes)
        buckets = (records[:, 0] >> np.uint64(58)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        bounds = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for bucket, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
            self._buckets[bucket].write(records[order[start:stop]].tobytes())

    def first_rows(self) -> npt.NDArray[np.bool_]:
        """Return a mask, memory-mapped, of the rows added so far whose hash occurs for the first time."""
        if not self.rows:
            return np.empty(0, dtype=np.bool_)
        first = np.memmap(self.folder / "first-rows", dtype=np.bool_, mode="w+", shape=(self.rows,))
        reserve_space(self.folder / "first-rows")
        first[:] = True
        for file, path in zip(self._buckets, self._paths, strict=True):
            file.flush()
            records = np.fromfile(path, dtype=np.uint64).reshape(-1, 2)
            order = np.argsort(records[:, 0], kind="stable")  # equal hashes keep their row order
            hashes, rows = records[order, 0], records[order, 1]
            first[rows[1:][hashes[1:] == hashes[:-1]]] = False
        return first

    def close(self) -> None:
        """Close the bucket files and delete them."""
        self._files.close()
        for path in [*self._paths, self.folder / "first-rows"]:
            path.unlink(missing_ok=True)
