"""Callbacks of training: progress bar, metrics file, cost, and a checkpoint on SIGTERM or Ctrl-C."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from hf_xsent.data.sampling.mixing import ProcessBatches
from hf_xsent.errors import Interrupted, Stopped
from hf_xsent.files import append_text, write_text
from hf_xsent.logs import Progress
from hf_xsent.runs.origin import Origin
from hf_xsent.runs.run import METRICS_FILE
from hf_xsent.tensors.gathering import max_over_processes

logger = logging.getLogger(__name__)

_ONE_CTRL_C = 1.0  # seconds: torchrun repeats the signal that the terminal has sent to all processes already
_WORKER_LIVES = 5.0  # seconds after SIGTERM
_EASY = 95.0  # dev accuracy
_SHOWN = ("loss", "eval_accuracy", "eval_beside", "eval_f1", "pairs_per_second")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the logs of a run, each with its step; skip lines that a killed process has not completed."""
    logs = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        with suppress(ValueError):
            logs.append(json.loads(line))
    return logs


class MetricsFile(TrainerCallback):
    """Append each log to ``metrics.jsonl``; a resumed run first deletes the lines after its checkpoint."""

    started = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the file, with the lines up to the checkpoint if the run resumes."""
        if state.is_world_process_zero:
            path = Path(args.output_dir) / METRICS_FILE
            logs = read_metrics(path) if state.global_step else []
            logs = [log for log in logs if log.get("step", 0) <= state.global_step]
            if (last := state.log_history[-1:]) and last[0] in logs:  # the logs after it have the same step
                logs = logs[: logs.index(last[0]) + 1]
            write_text(path, (json.dumps(log) + "\n" for log in logs))
        self.started = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log before each checkpoint, also of a signal: a resumed run adds to the cost, and logs the steps after it.

        Whether a checkpoint is the best is known only after it is measured.
        """
        control.should_log |= control.should_save or (args.save_strategy == "best" and control.should_evaluate)

    on_epoch_end = on_step_end

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Append one line, with the step first; before training, the output folder may hold another run."""
        if state.is_world_process_zero and logs and self.started:
            append_text(Path(args.output_dir) / METRICS_FILE, json.dumps({"step": state.global_step, **logs}) + "\n")


class StartOfEpoch(TrainerCallback):
    """Set the epoch, and how many batches a resumed run skips, instead of the Trainer's loop."""

    batches: ProcessBatches | None = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set both before the first pair is sampled."""
        if self.batches is not None:
            accumulated = args.gradient_accumulation_steps
            epoch, steps = divmod(state.global_step, math.ceil(len(self.batches) / accumulated))
            self.batches.sampler.set_epoch(epoch)
            self.batches.skipped = 0 if args.ignore_data_skip else steps * accumulated


class EndOfStep(TrainerCallback):
    """Call the model's ``end_step`` after each step of the optimizer."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Call ``end_step``, before a checkpoint or a measurement."""
        kwargs["model"].end_step()
        kwargs["model"].encoder.origin = Origin()  # until the run is finished


class DevBeforeTraining(TrainerCallback):
    """Warn if dev accuracy before the first step leaves no room, or if no step of training is better."""

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Warn of an accuracy before training that is almost perfect."""
        measured = [metrics[name] for name in ("eval_accuracy", "eval_beside") if name in (metrics or {})]
        accuracy = min(measured, default=0.0)
        if state.global_step == 0 and accuracy > _EASY and state.is_world_process_zero:
            logger.warning(
                "all dev measures are %.2f or more before training: these pairs are too easy to show what it gains; "
                "give harder ones as --dev, or more --dev_pairs, and compare start and result with hf-xsent evaluate",
                accuracy,
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Warn if the best accuracy is that of the start."""
        measured = {log["step"]: log for log in state.log_history if "eval_accuracy" in log}
        start, trained = measured.pop(0, None), measured.values()
        names = [name for name in ("eval_accuracy", "eval_beside") if name in (start or ())]
        gains = [log[name] > start[name] for log in trained for name in names] if start else []
        if start and trained and not any(gains) and state.is_world_process_zero:
            logger.warning(
                "dev accuracy is not above that before training: %.2f at the start, at most %.2f afterwards",
                start["eval_accuracy"],
                max(log["eval_accuracy"] for log in trained),
            )


