"""Compare texts by hashes that ignore case and whitespace, and find repetitions in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

ROWS_AT_ONCE = 1 << 21


def normalise(text: str) -> str:
    """Fold case and collapse whitespace."""
    return " ".join(text.casefold().split())


def hash_texts(*texts: str) -> int:
    """Hash normalised texts to 64 bits, equal in every run."""
    import xxhash

    return int(xxhash.xxh3_64_intdigest("\0".join(map(normalise, texts)).encode("utf-8", "surrogatepass")))


def shuffle_key(numbers: Rows | Hashes) -> Hashes:
    """Return keys that sort these numbers in pseudo-random order, the same in every run (SplitMix64)."""
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def rows_by_hash(size: int, hashes_of: Callable[[Rows], Hashes]) -> Iterator[tuple[Rows, Hashes]]:
    """Yield ``range(size)`` with hashes in parts of about ``ROWS_AT_ONCE`` rows; rows of equal hashes are in one part.

    The hashes are read once for each part.
    """
    parts = -(-size // ROWS_AT_ONCE)
    for part in range(parts):
        blocks = []
        for start in range(0, size, ROWS_AT_ONCE):
            rows = np.arange(start, min(start + ROWS_AT_ONCE, size))
            hashes = hashes_of(rows)
            in_part = hashes % np.uint64(parts) == part
            blocks.append((rows[in_part], hashes[in_part]))
        rows, hashes = (np.concatenate(arrays) for arrays in zip(*blocks, strict=True))
        yield rows, hashes


def first_occurrences(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose hash occurs for the first time.

    >>> first_occurrences(np.array([5, 7, 5, 5, 9], np.uint64)).tolist()
    [True, True, False, False, True]
    """
    first = np.zeros(len(hashes), dtype=np.bool_)
    for rows, of_rows in rows_by_hash(len(hashes), hashes.__getitem__):
        first[rows[np.unique(of_rows, return_index=True)[1]]] = True
    return first
