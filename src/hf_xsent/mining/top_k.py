"""Update the k nearest candidates of every sentence, one block of cosines at a time.

A tile is a block of the matrix of cosines, sentences by candidates. The candidates of a tile are divided into n groups
of ``GROUP``: group i has the columns i, i + n, i + 2n, …. So if the tile is cut into ``GROUP`` contiguous slices of n
columns, their elementwise maximum has the maxima of all n groups at once, which is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 32  # candidates
_NO_INDEX = torch.iinfo(torch.long).max
Exact = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Neighbours:
    """The k nearest candidates of each of N sentences, nearest first; ties go to the lower index."""

    cosines: Tensor  # N × k, float32
    indices: Tensor  # N × k: rows of the other side


class TopK:
    """The k nearest candidates of each sentence among the tiles added so far.

    Only groups whose maximum exceeds a sentence's k-th cosine can change its top k, and only these few are read.
    """

    def __init__(self, count: int, k: int, device: str | torch.device) -> None:
        self.k = k
        self.cosines = torch.full((count, k), -torch.inf, device=device)
        self.indices = torch.full((count, k), _NO_INDEX, device=device)

    def update(
        self, start: int, first_index: int, tile: Tensor, error: float = 0.0, exact: Exact | None = None
    ) -> bool:
        """Add a tile: sentences from ``start`` (rows) by candidates from ``first_index`` (columns).

        Columns are padded to complete groups with ``-inf``. If cosines are rounded, ``error`` bounds their error, and
        ``exact(rows, columns)`` computes in float32 the cosine of ``rows[i]`` with ``columns[i]`` for each i. If too
        many cosines would need ``exact``, return False and add nothing: computing the complete tile in float32 is
        faster.
        """
        groups, maxima = tile.unflatten(1, (GROUP, -1)), _maxima(tile).float().contiguous()
        if error:
            maxima = maxima.clamp(max=1.0)  # above 1, the error may exceed the bound (cosine_error)
        bound = self._bound(self.cosines[start : start + len(tile), -1], maxima - error if error else maxima)
        lowest = bound - error
        hits = (maxima > lowest[:, None]).nonzero()
        if error and 4 * len(hits) > maxima.numel():
            return False
        for piece in hits.split(max(GROUP, tile.numel() // (2 * GROUP**2))):
            rows, group = piece.unbind(1)
            cosines = groups[rows, :, group]
            hit, place = (cosines > lowest[rows, None]).nonzero(as_tuple=True)
            sentences, columns, values = rows[hit], place * maxima.shape[1] + group[hit], cosines[hit, place]
            if exact is not None:
                values = exact(sentences, columns)
                entering = values > bound[sentences]
                sentences, columns, values = sentences[entering], columns[entering], values[entering]
            self._merge(start + sentences, first_index + columns, values)
        return True

    def _bound(self, kth: Tensor, maxima: Tensor) -> Tensor:
        """Return what a candidate's cosine must exceed to enter the top k.

        Let m be the k-th largest of the groups' maxima. The maxima are of different candidates, so at least k
        candidates of the tile reach m. The bound is the k-th cosine so far or, if higher, the largest float below m, so
        that candidates equal to m enter.
        """
        bound = kth.clone()
        crowded = ((maxima > kth[:, None]).sum(1) > self.k).nonzero().squeeze(1)
        reached = maxima[crowded].topk(min(self.k, maxima.shape[1]), 1).values[:, -1]
        below = torch.nextafter(reached, reached.new_tensor(-torch.inf))
        bound[crowded] = torch.maximum(bound[crowded], below)
        return bound

    def _merge(self, sentences: Tensor, indices: Tensor, cosines: Tensor) -> None:
        """Insert candidates that are sorted by sentence."""
        distinct, row, rank = _ranks(sentences)
        if len(rank) and int(rank.max()) >= self.k:
            order = _nearest_first(cosines, indices)
            # Sort by sentence, and within a sentence by cosine; row and rank stay valid: they depend only on the number
            # of candidates per sentence.
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


def _maxima(tile: Tensor) -> Tensor:
    """Return the maximum of each group of candidates, rows × groups."""
    if tile.stride(1) == 1:
        return tile.unflatten(1, (GROUP, -1)).amax(1)
    # The tile is a transposed view: undo this to read memory in order (10 times as fast), and transpose the maxima.
    return tile.T.unflatten(0, (GROUP, -1)).amax(0).T


def merge_neighbours(first: Neighbours, second: Neighbours, k: int) -> Neighbours:
    """Return, for each sentence, the k nearest among the candidates of both."""
    cosines = torch.cat((first.cosines, second.cosines), 1)
    indices = torch.cat((first.indices, second.indices), 1)
    order = _nearest_first(cosines, indices)[:, :k]
    return Neighbours(cosines.gather(1, order), indices.gather(1, order))


def join_neighbours(parts: Sequence[Neighbours]) -> Neighbours:
    """Return the neighbours of the sentences of all parts, one part after the other."""
    return Neighbours(torch.cat([part.cosines for part in parts]), torch.cat([part.indices for part in parts]))


def _nearest_first(cosines: Tensor, indices: Tensor) -> Tensor:
    """Return the order along the last dimension by descending cosine, then by index."""
    by_index = indices.argsort(dim=-1)
    return by_index.gather(-1, cosines.gather(-1, by_index).argsort(dim=-1, descending=True, stable=True))


def _ranks(sentences: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct numbers of a sorted list, and two indices of each entry, counted from 0.

    The first is the index of its number among the distinct ones, the second its index within the run of equal numbers.
    """
    distinct, row, counts = sentences.unique_consecutive(return_inverse=True, return_counts=True)
    rank = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return distinct, row, rank
