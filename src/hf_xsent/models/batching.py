"""Run a model over many sentences: batches of similar lengths, longest first, padded to the longest row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from tqdm import tqdm


def batches_by_length(
    lengths: Sequence[int], tokens_per_batch: int, doing: str | None = None, unit: str = "sentence"
) -> Iterator[list[int]]:
    """Yield the numbers of rows, longest first, as many as fit ``tokens_per_batch`` with their padding; at least one.

    Memory peaks in the first batch. ``doing`` shows a progress bar.

    >>> list(batches_by_length([3, 9, 1, 4], tokens_per_batch=8))
    [[1], [3, 0], [2]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    with tqdm(total=len(order), desc=doing, unit=unit, disable=True if doing is None else None) as bar:
        start = 0
        while start < len(order):
            rows = order[start : start + max(1, tokens_per_batch // max(1, lengths[order[start]]))]
            yield rows
            start += len(rows)
            bar.update(len(rows))


def pad_rows(rows: Sequence[Sequence[int]], padding: int = 0) -> tuple[Tensor, Tensor]:
    """Pad rows of different lengths to one N × L tensor, with the mask of what is no padding."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    padded = torch.full(mask.shape, padding)
    padded[mask] = torch.tensor([value for row in rows for value in row], dtype=torch.long)
    return padded, mask


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch dropout off; afterwards each part is in its former mode, also after an error."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
