"""Sample batches without repeated sentences: replace repeats by other rows of the same language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hf_xsent.data.sampling.mixing import RowStream, TemperatureSampler

SideHashes = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.uint64]]

_MAX_TRIES = 20  # then the repeat is accepted: a language may have a single sentence


class DistinctSampler(TemperatureSampler):
    """Yield the rows of a `TemperatureSampler`, with no source or target twice in each ``batch`` of rows.

    ``side_hashes`` returns the hashes of source and target of each row. Replacements depend on seed, epoch and position
    only, so all processes and a resumed run draw the same ones, in constant memory.
    """

    def __init__(
        self,
        ranges: Mapping[str, range],
        side_hashes: SideHashes,
        batch: int,
        alpha: float = 1.0,
        seed: int = 0,
        group: int = 1,
    ) -> None:
        super().__init__(ranges, alpha, seed, group=group, batch=batch)
        self.side_hashes = side_hashes
        self._starts = np.asarray([rows.start for rows in self.ranges.values()])

    def _chunks(self, start: int) -> Iterator[npt.NDArray[np.int64]]:
        streams = [
            RowStream(rows, (self.seed, number, self.epoch, 1), 0) for number, rows in enumerate(self.ranges.values())
        ]
        for rows in super()._chunks(start):
            for first in range(0, len(rows), self.batch):
                for stream in streams:
                    stream.position = start + first
                self._replace_repeats(rows[first : first + self.batch], streams)
            yield rows
            start += len(rows)

    def _replace_repeats(self, rows: npt.NDArray[np.int64], streams: Sequence[RowStream]) -> None:
        """Replace rows of a batch, in place, whose source or target an earlier row has."""
        sources, targets = set[int](), set[int]()
        for position, (source, target) in enumerate(self.side_hashes(rows).tolist()):
            language = int(np.searchsorted(self._starts, rows[position], side="right")) - 1
            for _ in range(_MAX_TRIES):
                if source not in sources and target not in targets:
                    break
                replacement = streams[language].take(1)
                rows[position] = replacement[0]
                source, target = self.side_hashes(replacement)[0].tolist()
            sources.add(source)
            targets.add(target)
