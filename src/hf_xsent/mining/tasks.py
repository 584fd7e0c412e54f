"""Work in parts, each of which leaves one file, whole or not at all: a run that was stopped goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from tqdm import tqdm

from hf_xsent import files
from hf_xsent.models.encodes import SupportsEncode


class Task(Protocol):
    """A part of the work; what it needs but the model travels with it, so that any process may run it."""

    @property
    def path(self) -> Path:
        """The file that it leaves."""

    def run(self, model: SupportsEncode | None) -> None:
        """Do it."""


RunTasks = Callable[[Sequence[Task], str, "SupportsEncode | None"], None]


@dataclass(frozen=True)
class Processes:
    """Of several processes that share a folder, as torchrun starts them, each takes every so many tasks."""

    rank: int = 0
    count: int = 1

    def __call__(self, tasks: Sequence[Task], doing: str, model: SupportsEncode | None = None) -> None:
        """Run what is missing of one's own, and return when all is there."""
        missing = [task for number, task in enumerate(tasks) if number % self.count == self.rank]
        missing = [task for task in missing if not task.path.is_file()]
        hidden = None if self.rank == 0 else True
        for task in tqdm(missing, desc=doing, unit=" shards", disable=hidden):
            task.run(model)
        while not all(task.path.is_file() for task in tasks):  # other processes are still at work
            time.sleep(0.2)


def default_device(process: int = 0) -> str:
    """A GPU if there is one: of the processes of a machine each has its own, or as few as can be share one."""
    return f"cuda:{process % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"


def claim(folder: Path, stamp: Mapping[str, str]) -> None:
    """Record which model and sentences a folder's results are of; refuse a folder of others."""
    files.claim(folder, stamp, "results", "give another --work folder")
