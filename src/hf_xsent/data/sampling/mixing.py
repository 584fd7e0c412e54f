"""Mix languages of unequal size by temperature, over any number of pairs in constant memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from hf_xsent.data.sampling.permutation import Permutation
from hf_xsent.errors import DataError

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 1 << 16


def mixing_probabilities(sizes: Sequence[int], alpha: float) -> npt.NDArray[np.float64]:
    """Share of each language, in proportion to ``size ** alpha``: 1 keeps their sizes, 0 makes them equal."""
    if not len(sizes) or min(sizes) < 1:
        raise DataError(f"languages must have at least one pair each to be mixed, not {list(sizes)}")
    if not 0 <= alpha <= 1:
        raise DataError(f"alpha must lie between 0 (equal shares) and 1 (shares by size), not {alpha}")
    weights = np.asarray(sizes, dtype=np.float64) ** alpha
    return np.asarray(weights / weights.sum())


class TemperatureSampler(Sampler[int]):
    """Yields row numbers, each language as often as its share says, over and over through all its pairs.

    An epoch has a fixed number of draws of each language in random order; a language runs through its pairs in a
    random order that is new at every pass, and goes on in the next epoch where this one ended. The rows are a function
    of seed and epoch alone, so a resumed run sees the same ones. Memory does not grow with the pairs. With ``group``,
    so many draws in a row are of one language: batches of one language, on all processes at a time.
    """

    def __init__(
        self,
        ranges: Mapping[str, range],
        alpha: float = 1.0,
        seed: int = 0,
        num_samples: int | None = None,
        group: int = 1,
    ) -> None:
        self.ranges = {language: rows for language, rows in ranges.items()}
        self.seed = seed
        self.epoch = 0
        self.rows_at_once = ROWS_AT_ONCE
        sizes = [len(rows) for rows in self.ranges.values()]
        probabilities = mixing_probabilities(sizes, alpha)
        self.num_samples = sum(sizes) if num_samples is None else num_samples
        if self.num_samples < 1:
            raise DataError(f"num_samples must be at least 1, not {num_samples}")
        if not 1 <= group <= self.num_samples:
            raise DataError(
                f"batches of {group} pairs of one language do not fit into {self.num_samples} pairs an epoch"
            )
        self.group = group
        self.num_samples -= self.num_samples % group
        self.draws = group * _apportion(probabilities, self.num_samples // group)
        logger.info("mixing %d pairs an epoch (alpha=%g)\n%s", self.num_samples, alpha, self._table(probabilities))

    def _table(self, probabilities: npt.NDArray[np.float64]) -> str:
        lines = ["language       pairs  probability  times each is seen an epoch"]
        for (language, rows), share, draws in zip(self.ranges.items(), probabilities, self.draws, strict=True):
            lines.append(f"{language:8} {len(rows):>11,}  {share:>11.4f}  {draws / len(rows):>7.2f}")
        return "\n".join(lines)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration yields; the Trainer calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        for rows in self._chunks():
            yield from rows.tolist()

    def _chunks(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the epoch's rows in arrays."""
        order = Permutation(self.num_samples // self.group, (self.seed, self.epoch))
        bounds = np.cumsum(self.draws // self.group)
        streams = [
            RowStream(rows, (self.seed, number), self.epoch * int(draws))
            for number, (rows, draws) in enumerate(zip(self.ranges.values(), self.draws, strict=True))
        ]
        step = max(1, self.rows_at_once // self.group)
        for start in range(0, len(order), step):
            tickets = order[np.arange(start, min(start + step, len(order)))]
            languages = np.repeat(np.searchsorted(bounds, tickets, side="right"), self.group)
            by_language = np.argsort(languages, kind="stable")
            counts = np.bincount(languages, minlength=len(streams)).tolist()
            rows = np.empty_like(languages)
            rows[by_language] = np.concatenate([stream.take(n) for stream, n in zip(streams, counts, strict=True)])
            yield rows


class RowStream:
    """The rows of one language without end: pass after pass, each in its own order."""

    def __init__(self, rows: range, seed: tuple[int, ...], position: int) -> None:
        self.rows, self.seed, self.position = rows, seed, position

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """Give the next ``count`` rows."""
        size = len(self.rows)
        taken = [np.empty(0, dtype=np.int64)]
        while count:
            number, offset = divmod(self.position, size)
            length = min(count, size - offset)
            taken.append(Permutation(size, (*self.seed, number))[np.arange(offset, offset + length)] + self.rows.start)
            self.position += length
            count -= length
        return np.concatenate(taken)


def _apportion(shares: npt.NDArray[np.float64], total: int) -> npt.NDArray[np.int64]:
    """Round shares of a total to whole numbers that add up to it (largest remainders first)."""
    exact = shares * total
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return counts
