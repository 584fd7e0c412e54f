"""Gather rows of all processes with exact gradients, and compute means over all processes.

Data-parallel training averages gradients over processes. If gathering is differentiable, this gives the gradient
of the mean of the processes' losses, each over its own rows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def process_count() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_number() -> int:
    """Return the rank of this process, 0 if it is the only one."""
    return dist.get_rank() if process_count() > 1 else 0


def gather_rows(rows: Tensor) -> tuple[Tensor, int]:
    """Return the rows of all processes in order of rank, and the index of this process's first row.

    Processes may have different numbers of rows. The backward pass sums the gradients of a row over all processes.
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
    """All-gather in the forward pass; sum over processes, without averaging, in the backward pass."""

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
    """Sum a tensor over all processes."""
    total = count.detach().clone()
    if process_count() > 1:
        dist.all_reduce(total)
    return total


def max_over_processes(number: int, device: torch.device) -> int:
    """Return the maximum of a number over all processes."""
    highest = torch.tensor(number, device=device)
    if process_count() > 1:
        dist.all_reduce(highest, dist.ReduceOp.MAX)
    return int(highest)


def mean_over_processes(total: Tensor, count: Tensor) -> Tensor:
    """Return total × world size / count, with a ``count`` summed over processes.

    Averaging gradients over processes then gives the gradient of the mean over all ``count`` items.
    """
    return total * process_count() / count.clamp_min(1)


def mean_over_rows(total: Tensor, rows: Tensor) -> Tensor:
    """Apply ``mean_over_processes`` to a total over this process's rows; the count is the number of rows of all."""
    return mean_over_processes(total, sum_over_processes(torch.tensor(len(rows), device=rows.device)))
