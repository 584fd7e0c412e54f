"""Estimate the time and memory of a full run from a few steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from tempfile import TemporaryDirectory

from transformers.trainer_utils import IntervalStrategy, SaveStrategy, SchedulerType

from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.callbacks import peak_memory_mib

_STEPS = 3  # of a dry run, unless the run has fewer; the first one is warm-up


@contextmanager
def short_run(arguments: AlignmentTrainingArguments) -> Iterator[AlignmentTrainingArguments]:
    """Yield arguments of a few steps in a temporary folder, without checkpoints and measurements."""
    short = copy(arguments)
    with TemporaryDirectory() as folder:
        short.output_dir = folder
        few = arguments.max_steps if arguments.max_steps > 0 else _STEPS
        short.max_steps, short.logging_steps = max(2, min(few, _STEPS)), 1
        short.logging_strategy = IntervalStrategy.STEPS
        short.eval_strategy = IntervalStrategy.NO
        short.save_strategy = SaveStrategy.NO
        short.eval_on_start = short.load_best_model_at_end = False
        short.early_stopping_patience = short.retention = short.largest_drop = None
        short.share_of_start, short.push_to_hub = 0.0, False
        short.lr_scheduler_type, short.lr_scheduler_kwargs = SchedulerType.CONSTANT, None
        short.report_to = []
        yield short


def pairs_per_step(arguments: AlignmentTrainingArguments, pairs: int) -> int:
    """Return the pairs of one optimizer step, over all processes; a step has no more than all ``pairs``."""
    batch = arguments.train_batch_size * arguments.world_size
    whole = batch * arguments.gradient_accumulation_steps
    return whole if pairs >= whole else pairs - pairs % min(batch, pairs or batch)


def count_steps(arguments: AlignmentTrainingArguments, pairs: int) -> int:
    """Return the number of steps of the full run."""
    if arguments.max_steps > 0:
        return arguments.max_steps
    return math.ceil(arguments.num_train_epochs * (pairs // pairs_per_step(arguments, pairs)))


def forecast(arguments: AlignmentTrainingArguments, steps: int, pairs: int, logs: Sequence[Mapping[str, float]]) -> str:
    """Describe the estimated cost of the full run, from the logs of a dry run."""
    step = seconds_per_step(arguments, pairs, logs)
    return (
        f"{steps:,} steps of {step:.2f} s, {pairs_per_step(arguments, pairs) / step:.1f} pairs/s: "
        f"about {readable_time(steps * step)}; peak memory {peak_memory_mib():,} MiB"
    )


def seconds_per_step(arguments: AlignmentTrainingArguments, pairs: int, logs: Sequence[Mapping[str, float]]) -> float:
    """Estimate the seconds of a step from the logs of a dry run, of which the first step is warm-up."""
    speeds = [log["pairs_per_second"] for log in logs if "pairs_per_second" in log]
    return pairs_per_step(arguments, pairs) / statistics.median(speeds[1:] or speeds)


def readable_time(seconds: float) -> str:
    """Format a duration.

    >>> readable_time(20), readable_time(400), readable_time(9000)
    ('1 minute', '7 minutes', '2.5 hours')
    """
    minutes = max(1, round(seconds / 60))
    if minutes >= 60:
        return f"{seconds / 3600:.1f} hours"
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
