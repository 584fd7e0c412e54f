"""Run work in shards, each of which writes one complete file, so that an interrupted run continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from tqdm import tqdm

from hf_xsent.models.encodes import SupportsEncode


class Shard(Protocol):
    """One part of the work; it is pickled to the process that runs it."""

    @property
    def path(self) -> Path:
        """Return the file that it writes."""

    def run(self, model: SupportsEncode | None) -> None:
        """Compute and write the file."""


RunShards = Callable[[Sequence[Shard], str, "SupportsEncode | None"], None]


@dataclass(frozen=True)
class Processes:
    """Processes that share a work folder, as torchrun starts them; rank r runs every count-th shard from r."""

    rank: int = 0
    count: int = 1

    def __call__(self, shards: Sequence[Shard], description: str, model: SupportsEncode | None = None) -> None:
        """Run this rank's missing shards, then wait for those of the others."""
        missing = [shard for shard in shards[self.rank :: self.count] if not shard.path.is_file()]
        for shard in tqdm(missing, desc=description, unit=" shards", disable=True if self.rank else None):
            shard.run(model)
        while not all(shard.path.is_file() for shard in shards):
            time.sleep(0.2)


def default_device(process: int = 0) -> str:
    """Choose a GPU for a process of this machine, or the CPU if it has none; processes share GPUs in turn."""
    return f"cuda:{process % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
