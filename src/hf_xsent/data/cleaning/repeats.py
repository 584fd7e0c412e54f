"""Compare texts by hashes that ignore case and whitespace, and find repetitions in bounded memory."""

from __future__ import annotations

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


def first_occurrences(hashes: Hashes, preferred: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.bool_]:
    """Return a mask of the first row of each hash, of ``preferred`` rows if any, by parts of ``ROWS_AT_ONCE`` rows.

    >>> first_occurrences(np.array([5, 7, 5, 5, 9], np.uint64)).tolist()
    [True, True, False, False, True]
    """
    first = np.zeros(len(hashes), dtype=np.bool_)
    starts = range(0, len(hashes), ROWS_AT_ONCE)
    for part in range(len(starts)):  # equal hashes are in one part
        blocks = (hashes[start : start + ROWS_AT_ONCE] % np.uint64(len(starts)) == part for start in starts)
        rows = np.concatenate([start + np.flatnonzero(block) for start, block in zip(starts, blocks, strict=True)])
        if preferred is not None:
            rows = rows[np.argsort(~preferred[rows], kind="stable")]
        first[rows[np.unique(hashes[rows], return_index=True)[1]]] = True
    return first
