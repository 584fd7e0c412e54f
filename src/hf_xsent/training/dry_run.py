"""A rehearsal: the real model on the real data for a few steps, then what the whole run would take."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.cost import peak_memory_mib

STEPS = 3  # the first one sets up and does not count


@dataclass(frozen=True)
class Forecast:
    """What the whole run would take."""

    steps: int
    seconds_per_step: float
    pairs_per_second: float
    peak_mib: int

    def __str__(self) -> str:
        hours = self.steps * self.seconds_per_step / 3600
        return (
            f"{self.steps:,} steps of {self.seconds_per_step:.2f} s, {self.pairs_per_second:.1f} pairs/s: "
            f"about {hours:.1f} hours; peak memory {self.peak_mib:,} MiB"
        )


class StepTimes(TrainerCallback):
    """The seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the watch."""
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop it, once the device is done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._started)


@contextmanager
def rehearsal(arguments: AlignmentTrainingArguments) -> Iterator[None]:
    """Few steps, nothing measured or saved, in a folder that goes away."""
    with TemporaryDirectory() as folder:
        arguments.output_dir = folder
        arguments.max_steps = STEPS
        arguments.eval_strategy = IntervalStrategy.NO
        arguments.save_strategy = SaveStrategy.NO
        arguments.eval_on_start = arguments.load_best_model_at_end = False
        arguments.early_stopping_patience = None
        arguments.report_to = []
        yield


def whole_steps(arguments: AlignmentTrainingArguments, pairs: int) -> int:
    """How many steps the run will have."""
    if arguments.max_steps > 0:
        return arguments.max_steps
    a_step = arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps
    return math.ceil(arguments.num_train_epochs * pairs / a_step)


def forecast(arguments: AlignmentTrainingArguments, steps: int, times: StepTimes) -> Forecast:
    """From the steps that were run."""
    seconds = statistics.median(times.seconds[1:] or times.seconds)
    a_step = arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps
    return Forecast(steps, seconds, a_step / seconds, peak_memory_mib())
