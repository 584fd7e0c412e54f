"""Run work in shards; each writes one file, so that a resumed run computes only missing or damaged files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from hf_xsent.logs import Progress
from hf_xsent.models.encode_interface import SupportsEncode

logger = logging.getLogger(__name__)


class Shard(Protocol):
    """One part of the work; a runner may pickle it for another process."""

    @property
    def path(self) -> Path:
        """Return the file that it writes."""

    def is_complete(self) -> bool:
        """Return whether the file exists and can be read."""

    def run(self, model: SupportsEncode | None) -> None:
        """Compute and write the file."""


Runner = Callable[
    [Sequence[Shard], str, "SupportsEncode | None"], None
]  # gets the shards, a label for progress, and the model


@dataclass(frozen=True)
class ProcessRunner:
    """A runner for processes that share a work folder, as with torchrun: rank r of n runs shards r, r + n and so on."""

    rank: int = 0
    count: int = 1

    def __call__(self, shards: Sequence[Shard], description: str, model: SupportsEncode | None = None) -> None:
        """Run this rank's missing shards, then wait for those of the others."""
        missing = missing_shards(shards[self.rank :: self.count])
        for shard in Progress(missing, desc=description, unit=" shards", disable=True if self.rank else None):
            shard.run(model)
        waiting = [shard for number, shard in enumerate(shards) if number % self.count != self.rank]
        while waiting := [shard for shard in waiting if not shard.is_complete()]:
            time.sleep(0.2)


def missing_shards(shards: Iterable[Shard]) -> list[Shard]:
    """Return the shards to run; warn of those whose file is damaged."""
    missing = []
    for shard in shards:
        if not shard.is_complete():
            if shard.path.exists():
                logger.warning("%s is damaged: it is computed again", shard.path)
            missing.append(shard)
    return missing


def default_device(process: int = 0) -> str:
    """Return the GPU of a local rank, shared if there are more processes than GPUs; without GPUs, the CPU."""
    return f"cuda:{process % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
