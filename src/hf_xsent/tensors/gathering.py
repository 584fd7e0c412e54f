"""Batches that span processes: gathered rows with exact gradients, and means over all processes.

The gradients of data-parallel training are averaged over processes. A loss that is a mean over this process's rows has,
after that average, the gradients of the mean over all rows, if what it read of other processes sent its gradients back.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def process_count() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_rows(rows: Tensor) -> tuple[Tensor, int]:
    """The rows of all processes in order of rank, and where this one's start; processes may hold different numbers.

    In the backward pass the gradients that all processes have for a row are summed where the row came from.
    """
    if process_count() == 1:
        return rows, 0
    counts = torch.zeros(process_count(), dtype=torch.long, device=rows.device)
    counts[dist.get_rank()] = len(rows)
    dist.all_reduce(counts)
    counts_list = counts.tolist()
    gathered: Tensor = _GatherRows.apply(rows, counts_list)
    return gathered, sum(counts_list[: dist.get_rank()])


class _GatherRows(torch.autograd.Function):
    """All-gather forwards, the sum of all processes' gradients of the own rows backwards; no factor of their number."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.start, ctx.count = sum(counts[: dist.get_rank()]), len(rows)
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        summed = gradients[0].contiguous()
        dist.all_reduce(summed)
        return summed[ctx.start : ctx.start + ctx.count], None


def sum_over_processes(count: Tensor) -> Tensor:
    """The sum of a number that each process has."""
    total = count.detach().clone()
    if process_count() > 1:
        dist.all_reduce(total)
    return total


def mean_over_processes(total: Tensor, count: Tensor) -> Tensor:
    """``total`` of this process over the ``count`` of all, times their number: right once gradients are averaged."""
    return total * process_count() / count.clamp_min(1)
