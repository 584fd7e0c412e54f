"""Watch a run: a progress bar with pairs/s, a JSONL file of all metrics, and seconds and memory spent so far."""

from __future__ import annotations

import json
import logging
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_xsent.files import write_text

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
_SHOWN = ("loss", "eval_accuracy", "eval_f1", "pairs_per_second")


def _metrics_file(args: TrainingArguments) -> Path:
    return Path(str(args.output_dir)) / METRICS_FILE


class MetricsFile(TrainerCallback):
    """Append every log to ``metrics.jsonl``; a resumed run first drops the lines after its checkpoint."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Empty the file, or cut it back to the checkpoint."""
        if not state.is_world_process_zero:
            return
        path = _metrics_file(args)
        lines = path.read_text(encoding="utf-8").splitlines() if state.global_step and path.is_file() else []
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= state.global_step]
        write_text(path, (line + "\n" for line in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append one line, with the step first."""
        if state.is_world_process_zero and logs:
            with _metrics_file(args).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")


class EpochOfSampler(TrainerCallback):
    """Set the sampler's epoch: in a resumed run of several processes, wrappers hide the sampler from the Trainer."""

    def __init__(self) -> None:
        self.sampler: Any = None

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Set it before the epoch's first pair is drawn."""
        if self.sampler is not None:
            self.sampler.set_epoch(int(state.epoch or 0))


class EndOfStep(TrainerCallback):
    """Call the model's ``end_step`` after each step of the optimizer."""

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Call it before anything is saved or measured."""
        kwargs["model"].end_step()


class ProgressBar(TrainerCallback):
    """Show a progress bar on a terminal, and log lines everywhere."""

    def __init__(self) -> None:
        self.bar: tqdm | None = None
        self.shown: dict[str, str] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar, which tqdm hides where standard error is no terminal."""
        hidden = True if args.disable_tqdm or not state.is_world_process_zero else None
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step", disable=hidden)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Advance the bar."""
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the figures that matter beside the bar, and log them."""
        figures = {key: f"{logs[key]:.4g}" for key in _SHOWN if logs and key in logs}
        if not figures or not state.is_world_process_zero:
            return
        logger.info("step %d: %s", state.global_step, ", ".join(f"{key} {value}" for key, value in figures.items()))
        self.shown |= figures
        if self.bar is not None:
            self.bar.set_postfix(self.shown)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        if self.bar is not None:
            self.bar.close()


class CostCounter(TrainerCallback):
    """Count wall-clock seconds, CPU seconds and peak memory of one process's training, ``not_counted`` parts aside."""

    def __init__(self) -> None:
        self._seconds = self._cpu_seconds = 0.0
        self._peak_mib = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clocks; a resumed run goes on from its checkpoint's log."""
        before = next((log for log in reversed(state.log_history) if "cpu_seconds" in log), {})
        self._seconds = time.perf_counter() - before.get("seconds", 0.0)
        self._cpu_seconds = time.process_time() - before.get("cpu_seconds", 0.0)
        self._peak_mib = before.get("peak_mib", 0)

    def so_far(self) -> dict[str, float]:
        """Return the figures for the log."""
        return {
            "seconds": round(time.perf_counter() - self._seconds, 3),
            "cpu_seconds": round(time.process_time() - self._cpu_seconds, 3),
            "peak_mib": max(self._peak_mib, peak_memory_mib()),
        }

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """Stop the clocks meanwhile: measuring on dev is no training."""
        seconds, cpu_seconds = time.perf_counter(), time.process_time()
        yield
        self._seconds += time.perf_counter() - seconds
        self._cpu_seconds += time.process_time() - cpu_seconds


def peak_memory_mib() -> int:
    """Return the peak memory of this process: on the GPU if there is one, else in RAM."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() >> 20
    try:  # ru_maxrss also counts what the parent held when it started this process
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
