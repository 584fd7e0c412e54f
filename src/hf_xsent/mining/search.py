"""Search the neighbours of both sides in shards: one shard of targets against all sources at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hf_xsent.files import write_arrays
from hf_xsent.locks import stamp_folder
from hf_xsent.mining.neighbours import check_vectors, nearest_both_ways
from hf_xsent.mining.shards import ProcessRunner, Runner
from hf_xsent.mining.top_k import Neighbours, merge_neighbours
from hf_xsent.mining.vectors import ShardedVectors, VectorStore
from hf_xsent.models.encode_interface import SupportsEncode

_ARRAYS = ("source_cosines", "source_numbers", "target_cosines", "target_numbers")  # of a shard's file


@dataclass(frozen=True)
class SearchOptions:
    """Settings of the exact search; the precision changes its time, and the result only by float32 rounding."""

    k: int = 4
    memory_mib: int = 512
    precision: str = "float32"
    device: str = "cpu"


@dataclass(frozen=True)
class SearchShard:
    """The neighbours of all sources among one shard of targets, and of these targets among all sources."""

    folder: Path
    sources: list[Path]
    targets: list[Path]
    number: int
    options: SearchOptions

    @property
    def path(self) -> Path:
        """Return the file of the neighbours."""
        return self.folder / f"{self.number:05d}.npz"

    def is_complete(self) -> bool:
        """Return whether the file exists and its checksums are correct."""
        try:
            self.read()
        except Exception:  # numpy and zipfile raise errors of many types for damaged files
            return False
        return True

    def read(self) -> tuple[Neighbours, Neighbours]:
        """Read the neighbours of all sources and of this shard's targets."""
        with np.load(self.path) as found:
            arrays = [torch.from_numpy(found[name]) for name in _ARRAYS]
        return Neighbours(*arrays[:2]), Neighbours(*arrays[2:])

    def run(self, model: SupportsEncode | None = None) -> None:
        """Search and write the neighbours."""
        options, first = self.options, self.number * len(ShardedVectors(self.targets[:1]))
        of_source, of_target = nearest_both_ways(
            ShardedVectors(self.sources),
            ShardedVectors([self.targets[self.number]]),
            options.k,
            options.memory_mib,
            options.device,
            getattr(torch, options.precision),
            allow_fewer=True,
        )
        arrays = of_source.cosines, of_source.indices + first, of_target.cosines, of_target.indices
        write_arrays(self.path, {name: one.numpy() for name, one in zip(_ARRAYS, arrays, strict=True)})


def search_shards(work: Path, source: VectorStore, target: VectorStore, options: SearchOptions) -> list[SearchShard]:
    """List the shards of a search."""
    folder = work / "neighbours" / f"{source.sentences.fingerprint}-{target.sentences.fingerprint}-k{options.k}"
    return [SearchShard(folder, source.paths, target.paths, number, options) for number in range(len(target.paths))]


def search(
    work: Path, source: VectorStore, target: VectorStore, options: SearchOptions, runner: Runner | None = None
) -> tuple[Neighbours, Neighbours]:
    """Return the exact neighbours of both sides; ``runner`` searches the shards that have no file."""
    check_vectors(ShardedVectors(source.paths), ShardedVectors(target.paths), options.k)
    shards = search_shards(work, source, target, options)
    stamp = {f"source {key}": value for key, value in source.stamp.items()}
    stamp |= {f"target {key}": value for key, value in target.stamp.items()}
    stamp_folder(shards[0].folder, stamp, "results", "give another --work folder")
    (runner or ProcessRunner())(shards, "searching", None)
    of_source: Neighbours | None = None
    of_target = []
    for shard in shards:
        new, targets = shard.read()
        of_source = new if of_source is None else merge_neighbours(of_source, new, options.k)
        of_target.append(targets)
    assert of_source is not None
    cosines, indices = ([getattr(one, name) for one in of_target] for name in ("cosines", "indices"))
    return of_source, Neighbours(torch.cat(cosines), torch.cat(indices))
