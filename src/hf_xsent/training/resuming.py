"""Decide where a resumed run stands, and keep its own settings of the optimizer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import SaveStrategy

from hf_xsent.errors import OutputError
from hf_xsent.runs.run import checkpoints_of, missing_from_checkpoint
from hf_xsent.settings.declare import settings_of
from hf_xsent.settings.model import EncoderSettings


def is_on_schedule(state: TrainerState, arguments: TrainingArguments) -> bool:
    """Return whether a run saves a checkpoint at the step of this state without a signal, too."""
    if state.global_step >= state.max_steps or arguments.save_strategy == SaveStrategy.BEST:
        return arguments.save_strategy != SaveStrategy.NO
    if arguments.save_strategy == SaveStrategy.EPOCH:
        return stops_early(state, arguments) or (state.epoch is not None and float(state.epoch).is_integer())
    return arguments.save_strategy == SaveStrategy.STEPS and state.global_step % state.save_steps == 0


def stops_early(state: TrainerState, arguments: TrainingArguments) -> bool:
    """Return whether the last N dev measurements were no new best; each step counts once, and the start does not."""
    patience: int = getattr(arguments, "early_stopping_patience", None) or 0
    name = deciding_metric(arguments)
    values = [*{log["step"]: log[name] for log in state.log_history if log["step"] and name in log}.values()]
    best = max if arguments.greater_is_better else min
    return bool(patience and values) and len(values) - 1 - values.index(best(values)) >= patience


def deciding_metric(arguments: TrainingArguments) -> str:
    """Return the name in the logs of the metric that decides which checkpoint is best."""
    return f"eval_{str(arguments.metric_for_best_model).removeprefix('eval_')}"


def keep_comparable(state: TrainerState, arguments: TrainingArguments, changed: Collection[str]) -> None:
    """Forget measurements of other dev pairs or by another pooling, length or prompt.

    Find the best step again, among those with a checkpoint, since another metric may decide now.
    """
    measuring = settings_of(EncoderSettings)
    if any("dev" in name.split() or name.partition(".")[0] in measuring for name in changed):
        state.log_history = [
            {name: value for name, value in log.items() if not name.startswith("eval_")} for log in state.log_history
        ]
    name, saved = deciding_metric(arguments), {path.name for path in checkpoints_of(str(arguments.output_dir))}
    values = {
        log["step"]: log[name]
        for log in state.log_history
        if name in log and f"checkpoint-{log['step']}" in saved
        if is_on_schedule(_state_at(log, state), arguments)
    }
    choose: Any = max if arguments.greater_is_better else min
    best = choose(reversed(values), key=values.__getitem__, default=None)  # of equal ones, the latest
    state.best_metric, state.best_global_step = values.get(best), best


def _state_at(log: dict[str, float], state: TrainerState) -> TrainerState:
    """Return the state at the step of a measurement."""
    until = [each for each in state.log_history if each["step"] <= log["step"]]
    return replace(state, global_step=int(log["step"]), epoch=log.get("epoch", 0.0), log_history=until)


def check_complete(checkpoint: Path) -> None:
    """Raise an error if a checkpoint lacks weights or a state, without which transformers would start."""
    missing = [name for name in (OPTIMIZER_NAME, SCHEDULER_NAME) if not (checkpoint / name).is_file()]
    missing += [] if [*checkpoint.glob("rng_state*.pth")] else ["rng_state.pth"]
    missing += [] if [*checkpoint.glob("model*.safetensors")] else ["model.safetensors"]
    if missing:
        raise missing_from_checkpoint(checkpoint, missing)


@contextmanager
def loading_state(what: str, checkpoint: str | None) -> Iterator[None]:
    """Convert errors of a checkpoint's file into one that names the checkpoint; torch raises many types."""
    try:
        yield
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OutputError(
            f"{what} in {checkpoint} is damaged or does not fit this run ({reason}): resume with the settings of that "
            "run; with the same settings, delete the checkpoint to resume from the one before, or give --overwrite"
        ) from error


def keep_settings(optimizer: Any, scheduler: Any, groups: list[dict[str, Any]]) -> None:
    """Restore an optimizer's settings, which its checkpoint has replaced by earlier ones, and the rate of this step."""
    for number, (group, settings) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        if type(scheduler) is LambdaLR:  # others, such as ReduceLROnPlateau, compute a rate from the last one
            scheduler.base_lrs[number] = settings["initial_lr"]
            settings["lr"] = settings["initial_lr"] * scheduler.lr_lambdas[number](scheduler.last_epoch)
            scheduler.get_last_lr()[number] = settings["lr"]  # which is logged
            group.update(settings)
        else:
            group.update({**settings, "lr": group["lr"]})
