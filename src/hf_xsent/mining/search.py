"""Search the neighbours of both sides in shards: one shard of targets against all sources at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hf_xsent.files import claim, write_arrays
from hf_xsent.mining.neighbours import check_vectors, nearest_both_ways
from hf_xsent.mining.shards import Processes, Runner
from hf_xsent.mining.top_k import Neighbours, merge_neighbours
from hf_xsent.mining.vectors import ShardedVectors, VectorStore
from hf_xsent.models.encodes import SupportsEncode


@dataclass(frozen=True)
class SearchOptions:
    """Settings of the exact search; the precision changes its time, not its result."""

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
        found = {
            "source_cosines": of_source.cosines.numpy(),
            "source_numbers": (of_source.indices + first).numpy(),
            "target_cosines": of_target.cosines.numpy(),
            "target_numbers": of_target.indices.numpy(),
        }
        write_arrays(self.path, found)


def search_shards(work: Path, source: VectorStore, target: VectorStore, options: SearchOptions) -> list[SearchShard]:
    """List the shards of a search."""
    folder = work / "neighbours" / f"{source.sentences.fingerprint}-{target.sentences.fingerprint}-k{options.k}"
    return [SearchShard(folder, source.paths, target.paths, number, options) for number in range(len(target.paths))]


def search(
    work: Path, source: VectorStore, target: VectorStore, options: SearchOptions, runner: Runner | None = None
) -> tuple[Neighbours, Neighbours]:
    """Return the exact neighbours of both sides; ``runner`` searches the shards that have no file yet."""
    check_vectors(ShardedVectors(source.paths), ShardedVectors(target.paths), options.k)
    shards = search_shards(work, source, target, options)
    stamp = {f"source {key}": value for key, value in source.stamp.items()}
    stamp |= {f"target {key}": value for key, value in target.stamp.items()}
    claim(shards[0].folder, stamp, "results", "give another --work folder")
    (runner or Processes())(shards, "searching", None)
    of_source: Neighbours | None = None
    of_target = []
    for shard in shards:
        with np.load(shard.path) as found:
            arrays = {key: torch.from_numpy(found[key]) for key in found.files}
        new = Neighbours(arrays["source_cosines"], arrays["source_numbers"])
        of_source = new if of_source is None else merge_neighbours(of_source, new, options.k)
        of_target.append((arrays["target_cosines"], arrays["target_numbers"]))
    assert of_source is not None
    return of_source, Neighbours(*(torch.cat(parts) for parts in zip(*of_target, strict=True)))
