"""Several processes of one group, as a launcher would start them, and what each of them answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def answers_of(world: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``work(rank, *arguments)`` returns in each of ``world`` processes: tensors, numbers and dicts of them."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_work, (world, folder, work, arguments), nprocs=world, start_method="spawn")
        return [torch.load(_answer(folder, rank)) for rank in range(world)]


def _work(rank: int, world: int, folder: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    torch.save(work(rank, *arguments), _answer(folder, rank))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # an interpreter that leaves properly aborts once in fifty times, on a thread of gloo


def _answer(folder: str, rank: int) -> Path:
    return Path(folder) / f"{rank}.pt"
