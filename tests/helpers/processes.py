"""Several processes of one group, as a launcher would start them, and what each of them answers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate.state import DistributedType, GradientState
from forks import CONTEXT


def start(world: int, work: Callable[..., None], *arguments: Any) -> None:
    """Run ``work(rank, *arguments)`` in this many processes, and wait for them."""
    mp.start_processes(work, arguments, nprocs=world, start_method=CONTEXT.get_start_method())


def answers_of(world: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``work(rank, *arguments)`` returns in each of ``world`` processes: tensors, numbers and dicts of them."""
    with tempfile.TemporaryDirectory() as folder:
        start(world, _work, world, folder, work, arguments)
        return [torch.load(_answer(folder, rank)) for rank in range(world)]


def caching_trainer() -> Any:
    """What gradient caching needs of a Trainer; accelerate knows processes only where a launcher started them."""
    accelerator = SimpleNamespace(
        unwrap_model=lambda model: model.module,
        no_sync=lambda model: model.no_sync(),
        autocast=nullcontext,
        backward=lambda loss: loss.backward(),
        gradient_state=GradientState(),
        sync_gradients=True,
        distributed_type=DistributedType.MULTI_CPU,
    )
    device = torch.device("cpu")
    return SimpleNamespace(
        accelerator=accelerator, args=SimpleNamespace(device=device), current_gradient_accumulation_steps=1
    )


def _work(rank: int, world: int, folder: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    meeting, limit = f"file://{folder}/meeting", timedelta(minutes=2)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=limit)
    torch.save(work(rank, *arguments), _answer(folder, rank))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # an interpreter that leaves properly aborts once in fifty times, on a thread of gloo


def _answer(folder: str, rank: int) -> Path:
    return Path(folder) / f"{rank}.pt"
