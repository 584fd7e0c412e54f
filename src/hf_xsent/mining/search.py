"""Search the exact neighbours of both sides block by block, so that processes share the search and it resumes.

A block compares some files of sources with some files of targets: it is a rectangle of the matrix of cosines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hf_xsent.data import sentences
from hf_xsent.files import digest, write_arrays
from hf_xsent.mining.neighbours import nearest_both_ways, search_precision
from hf_xsent.mining.top_k import Neighbours, join_neighbours, merge_neighbours
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.models.precision import choose_device
from hf_xsent.runs.engines import Fill
from hf_xsent.runs.store import Store

_MOST_BLOCKS = 1024  # else files are joined to larger blocks, since every block stores neighbours of both sides
_SMALLEST_BLOCK = 0.25  # of the largest file's sentences: small blocks are slow, since their first cosines are
_ARRAYS = ("source_cosines", "source_rows", "target_cosines", "target_rows")  # of a block's file


def search(
    work: Path,
    source: VectorStore,
    target: VectorStore,
    k: int,
    memory_mib: int,
    device: str | None,
    fill: Fill = Store.fill,
) -> tuple[Neighbours, Neighbours]:
    """Return the exact neighbours of both sides."""
    files = len(source.names), len(target.names)
    rows = max(side.sentences.rows_per_batch for side in (source, target))
    smallest = int(_SMALLEST_BLOCK * sentences.ROWS_PER_BATCH / rows)
    edge = max(1, smallest, math.ceil(math.sqrt(files[0] * files[1] / _MOST_BLOCKS)))
    blocks = [range(0, count, edge) for count in files]
    names = [[f"{row:05d}-{column:05d}.npz" for column in blocks[1]] for row in blocks[0]]
    store = Store(work / "neighbours" / digest([source.made_from, target.made_from, k, edge]))
    job = SearchJob(source, target, edge, k, memory_mib, device)
    fill(store, [name for row in names for name in row], job, "searching")
    of_source: list[Neighbours] = []
    of_target: list[Neighbours] = []
    for row in names:
        sides = [store.read(name, _read) for name in row]
        of_source.append(_merge([side[0] for side in sides], k))
        targets = [side[1] for side in sides]
        of_target = [_merge(pair, k) for pair in zip(of_target, targets, strict=True)] if of_target else targets
    return join_neighbours(of_source), join_neighbours(of_target)


@dataclass(frozen=True)
class SearchJob:
    """Write the neighbours within a block: of its sources among its targets, and the reverse."""

    source: VectorStore
    target: VectorStore
    edge: int  # files of each side in a block
    k: int
    memory_mib: int
    device: str | None

    def __call__(self, name: str, path: Path) -> None:
        """Search and write the neighbours."""
        starts = [int(number) for number in Path(name).stem.split("-")]
        sides = self.source, self.target
        vectors = [side.read(side.names[start : start + self.edge]) for side, start in zip(sides, starts, strict=True)]
        rows = [side.sentences.rows_per_batch * start for side, start in zip(sides, starts, strict=True)]
        device = choose_device(self.device)
        of_source, of_target = nearest_both_ways(
            vectors[0],
            vectors[1],
            self.k,
            self.memory_mib,
            device,
            getattr(torch, search_precision(device)),
            allow_fewer=True,
        )
        arrays = of_source.cosines, of_source.indices + rows[1], of_target.cosines, of_target.indices + rows[0]
        write_arrays(path, {key: array.numpy() for key, array in zip(_ARRAYS, arrays, strict=True)})


def _read(path: Path) -> tuple[Neighbours, Neighbours]:
    with np.load(path) as file:
        arrays = [torch.from_numpy(file[key]) for key in _ARRAYS]
    return Neighbours(*arrays[:2]), Neighbours(*arrays[2:])


def _merge(parts: list[Neighbours] | tuple[Neighbours, ...], k: int) -> Neighbours:
    """Return the nearest of the same sentences among the candidates of all parts."""
    merged = parts[0]
    for part in parts[1:]:
        merged = merge_neighbours(merged, part, k)
    return merged
