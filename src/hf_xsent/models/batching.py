"""Batch sentences of similar lengths, pad them, and switch a model to evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hf_xsent.logs import Progress


def usual_tokens(device: torch.device) -> int:
    """Return a number of tokens per batch; on a CPU so few that activations fit its caches and malloc reuses them."""
    return 2048 if device.type == "cpu" else 8192


def batches_by_length(
    lengths: Sequence[int], tokens_per_batch: int, progress: str | None = None, unit: str = " sentences"
) -> Iterator[list[int]]:
    """Yield batches of row indices, longest rows first.

    A batch has at most ``tokens_per_batch`` padded tokens, unless it is a single longer row. Memory peaks in the first
    batch. ``progress`` is the label of a progress bar.

    >>> list(batches_by_length([3, 9, 1, 4], tokens_per_batch=8))
    [[1], [3, 0], [2]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    with Progress(total=len(order), desc=progress, unit=unit, disable=True if progress is None else None) as bar:
        start = 0
        while start < len(order):
            rows = order[start : start + max(1, tokens_per_batch // max(1, lengths[order[start]]))]
            yield rows
            start += len(rows)
            bar.update(len(rows))


def pad_rows(rows: Sequence[Sequence[int]], padding: int = 0) -> tuple[Tensor, Tensor]:
    """Pad rows to one N × L tensor and return it with its attention mask."""
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    padded = torch.full(mask.shape, padding)
    padded[mask] = torch.tensor([value for row in rows for value in row], dtype=torch.long)
    return padded, mask


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode within the context, then restore the mode of each module, also after an error."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
