"""What watches a run: a progress bar with pairs/s, one line a log, and one JSONL file of all metrics."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_xsent.files import write_text

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"
_SHOWN = ("loss", "eval_accuracy", "eval_f1", "pairs_per_second")


def _metrics_file(args: TrainingArguments) -> Path:
    return Path(str(args.output_dir)) / METRICS_FILE


class MetricsFile(TrainerCallback):
    """Appends every log to ``metrics.jsonl``; a resumed run first drops what came after its checkpoint."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the file anew, or cut it back to the checkpoint."""
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
        """One line, with the step first."""
        if state.is_world_process_zero and logs:
            with _metrics_file(args).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")


class EpochOfSampler(TrainerCallback):
    """Tells the sampler its epoch: in a resumed run of several processes, wrappers hide it from the Trainer."""

    def __init__(self) -> None:
        self.sampler: Any = None

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Before the epoch's first pair is drawn."""
        if self.sampler is not None:
            self.sampler.set_epoch(int(state.epoch or 0))


class EndOfStep(TrainerCallback):
    """Lets the model do what is due once after each step of the optimizer."""

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Before anything is saved or measured."""
        kwargs["model"].end_step()


class ProgressBar(TrainerCallback):
    """A bar where somebody looks at it, a log line now and then where a file does."""

    def __init__(self) -> None:
        self.bar: tqdm | None = None
        self.shown: dict[str, str] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar; tqdm keeps quiet where standard error is no terminal."""
        hidden = True if args.disable_tqdm or not state.is_world_process_zero else None
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step", disable=hidden)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """One step further."""
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
