"""Update the k nearest candidates of every sentence, one block of cosines at a time.

A tile is a block of the matrix of cosines, sentences by candidates. A group is ``GROUP`` adjacent candidates of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32  # candidates
_NO_INDEX = torch.iinfo(torch.long).max


@dataclass(frozen=True)
class Neighbours:
    """The k nearest candidates of each of N sentences, nearest first; ties go to the lower index."""

    cosines: Tensor  # N × k, float32
    indices: Tensor  # N × k: rows of the other side


class TopK:
    """The k nearest candidates of each sentence in the tiles so far.

    Only groups whose maximum exceeds a sentence's k-th cosine can change its top k, and only these few are read.
    """

    def __init__(self, count: int, k: int, device: str | torch.device) -> None:
        self.k = k
        self.cosines = torch.full((count, k), -torch.inf, device=device)
        self.indices = torch.full((count, k), _NO_INDEX, device=device)

    def update(self, start: int, first_index: int, tile: Tensor, maxima: Tensor) -> None:
        """Add a tile: sentences from ``start`` (rows) by candidates from ``first_index`` (columns).

        Columns are padded to complete groups with ``-inf``; ``maxima`` (rows × groups) are the groups' maxima. Tiles of
        a sentence must arrive in ascending order of candidates.
        """
        groups = tile.unflatten(1, (-1, GROUP))
        maxima = maxima.float().contiguous()
        bound = self._bound(self.cosines[start : start + len(tile), -1], maxima)
        for hits in (maxima > bound[:, None]).nonzero().split(max(GROUP, tile.numel() // (2 * GROUP**2))):
            rows, group = hits.unbind(1)
            cosines = groups[rows, group].float()
            found, column = (cosines > bound[rows, None]).nonzero(as_tuple=True)
            indices = first_index + group[found] * GROUP + column
            self._merge(start + rows[found], indices, cosines[found, column])

    def _bound(self, kth: Tensor, maxima: Tensor) -> Tensor:
        """Return what a candidate's cosine must exceed to enter the top k.

        This is the k-th cosine so far, or a value just below the k-th largest of the maxima if that is higher.
        """
        bound = kth.clone()
        crowded = ((maxima > kth[:, None]).sum(1) > self.k).nonzero().squeeze(1)
        reached = maxima[crowded].topk(min(self.k, maxima.shape[1]), 1).values[:, -1]
        below = torch.nextafter(reached, reached.new_tensor(-torch.inf))
        bound[crowded] = torch.maximum(bound[crowded], below)
        return bound

    def _merge(self, sentences: Tensor, indices: Tensor, cosines: Tensor) -> None:
        """Insert candidates that are sorted by sentence, then by index."""
        distinct, row, rank = _ranks(sentences)
        if len(rank) and int(rank.max()) >= self.k:
            order = cosines.argsort(descending=True, stable=True)
            # Still sorted by sentence: row and rank stay valid after reordering within a sentence.
            order = order[sentences[order].argsort(stable=True)][rank < self.k]
            row, rank, indices, cosines = row[rank < self.k], rank[rank < self.k], indices[order], cosines[order]
        new_cosines = cosines.new_full((len(distinct), self.k), -torch.inf)
        new_indices = indices.new_full((len(distinct), self.k), _NO_INDEX)
        new_cosines[row, rank], new_indices[row, rank] = cosines, indices
        old = Neighbours(self.cosines[distinct], self.indices[distinct])
        best = merge_neighbours(old, Neighbours(new_cosines, new_indices), self.k)
        self.cosines[distinct], self.indices[distinct] = best.cosines, best.indices

    def result(self) -> Neighbours:
        """Return the neighbours on the CPU."""
        return Neighbours(self.cosines.cpu(), self.indices.cpu())


def merge_neighbours(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """Return the k nearest candidates of both; every index in ``first`` must be lower than those in ``second``."""
    cosines, order = torch.cat((first.cosines, second.cosines), 1).sort(dim=1, descending=True, stable=True)
    indices = torch.cat((first.indices, second.indices), 1).gather(1, order)
    return Neighbours(cosines[:, :k].contiguous(), indices[:, :k].contiguous())


def _ranks(sentences: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct sentences of a sorted list, and for each entry two positions, from 0.

    The first is that of its sentence among the distinct ones, the second its own among the entries of that sentence.
    """
    distinct, row, counts = sentences.unique_consecutive(return_inverse=True, return_counts=True)
    rank = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return distinct, row, rank
