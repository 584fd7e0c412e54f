"""Run work in shards; each writes one file, so that an interrupted run resumes at the first missing file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from hf_xsent.logs import Progress
from hf_xsent.models.encodes import SupportsEncode


class Shard(Protocol):
    """One part of the work; a runner may pickle it for another process."""

    @property
    def path(self) -> Path:
        """Return the file that it writes."""

    def run(self, model: SupportsEncode | None) -> None:
        """Compute and write the file."""


Runner = Callable[[Sequence[Shard], str, "SupportsEncode | None"], None]  # runs shards; the text is for progress


@dataclass(frozen=True)
class Processes:
    """A runner for processes that share a work folder, as with torchrun: rank r of n runs shards r, r + n and so on."""

    rank: int = 0
    count: int = 1

    def __call__(self, shards: Sequence[Shard], description: str, model: SupportsEncode | None = None) -> None:
        """Run this rank's missing shards, then wait for those of the others."""
        missing = [shard for shard in shards[self.rank :: self.count] if not shard.path.is_file()]
        for shard in Progress(missing, desc=description, unit=" shards", disable=True if self.rank else None):
            shard.run(model)
        while not all(shard.path.is_file() for shard in shards):
            time.sleep(0.2)


def default_device(process: int = 0) -> str:
    """Return the device of a process: a GPU by its local rank, shared if GPUs are fewer, or the CPU without GPUs."""
    return f"cuda:{process % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
