"""Search the neighbours of both sides in shards: one file of targets against all sources at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hf_xsent.files import write_arrays
from hf_xsent.mining.neighbours import nearest_both_ways
from hf_xsent.mining.top_k import Neighbours, merge_neighbours
from hf_xsent.mining.vectors import Fill, VectorStore, shard_names, shard_number
from hf_xsent.runs.store import Store

_ARRAYS = ("source_cosines", "source_rows", "target_cosines", "target_rows")  # of a shard's file


@dataclass(frozen=True)
class SearchOptions:
    """Settings of the exact search; the precision changes its time, and the result only by float32 rounding."""

    k: int = 4
    memory_mib: int = 512
    precision: str = "float32"
    device: str = "cpu"


def search(
    work: Path, source: VectorStore, target: VectorStore, options: SearchOptions, fill: Fill = Store.fill
) -> tuple[Neighbours, Neighbours]:
    """Return the exact neighbours of both sides."""
    made_from = {
        f"{side} {key}": value
        for side, vectors in (("source", source), ("target", target))
        for key, value in vectors.made_from.items()
    }
    name = f"{source.sentences.fingerprint}-{target.sentences.fingerprint}-k{options.k}"
    store, names = Store(work / "neighbours" / name, made_from), shard_names(len(target.names), "npz")
    fill(store, names, SearchJob(source, target, options), "searching")
    of_source, targets = store.read(names[0], _read)
    of_target = [targets]
    for name in names[1:]:
        more, targets = store.read(name, _read)
        of_source = merge_neighbours(of_source, more, options.k)
        of_target.append(targets)
    return of_source, Neighbours(*(torch.cat([getattr(n, side) for n in of_target]) for side in ("cosines", "indices")))


@dataclass(frozen=True)
class SearchJob:
    """Write the neighbours of all sources among one file of targets, and of these targets among all sources."""

    source: VectorStore
    target: VectorStore
    options: SearchOptions

    def __call__(self, name: str, path: Path) -> None:
        """Search and write the neighbours."""
        options, number = self.options, shard_number(name)
        of_source, of_target = nearest_both_ways(
            self.source.read(),
            self.target.read([self.target.names[number]]),
            options.k,
            options.memory_mib,
            options.device,
            getattr(torch, options.precision),
            allow_fewer=True,
        )
        rows = of_source.indices + number * self.target.sentences.rows_per_batch
        arrays = of_source.cosines, rows, of_target.cosines, of_target.indices
        write_arrays(path, {key: array.numpy() for key, array in zip(_ARRAYS, arrays, strict=True)})


def _read(path: Path) -> tuple[Neighbours, Neighbours]:
    with np.load(path) as file:
        arrays = [torch.from_numpy(file[key]) for key in _ARRAYS]
    return Neighbours(*arrays[:2]), Neighbours(*arrays[2:])
