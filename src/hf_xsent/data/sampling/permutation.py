"""Shuffle any number of rows without an index array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ROUNDS = 6


class Permutation:
    """A pseudo-random permutation of ``range(size)`` in constant memory.

    A Feistel network permutes the numbers below the next power of two; results outside the range are permuted again
    (cycle walking).
    """

    def __init__(self, size: int, seed: int | tuple[int, ...]) -> None:
        self.size = size
        bits = max(size - 1, 1).bit_length()
        self._right_bits = np.uint64((bits + 1) // 2)
        self._left_mask = np.uint64((1 << (bits // 2)) - 1)
        self._right_mask = np.uint64((1 << ((bits + 1) // 2)) - 1)
        self._keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers at an array of positions."""
        numbers = self._shuffle(np.asarray(positions).astype(np.uint64))
        outside = np.flatnonzero(numbers >= self.size)
        while outside.size:
            numbers[outside] = self._shuffle(numbers[outside])
            outside = outside[numbers[outside] >= self.size]
        return numbers.astype(np.int64)

    def _shuffle(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        left, right = numbers >> self._right_bits, numbers & self._right_mask
        for number, key in enumerate(self._keys):
            if number % 2:
                left = left ^ (_mix(right ^ key) & self._left_mask)
            else:
                right = right ^ (_mix(left ^ key) & self._right_mask)
        return (left << self._right_bits) | right


def shuffle_key(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return keys that sort these numbers in pseudo-random order."""
    return _mix(numbers + np.uint64(0x9E3779B97F4A7C15))


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash 64-bit numbers with the finaliser of SplitMix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
