"""What training has cost so far, over all the pieces of a run that was stopped and went on."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Cost(TrainerCallback):
    """Seconds on the clock, CPU seconds and peak memory of one process's training, without what is ``not_counted``."""

    def __init__(self) -> None:
        self._seconds = self._cpu_seconds = 0.0
        self._peak_mib = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the watches; a run that goes on counts from what its checkpoint's log says."""
        before = next((log for log in reversed(state.log_history) if "cpu_seconds" in log), {})
        self._seconds = time.perf_counter() - before.get("seconds", 0.0)
        self._cpu_seconds = time.process_time() - before.get("cpu_seconds", 0.0)
        self._peak_mib = before.get("peak_mib", 0)

    def so_far(self) -> dict[str, float]:
        """For the log."""
        return {
            "seconds": round(time.perf_counter() - self._seconds, 3),
            "cpu_seconds": round(time.process_time() - self._cpu_seconds, 3),
            "peak_mib": max(self._peak_mib, peak_memory_mib()),
        }

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """Stop the watches meanwhile: measuring on dev is no training."""
        seconds, cpu_seconds = time.perf_counter(), time.process_time()
        yield
        self._seconds += time.perf_counter() - seconds
        self._cpu_seconds += time.process_time() - cpu_seconds


def peak_memory_mib() -> int:
    """The most memory this process ever held: of the GPU if there is one, else of the machine."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() >> 20
    try:  # ru_maxrss also counts what the parent held when it started this process
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
