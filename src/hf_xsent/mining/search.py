"""The neighbours of both sides where vectors lie in shards: a task compares one shard of targets with all sources."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hf_xsent.files import write_arrays
from hf_xsent.mining.best import Neighbours
from hf_xsent.mining.neighbours import check_vectors, nearest_among
from hf_xsent.mining.tasks import Processes, RunTasks, claim
from hf_xsent.mining.vectors import ShardedVectors, VectorStore
from hf_xsent.models.encodes import SupportsEncode


@dataclass(frozen=True)
class SearchOptions:
    """How blocks are compared; the precision decides nothing but the time."""

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
        """Where the neighbours lie."""
        return self.folder / f"{self.number:05d}.npz"

    def run(self, model: SupportsEncode | None = None) -> None:
        """Compare and write."""
        options, first = self.options, self.number * len(ShardedVectors(self.targets[:1]))
        of_source, of_target = nearest_among(
            ShardedVectors(self.sources),
            ShardedVectors([self.targets[self.number]]),
            options.k,
            options.memory_mib,
            options.device,
            getattr(torch, options.precision),
            show_progress=True,
        )
        found = {
            "source_cosines": of_source.cosines.numpy(),
            "source_numbers": (of_source.numbers + first).numpy(),
            "target_cosines": of_target.cosines.numpy(),
            "target_numbers": of_target.numbers.numpy(),
        }
        write_arrays(self.path, found)


def search_tasks(work: Path, source: VectorStore, target: VectorStore, options: SearchOptions) -> list[SearchShard]:
    """The parts of a search."""
    folder = work / "neighbours" / f"{source.sentences.fingerprint}-{target.sentences.fingerprint}-k{options.k}"
    return [SearchShard(folder, source.paths, target.paths, number, options) for number in range(len(target.paths))]


def search_shards(
    work: Path, source: VectorStore, target: VectorStore, options: SearchOptions, run: RunTasks | None = None
) -> tuple[Neighbours, Neighbours]:
    """Exact neighbours of both sides; shards that were searched before are not searched again."""
    check_vectors(ShardedVectors(source.paths), ShardedVectors(target.paths), options.k)
    tasks = search_tasks(work, source, target, options)
    claim(tasks[0].folder, {f"{side} {key}": value for side, store in (("source", source), ("target", target))
                            for key, value in store.stamp.items()})  # fmt: skip
    (run or Processes())(tasks, "searching", None)
    of_source: Neighbours | None = None
    of_target = []
    for task in tasks:
        with np.load(task.path) as found:
            arrays = {key: torch.from_numpy(found[key]) for key in found.files}
        of_source = _better(of_source, Neighbours(arrays["source_cosines"], arrays["source_numbers"]), options.k)
        of_target.append((arrays["target_cosines"], arrays["target_numbers"]))
    assert of_source is not None
    cosines, numbers = (torch.cat(parts) for parts in zip(*of_target, strict=True))
    return of_source, Neighbours(cosines, numbers)


def _better(known: Neighbours | None, new: Neighbours, k: int) -> Neighbours:
    """The k nearest of both; the known ones have lower numbers."""
    if known is None:
        return new
    cosines, order = torch.cat((known.cosines, new.cosines), 1).sort(dim=1, descending=True, stable=True)
    numbers = torch.cat((known.numbers, new.numbers), 1).gather(1, order)
    return Neighbours(cosines[:, :k].contiguous(), numbers[:, :k].contiguous())
