"""The nearest neighbours of both sides in one pass: each block of cosines serves rows and columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from hf_xsent.errors import DataError
from hf_xsent.mining.vectors import ShardedVectors

Vectors = np.ndarray | Tensor | ShardedVectors
_GROUP = 64  # candidates whose maximum is kept


@dataclass(frozen=True)
class Neighbours:
    """The k nearest on the other side, nearest first; of equal cosines the lower number is nearer."""

    cosines: Tensor  # N × k, float32
    numbers: Tensor  # N × k


def nearest_both_ways(
    source: Vectors,
    target: Vectors,
    k: int = 4,
    memory_mib: int = 256,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    show_progress: bool = False,
) -> tuple[Neighbours, Neighbours]:
    """Exact neighbours of each source among targets, and of each target among sources.

    Vectors may be memory maps of any size and need no unit length; at most about ``memory_mib`` of cosines and vectors
    are held at once, beside the 12 k bytes that each sentence's neighbours take. ``dtype`` is that of the products.
    """
    check_vectors(source, target, k)
    rows = _Best(len(source), min(k, len(target)), device)
    columns = _Best(len(target), min(k, len(source)), device)
    side = _block_side(memory_mib, source.shape[1])
    blocks = -(-len(source) // side) * -(-len(target) // side)
    with tqdm(total=blocks, desc="comparing", unit="block", delay=2, disable=None if show_progress else True) as bar:
        for left, some in _blocks(source, side, device, dtype):
            for right, others in _blocks(target, side, device, dtype):
                cosines = (some @ others.T).float()
                rows.update(left, right, _Block(cosines, of_rows=True))
                columns.update(right, left, _Block(cosines, of_rows=False))
                bar.update()
    return rows.result(), columns.result()


def nearest_one_way(asking: Vectors, answering: Vectors, k: int = 4, memory_mib: int = 256) -> Neighbours:
    """Exact neighbours of each vector among the others, for a side that is small."""
    check_vectors(asking, answering, k, both_ways=False)
    best = _Best(len(asking), k, "cpu")
    side = _block_side(memory_mib, asking.shape[1])
    for left, some in _blocks(asking, side, "cpu", torch.float32):
        for right, others in _blocks(answering, side, "cpu", torch.float32):
            best.update(left, right, _Block(some @ others.T, of_rows=True))
    return best.result()


class _Best:
    """The k best so far of each sentence; a block is searched only for those that find something better in it."""

    def __init__(self, count: int, k: int, device: str | torch.device) -> None:
        self.k = k
        self.cosines = torch.full((count, k), -torch.inf, device=device)
        self.numbers = torch.full((count, k), torch.iinfo(torch.long).max, device=device)

    def update(self, start: int, first_number: int, block: _Block) -> None:
        """Sentences from ``start`` meet the candidates from ``first_number``. Candidates come in ascending order."""
        known = slice(start, start + len(block.maxima))
        better = (block.maxima.amax(1) > self.cosines[known, -1]).nonzero().squeeze(1)
        if not len(better):
            return
        values, numbers = block.best(better, self.k)
        places = better + start
        values = torch.cat((self.cosines[places], values), 1)
        numbers = torch.cat((self.numbers[places], numbers + first_number), 1)
        values, order = values.sort(dim=1, descending=True, stable=True)  # older candidates have lower numbers
        self.cosines[places] = values[:, : self.k]
        self.numbers[places] = numbers.gather(1, order)[:, : self.k]

    def result(self) -> Neighbours:
        """What was found."""
        return Neighbours(self.cosines.cpu(), self.numbers.cpu())


class _Block:
    """A block of cosines seen from its rows or from its columns, each of which has candidates in groups.

    The k best of a row lie in the k groups with the highest maxima, so that one pass over the block, for the maxima,
    and a look at a few groups do for a search. Nothing is copied to turn the block.
    """

    def __init__(self, cosines: Tensor, of_rows: bool) -> None:
        self.cosines = cosines if of_rows else cosines.T
        count = self.cosines.shape[1]
        self.group = _GROUP if count % _GROUP == 0 else 1
        # One of the two dimensions is cut, without a copy: rows × groups × group.
        self.groups = self.cosines.unflatten(1, (-1, self.group))
        self.maxima = self.groups.amax(2)

    def best(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k highest of these rows with their places, of equal ones the first."""
        k = min(k, self.cosines.shape[1])
        maxima = self.maxima[rows]
        groups = maxima.topk(min(k, maxima.shape[1]), 1).indices.sort(1).values
        candidates = self.groups[rows[:, None], groups].flatten(1)
        places = (groups[:, :, None] * self.group + torch.arange(self.group, device=rows.device)).flatten(1)
        values, order = _top(candidates, k)
        places = places.gather(1, order)
        last = values[:, -1:]
        elsewhere = (maxima >= last).sum(1) > (maxima.gather(1, groups) >= last).sum(1)
        tied = (elsewhere | ((candidates >= last).sum(1) > k)).nonzero().squeeze(1)
        if len(tied):
            whole = self.cosines[rows[tied]].sort(dim=1, descending=True, stable=True)
            values[tied], places[tied] = whole.values[:, :k], whole.indices[:, :k]
        return values, places


def _top(candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of each row; equal ones among them in the order of their places."""
    order = candidates.topk(k, 1).indices.sort(1).values
    values, again = candidates.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values, order.gather(1, again)


def _blocks(
    vectors: Vectors, side: int, device: str | torch.device, dtype: torch.dtype
) -> Iterator[tuple[int, Tensor]]:
    for start in range(0, len(vectors), side):
        block = torch.as_tensor(np.ascontiguousarray(vectors[start : start + side])).to(device).float()
        lengths = block.norm(dim=1, keepdim=True)
        if not (lengths.isfinite().all() and (lengths > 0).all()):
            wrong = start + int((~(lengths.isfinite() & (lengths > 0))).nonzero()[0, 0])
            raise DataError(f"vector {wrong} is zero or not finite: leave that sentence out")
        yield start, (block / lengths).to(dtype)


def _block_side(memory_mib: int, width: int) -> int:
    """How many vectors of either side a block takes: cosines twice (once turned), and the vectors."""
    side = 64
    while 4 * (2 * (2 * side) ** 2 + 4 * (2 * side) * width) <= memory_mib << 20 and side < 8192:
        side *= 2
    return side


def check_vectors(source: Any, target: Any, k: int, both_ways: bool = True) -> None:
    """What cannot be mined is told at once."""
    for name, vectors in (("source", source), ("target", target)):
        if vectors.ndim != 2 or not len(vectors):
            raise DataError(f"the {name} vectors have shape {tuple(vectors.shape)}: mining takes N × width, N above 0")
    if source.shape[1] != target.shape[1]:
        raise DataError(
            f"source vectors are {source.shape[1]} wide and target vectors {target.shape[1]}: "
            "encode both with one model"
        )
    if k < 1:
        raise DataError(f"k is {k}: margins need at least 1 neighbour")
    smallest = min(len(source), len(target)) if both_ways else len(target)
    if k > smallest:
        raise DataError(f"k is {k}, but a side has only {smallest} sentences: lower k")