class ProgressBar(TrainerCallback):
    """Show the progress of training, and log its figures."""

    bar: Progress | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the bar at the first step: a measurement of the start takes no part in the estimated time left."""
        if self.bar is None:
            hidden = True if args.disable_tqdm or not state.is_world_process_zero else None
            self.bar = Progress(
                total=state.max_steps, initial=state.global_step, desc="training", unit=" steps", disable=hidden
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the bar; close it after the last step, and say what follows."""
        if self.bar is None:
            return
        self.bar.update(state.global_step - self.bar.n)
        if state.global_step >= state.max_steps:
            self.on_train_end(args, state, control)
            doing = [("measuring the dev pairs", control.should_evaluate), ("saving a checkpoint", control.should_save)]
            if state.is_world_process_zero and (follows := [what for what, requested in doing if requested]):
                logger.info("step %d was the last: %s", state.global_step, ", then ".join(follows))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Log loss, dev scores and speed."""
        figures = [f"{key} {logs[key]:.4g}" for key in _SHOWN if logs and key in logs]
        if figures and state.is_world_process_zero:
            logger.info("step %d: %s", state.global_step, ", ".join(figures))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        if self.bar is not None:
            self.bar.close()
        self.bar = None


class StopOnSignal(TrainerCallback):
    """On SIGTERM, which spot machines send, and on Ctrl-C, finish the step and save a checkpoint; then stop.

    If one process receives the signal, ``requested`` becomes true in all. A second Ctrl-C stops at once.
    """

    def __init__(self) -> None:
        self.received = self.requested = 0  # number of the signal
        self._received_at = 0.0
        self._previous: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Install the signal handlers, if this is the main thread; others cannot."""
        self.received = self.requested = 0
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._receive) for number in (signal.SIGTERM, signal.SIGINT)
            }

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Request a checkpoint in all processes if one of them received a signal."""
        if received := max_over_processes(self.received, args.device):
            self.requested = received
            control.should_save = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the earlier signal handlers."""
        self.restore()

    def restore(self) -> None:
        """Restore the earlier signal handlers, if they are not restored yet; also called after an error."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def error(self, what: str) -> Stopped:
        """Return the error that ends the run."""
        if self.requested == signal.SIGINT:
            return Interrupted(f"stopped by Ctrl-C {what}")
        return Stopped(f"stopped by SIGTERM {what}")

    def _receive(self, number: int, frame: Any) -> None:
        if number == signal.SIGINT and not self.received:
            logger.warning("finishing this step; Ctrl-C again stops at once")
        elif number == signal.SIGINT and time.monotonic() - self._received_at > _ONE_CTRL_C:
            signal.default_int_handler(number, frame)
        if not self.received:
            self._received_at = time.monotonic()
        self.received = number


def outlive_sigterm(_: int) -> None:
    """Let a worker of a DataLoader live some seconds after SIGTERM, which may reach all processes.

    Its trainer ends the step meanwhile, and takes an exit code of 0 for no failure.
    """

    def end_later(*_: Any) -> None:
        timer = threading.Timer(_WORKER_LIVES, os._exit, (0,))
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, end_later)


class SaveAfterEpoch(TrainerCallback):
    """Save the checkpoint of an epoch's last step after the epoch's measurement: a run that resumes makes none."""

    def __init__(self) -> None:
        self._postponed = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Postpone the checkpoint of the last step of an epoch or of the run."""
        is_last = control.should_training_stop or float(state.epoch).is_integer()
        self._postponed = is_last and control.should_save
        control.should_save &= not is_last

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Request the postponed checkpoint."""
        control.should_save |= self._postponed


class CostCounter(TrainerCallback):
    """Count the wall-clock seconds, CPU seconds and peak memory of training in this process."""

    _seconds = _cpu_seconds = _peak_mib = _lap = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clocks; a resumed run adds the cost logged up to its checkpoint."""
        before: dict[str, float] = next((log for log in reversed(state.log_history) if "cpu_seconds" in log), {})
        self._lap = before.get("seconds", 0.0)
        self._seconds = time.perf_counter() - self._lap
        self._cpu_seconds = time.process_time() - before.get("cpu_seconds", 0.0)
        self._peak_mib = before.get("peak_mib", 0)

    def lap(self) -> float:
        """Return the seconds of training since the last call."""
        before, self._lap = self._lap, time.perf_counter() - self._seconds
        return self._lap - before

    def so_far(self) -> dict[str, float]:
        """Return the cost up to now, for the log."""
        return {
            "seconds": round(time.perf_counter() - self._seconds, 3),
            "cpu_seconds": round(time.process_time() - self._cpu_seconds, 3),
            "peak_mib": max(self._peak_mib, peak_memory_mib()),
        }

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """Stop the clocks, for measurements on dev."""
        seconds, cpu_seconds = time.perf_counter(), time.process_time()
        yield
        self._seconds += time.perf_counter() - seconds
        self._cpu_seconds += time.process_time() - cpu_seconds


def peak_memory_mib() -> int:
    """Return the peak memory of this process: on the GPU if there is one, else in RAM."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() >> 20
    try:  # ru_maxrss includes the parent's memory at the fork
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
