"""Split the batches of a sampler among processes, and skip those that a resumed run has trained on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, repeat

from hf_xsent.data.sampling.mixing import TemperatureSampler


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
