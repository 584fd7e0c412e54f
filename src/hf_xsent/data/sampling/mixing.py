"""Sample pairs of languages of unequal size by temperature, and split them among processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from hf_xsent.data.cleaning.repeats import Rows
from hf_xsent.errors import DataError

logger = logging.getLogger(__name__)

_ROWS_AT_ONCE = 1 << 16
_GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 fill [0, 1) evenly


def mixing_probabilities(sizes: Sequence[int], alpha: float) -> npt.NDArray[np.float64]:
    """Return each language's share, proportional to ``size ** alpha``: alpha 1 is by size, 0 equal shares."""
    if not len(sizes) or min(sizes) < 1:
        raise DataError(f"every language must have at least one pair, not {list(sizes)}")
    if not 0 <= alpha <= 1:
        raise DataError(f"alpha must be between 0 (equal shares) and 1 (shares by size), not {alpha}")
    weights = np.asarray(sizes, dtype=np.float64) ** alpha
    return np.asarray(weights / weights.sum())


class TemperatureSampler(Sampler[int]):
    """Yield row numbers, each language in proportion to its share.

    A language is reshuffled after each pass over its pairs; the next epoch continues the pass. The rows depend on seed
    and epoch only, so a resumed run draws the same ones. ``group`` consecutive rows are of one language, for batches of
    one language on all processes. Each language has its share of the groups on average over epochs, so an epoch with
    fewer groups than languages draws some of them, and the next epochs the others. If an epoch has at least ``batch``
    rows, such as those of a step, it ends with a complete batch, and the remaining rows come in the next epoch.
    """

    def __init__(
        self,
        ranges: Mapping[str, range],
        alpha: float = 1.0,
        seed: int = 0,
        num_samples: int | None = None,
        group: int = 1,
        batch: int = 1,
    ) -> None:
        self.ranges = dict(ranges)
        self.seed = seed
        self.epoch = 0
        sizes = [len(rows) for rows in self.ranges.values()]
        probabilities = mixing_probabilities(sizes, alpha)
        self.num_samples = sum(sizes) if num_samples is None else num_samples
        if self.num_samples < 1:
            raise DataError(f"num_samples must be at least 1, not {num_samples}")
        if not 1 <= group <= self.num_samples:
            raise DataError(
                f"{self.num_samples} pairs per epoch are fewer than one batch of {group} pairs of a language"
            )
        self.group = group
        self.batch = batch
        self.num_samples -= self.num_samples % (batch if batch <= self.num_samples else group)
        self.shares = probabilities * (self.num_samples // group)  # groups per epoch
        self.offset = np.random.default_rng(seed).random()
        logger.info("sampling %d pairs per epoch (alpha=%g)\n%s", self.num_samples, alpha, self._table(probabilities))

    def _table(self, probabilities: npt.NDArray[np.float64]) -> str:
        lines = ["language       pairs  probability  passes per epoch"]
        for (language, rows), share in zip(self.ranges.items(), probabilities, strict=True):
            passes = share * self.num_samples / len(rows)
            lines.append(f"{language:8} {len(rows):>11,}  {share:>11.4f}  {passes:>7.2f}")
        return "\n".join(lines)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; the Trainer calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        return self.rows_from(0)

    def rows_from(self, start: int) -> Iterator[int]:
        """Yield the rows of the epoch from a position."""
        rows = self._rows()
        for first in range(start, len(rows), _ROWS_AT_ONCE):
            yield from rows[first : first + _ROWS_AT_ONCE].tolist()

    def _rows(self) -> Rows:
        """Return the rows of the epoch: the draws from all languages, in random order."""
        earlier, draws = (self._groups(first, end) for first, end in ((0, self.epoch), (self.epoch, self.epoch + 1)))
        groups = np.arange(len(draws), dtype=np.int16).repeat(draws)
        np.random.default_rng((self.seed, self.epoch)).shuffle(groups)
        languages = groups.repeat(self.group)
        rows = np.empty(len(languages), dtype=np.int64)
        for number, of_language in enumerate(self.ranges.values()):
            if draws[number]:
                position, count = int(earlier[number]) * self.group, int(draws[number]) * self.group
                rows[languages == number] = self._draw(number, len(of_language), position, count) + of_language.start
        return rows

    def _groups(self, first: int, end: int) -> Rows:
        """Return the groups of each language in a range of epochs.

        In each, shares are rounded up as often as their remainders say (systematic sampling).
        """
        epochs = np.arange(first, end)
        if self.group == 1 and (fixed := _apportion(self.shares)).all():
            return fixed * len(epochs)
        offsets = (self.offset + epochs * _GOLDEN) % 1
        ends = np.floor(np.cumsum(self.shares[:-1]) + offsets[:, None]).sum(0).astype(np.int64)
        return np.diff(ends, prepend=0, append=len(epochs) * (self.num_samples // self.group))

    def _draw(self, language: int, size: int, position: int, count: int) -> Rows:
        """Return ``count`` numbers below ``size``, from a position in a language's passes, each in random order."""
        drawn = [np.empty(0, dtype=np.int64)]
        while count:
            number, offset = divmod(position, size)
            part = np.random.default_rng((self.seed, language, number)).permutation(size)[offset : offset + count]
            drawn.append(part)
            position, count = position + len(part), count - len(part)
        return np.concatenate(drawn)


class ProcessBatches:
    """Yield the batches of one process: its slice of each block of ``batch_size`` × ``processes`` rows of the sampler.

    So the rows of a step depend only on the total batch size, not on the number of processes.
    """

    def __init__(self, sampler: TemperatureSampler, batch_size: int, process: int = 0, processes: int = 1) -> None:
        self.sampler = sampler
        self.batch_size = batch_size
        self.process = process
        self.total = batch_size * processes
        self.skipped = 0  # batches at the start of the epoch that are yielded empty, since the caller drops them

    def __len__(self) -> int:
        return -(-len(self.sampler) // self.total)

    def __iter__(self) -> Iterator[list[int]]:
        yield from repeat([], self.skipped)
        rows = self.sampler.rows_from(self.skipped * self.total)
        while batch := list(islice(rows, self.total)):
            yield batch[self.process * self.batch_size : (self.process + 1) * self.batch_size]


def _apportion(shares: npt.NDArray[np.float64]) -> Rows:
    """Round shares to integers of the same sum (largest remainder method)."""
    counts = np.floor(shares).astype(np.int64)
    counts[np.argsort(counts - shares, kind="stable")[: round(shares.sum()) - int(counts.sum())]] += 1
    return counts
