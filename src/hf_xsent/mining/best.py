"""The k best candidates of every sentence, kept while tiles of cosines come by."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32  # neighbouring candidates of which the highest cosine is looked at first
_NO_NUMBER = torch.iinfo(torch.long).max


@dataclass(frozen=True)
class Neighbours:
    """The k nearest on the other side, nearest first; of equal cosines the lower number is nearer."""

    cosines: Tensor  # N × k, float32
    numbers: Tensor  # N × k


class BestSoFar:
    """The k best so far of each sentence.

    A tile is read once, for the maxima of its groups of candidates: what is better than the worst that a sentence keeps
    lies in few groups, and only those are looked into.
    """

    def __init__(self, count: int, k: int, device: str | torch.device) -> None:
        self.k = k
        self.cosines = torch.full((count, k), -torch.inf, device=device)
        self.numbers = torch.full((count, k), _NO_NUMBER, device=device)

    def update(self, start: int, first_number: int, tile: Tensor, maxima: Tensor) -> None:
        """Sentences from ``start`` (rows of the tile) meet candidates from ``first_number`` (columns, whole groups).

        Candidates come in ascending order; ``-inf`` is none. ``maxima`` are those of the groups.
        """
        groups = tile.unflatten(1, (-1, GROUP))
        maxima = maxima.float().contiguous()
        known = self.cosines[start : start + len(tile), -1]
        bound = self._bound(known, maxima)
        for hits in (maxima > bound[:, None]).nonzero().split(max(GROUP, tile.numel() // (2 * GROUP**2))):
            rows, group = hits.unbind(1)
            cosines = groups[rows, group].float()
            found, place = (cosines > bound[rows, None]).nonzero(as_tuple=True)
            numbers = first_number + group[found] * GROUP + place
            self._merge(start + rows[found], numbers, cosines[found, place])

    def _bound(self, known: Tensor, maxima: Tensor) -> Tensor:
        """What a candidate must exceed: the worst kept so far; less than the k-th highest maximum, which k reach."""
        bound = known.clone()
        crowded = ((maxima > known[:, None]).sum(1) > self.k).nonzero().squeeze(1)
        reached = maxima[crowded].topk(min(self.k, maxima.shape[1]), 1).values[:, -1]
        below = torch.nextafter(reached, reached.new_tensor(-torch.inf))
        bound[crowded] = torch.maximum(bound[crowded], below)
        return bound

    def _merge(self, sentences: Tensor, numbers: Tensor, cosines: Tensor) -> None:
        """Take in candidates, which come by sentence and then by number."""
        distinct, place, rank = _ranks(sentences)
        if len(rank) and int(rank.max()) >= self.k:
            order = cosines.argsort(descending=True, stable=True)
            order = order[sentences[order].argsort(stable=True)][rank < self.k]  # ranks are those of any order
            place, rank, numbers, cosines = place[rank < self.k], rank[rank < self.k], numbers[order], cosines[order]
        new_cosines = cosines.new_full((len(distinct), self.k), -torch.inf)
        new_numbers = numbers.new_full((len(distinct), self.k), _NO_NUMBER)
        new_cosines[place, rank], new_numbers[place, rank] = cosines, numbers
        both = torch.cat((self.cosines[distinct], new_cosines), 1)
        both, order = both.sort(dim=1, descending=True, stable=True)  # older candidates have lower numbers
        both_numbers = torch.cat((self.numbers[distinct], new_numbers), 1).gather(1, order)
        self.cosines[distinct], self.numbers[distinct] = both[:, : self.k], both_numbers[:, : self.k]

    def result(self) -> Neighbours:
        """What was found."""
        return Neighbours(self.cosines.cpu(), self.numbers.cpu())


def _ranks(sentences: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct sentences of a sorted list; of each entry the number of its sentence, and its place among the equal."""
    distinct, place, counts = sentences.unique_consecutive(return_inverse=True, return_counts=True)
    rank = torch.arange(len(place), device=place.device) - (counts.cumsum(0) - counts)[place]
    return distinct, place, rank
