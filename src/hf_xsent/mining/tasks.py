"""Work in parts, each of which leaves one file, whole or not at all: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from tqdm import tqdm

from hf_xsent.errors import OutputError
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


def save(path: Path, arrays: np.ndarray | dict[str, Any]) -> None:
    """Write one array, or several with their names, under a name of the process's own until all is written."""
    part = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}.part")
    with part.open("wb") as file:
        if isinstance(arrays, dict):
            np.savez(file, **arrays)
        else:
            np.save(file, arrays)
    part.replace(path)
    for left_by_a_kill in path.parent.glob(f"{path.name}.*.part"):
        left_by_a_kill.unlink(missing_ok=True)


def claim(folder: Path, stamp: Mapping[str, str]) -> None:
    """Say in the folder whose results it holds; a folder of others is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "made-from.json"
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")) != dict(stamp):
            raise OutputError(
                f"{folder} holds results of another model or other sentences: give another --work folder or delete it"
            )
        return
    part = path.with_suffix(f".{time.time_ns()}.part")
    part.write_text(json.dumps(dict(stamp), indent=1), encoding="utf-8")
    part.replace(path)
