"""Batches in which no sentence comes twice: rows that repeat one give way to others of their language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from hf_xsent.data.sampling.mixing import ROWS_AT_ONCE, RowStream, TemperatureSampler

Identities = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.uint64]]

_MOST_TRIES = 20  # then the repeat stays: a language of one sentence has no other


class DistinctSampler(TemperatureSampler):
    """The rows of a TemperatureSampler, without repeats of a source or a target among each ``batch`` of them.

    ``identities`` gives two hashes a row, of its source and its target. Other rows are drawn by seed and epoch alone,
    so all processes and a resumed run see the same ones, in constant memory.
    """

    def __init__(
        self,
        ranges: Mapping[str, range],
        identities: Identities,
        batch: int,
        alpha: float = 1.0,
        seed: int = 0,
        group: int = 1,
    ) -> None:
        super().__init__(ranges, alpha, seed, group=group)
        self.identities = identities
        self.batch = batch
        self.rows_at_once = max(1, ROWS_AT_ONCE // batch) * batch
        self._starts = np.asarray([rows.start for rows in self.ranges.values()])

    def _chunks(self) -> Iterator[npt.NDArray[np.int64]]:
        others = [
            RowStream(rows, (self.seed, number, self.epoch, 1), 0) for number, rows in enumerate(self.ranges.values())
        ]
        for rows in super()._chunks():
            hashes = self.identities(rows).tolist()
            for start in range(0, len(rows), self.batch):
                sources, targets = set[int](), set[int]()
                for place in range(start, min(start + self.batch, len(rows))):
                    source, target = hashes[place]
                    language = int(np.searchsorted(self._starts, rows[place], side="right")) - 1
                    for _ in range(_MOST_TRIES):
                        if source not in sources and target not in targets:
                            break
                        other = others[language].take(1)
                        rows[place] = other[0]
                        source, target = self.identities(other)[0].tolist()
                    sources.add(source)
                    targets.add(target)
            yield rows
