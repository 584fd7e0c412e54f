"""Keep the k nearest candidates of every sentence while cosines arrive in tiles."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32  # adjacent candidates that share one maximum
_NO_NUMBER = torch.iinfo(torch.long).max


@dataclass(frozen=True)
class Neighbours:
    """The k nearest on the other side, nearest first; ties go to the lower number."""

    cosines: Tensor  # N × k, float32
    numbers: Tensor  # N × k


class TopK:
    """The k nearest candidates of each sentence so far.

    Reads a tile once, for the maxima of its groups. A candidate that enters a top k lies in one of few groups, and only
    those are read in full.
    """

    def __init__(self, count: int, k: int, device: str | torch.device) -> None:
        self.k = k
        self.cosines = torch.full((count, k), -torch.inf, device=device)
        self.numbers = torch.full((count, k), _NO_NUMBER, device=device)

    def update(self, start: int, first_number: int, tile: Tensor, maxima: Tensor) -> None:
        """Add a tile: sentences from ``start`` (rows) by candidates from ``first_number`` (columns, complete groups).

        Candidates arrive in ascending order; ``-inf`` is padding. ``maxima`` are those of the groups.
        """
        groups = tile.unflatten(1, (-1, GROUP))
        maxima = maxima.float().contiguous()
        bound = self._bound(self.cosines[start : start + len(tile), -1], maxima)
        for hits in (maxima > bound[:, None]).nonzero().split(max(GROUP, tile.numel() // (2 * GROUP**2))):
            rows, group = hits.unbind(1)
            cosines = groups[rows, group].float()
            found, column = (cosines > bound[rows, None]).nonzero(as_tuple=True)
            numbers = first_number + group[found] * GROUP + column
            self._merge(start + rows[found], numbers, cosines[found, column])

    def _bound(self, kth: Tensor, maxima: Tensor) -> Tensor:
        """Return what a candidate must exceed: the k-th cosine so far or, if higher, just below the k-th maximum."""
        bound = kth.clone()
        crowded = ((maxima > kth[:, None]).sum(1) > self.k).nonzero().squeeze(1)
        reached = maxima[crowded].topk(min(self.k, maxima.shape[1]), 1).values[:, -1]
        below = torch.nextafter(reached, reached.new_tensor(-torch.inf))
        bound[crowded] = torch.maximum(bound[crowded], below)
        return bound

    def _merge(self, sentences: Tensor, numbers: Tensor, cosines: Tensor) -> None:
        """Insert candidates that are sorted by sentence, then by number."""
        distinct, row, rank = _ranks(sentences)
        if len(rank) and int(rank.max()) >= self.k:
            order = cosines.argsort(descending=True, stable=True)
            order = order[sentences[order].argsort(stable=True)][rank < self.k]  # ranks hold in any order
            row, rank, numbers, cosines = row[rank < self.k], rank[rank < self.k], numbers[order], cosines[order]
        new_cosines = cosines.new_full((len(distinct), self.k), -torch.inf)
        new_numbers = numbers.new_full((len(distinct), self.k), _NO_NUMBER)
        new_cosines[row, rank], new_numbers[row, rank] = cosines, numbers
        old = Neighbours(self.cosines[distinct], self.numbers[distinct])
        best = merge_neighbours(old, Neighbours(new_cosines, new_numbers), self.k)
        self.cosines[distinct], self.numbers[distinct] = best.cosines, best.numbers

    def result(self) -> Neighbours:
        """Return the neighbours on the CPU."""
        return Neighbours(self.cosines.cpu(), self.numbers.cpu())


def merge_neighbours(lower: Neighbours, higher: Neighbours, k: int) -> Neighbours:
    """Return the k nearest of both; ``lower`` has the lower numbers."""
    cosines, order = torch.cat((lower.cosines, higher.cosines), 1).sort(dim=1, descending=True, stable=True)
    numbers = torch.cat((lower.numbers, higher.numbers), 1).gather(1, order)
    return Neighbours(cosines[:, :k].contiguous(), numbers[:, :k].contiguous())


def _ranks(sentences: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct sentences of a sorted list, and of each entry the row of its sentence and its rank there."""
    distinct, row, counts = sentences.unique_consecutive(return_inverse=True, return_counts=True)
    rank = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return distinct, row, rank
