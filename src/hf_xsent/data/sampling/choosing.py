"""Choose N items of a stream at random, without reading it twice or storing all of it."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

_LARGEST = 2**64 - 1
_FEWEST_BETWEEN = 1000


class RandomChoice:
    """Choose the items with the N lowest distinct hashes.

    An item whose hash cannot be among them is rejected at once. About N (1 + ln(total / N)) items are accepted, which
    the caller stores; at the end, ``chosen`` is a mask over them.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._hashes = array("Q")
        self._highest = _LARGEST  # an upper bound of the N-th lowest hash
        self._next_update = self._step = max(count, _FEWEST_BETWEEN)

    def accept(self, number: int) -> bool:
        """Return whether the item with this 64-bit hash may be chosen; each accepted item is a row of ``chosen``."""
        if number > self._highest:
            return False
        self._hashes.append(number)
        if len(self._hashes) > self._next_update:
            self._next_update += self._step
            self._highest = self._threshold()
        return True

    def chosen(self) -> npt.NDArray[np.bool_]:
        """Return the mask of the chosen items among the accepted ones."""
        return np.frombuffer(self._hashes, dtype=np.uint64) <= np.uint64(self._threshold())

    def _threshold(self) -> int:
        distinct = np.unique(np.frombuffer(self._hashes, dtype=np.uint64))
        return int(distinct[self.count - 1]) if len(distinct) >= self.count else _LARGEST
