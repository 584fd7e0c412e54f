"""Train in a guarded output folder: checkpoints and the model are renamed into place; a signal saves and stops."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NoReturn

import torch
from accelerate.utils import broadcast_object_list
from transformers import TrainingArguments, trainer
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, TrainerState
from transformers.trainer_utils import SaveStrategy, TrainOutput

from hf_xsent.compat import keep_freed_memory
from hf_xsent.errors import OutputError, RecipeError, TrainingError
from hf_xsent.files import move_into_place, remove
from hf_xsent.models.loading import forget_last_call
from hf_xsent.runs.origin import Origin
from hf_xsent.runs.run import UNFINISHED, Run, RunState, checkpoints_of
from hf_xsent.training.callbacks import MetricsFile, ProgressBar, SaveAfterEpoch, StopOnSignal
from hf_xsent.training.conflicts import FOLLOW_METRIC, schedule_options
from hf_xsent.training.finite_trainer import FiniteTrainer
from hf_xsent.training.hub_trainer import HubTrainer
from hf_xsent.training.identity import identify_training
from hf_xsent.training.resuming import (
    check_complete,
    deciding_metric,
    is_on_schedule,
    keep_comparable,
    keep_settings,
    loading_state,
    stops_early,
)

logger = logging.getLogger(__name__)


class SavingTrainer(FiniteTrainer, HubTrainer):
    """Train in a `Run`; on SIGTERM or Ctrl-C, save a checkpoint and stop; log to a progress bar and a file of metrics.

    ``saves_run=False`` writes metrics only.
    """

    saves_checkpoint = False  # while a checkpoint is being written
    _resumed: TrainerState | None = None  # of the checkpoint to resume from
    run: Any = None  # the Run of the last call of train
    _own_optimizer: Any = None  # of an earlier call, with the settings and the moments of its run
    _builds_optimizer = True  # by its settings; another's groups may count steps, or change by the schedule

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.saves_run = self.args.save_strategy != SaveStrategy.NO
        self._stop = StopOnSignal()
        self.add_callback(self._stop)
        for default in (PrinterCallback, trainer.DEFAULT_PROGRESS_CALLBACK):  # a notebook has its own
            self.remove_callback(default)
        self.add_callback(ProgressBar)
        self.add_callback(MetricsFile)
        self.add_callback(SaveAfterEpoch)  # last, since others request checkpoints

    def identity(self) -> dict[str, Any]:
        """Return what decides the results of training, by name."""
        return identify_training(self.args)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        *args: Any,
        allow_changes: bool = False,
        overwrite: bool = False,
        run: Run | None = None,
        **kwargs: Any,
    ) -> TrainOutput:
        """Train, and save the model; the output folder must be new or empty.

        ``resume_from_checkpoint=True`` continues the run in the output folder (a path: its newest checkpoint), which
        must have the same settings and data; ``allow_changes=True`` continues it with others, which are recorded.
        ``overwrite=True`` replaces the run in the output folder. ``run`` is a run that says this itself.
        """
        folder = Path(str(self.args.output_dir))
        holds_run = RunState.read(folder) is not None or checkpoints_of(folder)
        if resume_from_checkpoint is True and run is None and not holds_run:
            raise OutputError(f"no checkpoint in {folder} to resume from: train without resume_from_checkpoint")
        if self.optimizer is self._own_optimizer:
            self.optimizer, self.model_wrapped = None, self.model
        given, origin = self.optimizer, Origin.of(self.model)
        self._builds_optimizer = given is None
        start = origin.name if origin.facts is None else None  # else the weights are in memory
        self.run = run = run or Run(folder, resume_from_checkpoint or False, allow_changes, overwrite, start)
        with self._training(run, self.saves_run) as (checkpoint, changed):
            try:
                self._resume(checkpoint, changed)
                self.before_training()
                output = super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)
                self.after_training(str(folder) if self.saves_run else None)
            finally:
                self._stop.restore()
                self._own_optimizer = None if given is not None else self.optimizer
            if self.saves_run:
                self._save_run(run)
        if (problem := self.problem()) is not None:
            raise TrainingError(problem)
        if self.saves_run and self.args.push_to_hub:
            self.push_to_hub()
        return output

    def before_training(self) -> None:
        """Prepare the run, which starts or resumes; on a CPU, let steps reuse freed memory."""
        if self.args.device.type == "cpu":
            keep_freed_memory()

    def use_averaged_weights(self) -> None:
        """Let an optimizer that averages weights put these into the model, as transformers does before it measures."""
        if callable(average := getattr(self.optimizer, "eval", None)):
            average()

    def after_training(self, folder: str | None) -> None:
        """Complete the trained weights before they are saved in a folder, if they are."""

    def problem(self) -> str | None:
        """Return why the trained model must not be used, if so; it is saved, but not uploaded then."""
        return None

    def write_card(self, folder: Path) -> None:
        """Write the card of the model that a folder holds, in the process that saves."""

    @contextmanager
    def _training(self, run: Run, saves: bool) -> Iterator[tuple[str | Path | None, Collection[str]]]:
        """Guard the output folder in the process that saves.

        Yield in all processes the checkpoint to resume from, and the names of what has changed since.
        """
        if not saves:
            run.check_holds_no_run("metrics")
            yield run.find_checkpoint(), ()
            return
        with ExitStack() as stack:
            answer: list[Any] = [None, (), None]  # the last is an error
            if self.args.should_save:
                try:
                    stack.enter_context(run.training(self.identity()))
                    answer[:2] = run.checkpoint, run.changed
                except OutputError as error:
                    answer[2] = error
            if self.args.world_size > 1:
                broadcast_object_list(answer)
            if answer[2] is not None:
                raise answer[2]
            yield answer[0], answer[1]

    def _save_run(self, run: Run) -> None:
        self.save_model(str(run.unfinished), _internal_call=True)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            self.write_card(run.unfinished)
            run.place_model()
            run.finish(self.state.global_step, self.problem())
            self._remove_checkpoint_of_signal()
            self._rotate_checkpoints(self.state.best_model_checkpoint)  # a killed run may have left surplus ones
            best = self.state.best_global_step if self.args.load_best_model_at_end else None
            step = f"the best step, {best}," if best is not None else f"step {self.state.global_step}"
            logger.info("the model of %s is in %s", step, run.folder)
        self.accelerator.wait_for_everyone()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save model and tokenizer into a folder; without one, into the output folder, renamed when complete."""
        if output_dir is None:
            self.check_trained()
        forget_last_call(self.processing_class)
        run = Run(str(self.args.output_dir))
        folder = run.unfinished if output_dir is None else Path(output_dir)
        if self.args.should_save and output_dir is None:
            remove(folder)  # of a killed run, whose files are not this model's
        super().save_model(str(folder), _internal_call=True)
        if self.args.should_save and not self.saves_checkpoint:
            (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle, which can run code when opened
        if self.args.should_save and output_dir is None:
            run.place_model()

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        """Build the optimizer; raise an error if the model has none of its target modules."""
        try:
            return super().create_optimizer(model)
        except (ValueError, re.error) as error:
            if (modules := self.args.optim_target_modules) is None:
                raise
            raise RecipeError(
                f"optim_target_modules {modules!r} fits no linear layer of this model: give a list of parts of names, "
                "a regular expression of whole names, or all-linear"
            ) from error

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Build the schedule of the learning rate."""
        options: Any = self.args.lr_scheduler_kwargs
        self.args.lr_scheduler_kwargs = schedule_options(self.args, num_training_steps)
        if self.args.lr_scheduler_type in FOLLOW_METRIC:  # torch takes a rise of the metric for a worse one
            self.args.lr_scheduler_kwargs = {"mode": "max" if self.args.greater_is_better else "min", **(options or {})}
        if (
            self.args.lr_scheduler_type == "polynomial"
            and self.args.get_warmup_steps(num_training_steps) == num_training_steps
        ):
            num_training_steps += 1  # transformers divides by the steps after the warm-up
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        finally:
            self.args.lr_scheduler_kwargs = options

    def create_accelerator_and_postprocess(self) -> None:
        """Create the accelerator; transformers changes its settings, of which the recipe has those that were stated."""
        stated, self.args.accelerator_config = self.args.accelerator_config, deepcopy(self.args.accelerator_config)
        super().create_accelerator_and_postprocess()
        self.args.accelerator_config = stated

    # Checkpoints

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Save, rename the folder when all processes have written their part, and raise ``Stopped`` after a signal."""
        if not self.saves_run:
            self._raise_stopped("save_strategy no has saved nothing")
        folder, name = Path(self._get_output_dir(trial)), f"checkpoint-{self.state.global_step}"
        unfinished = folder / UNFINISHED
        if self.args.should_save:
            remove(unfinished)
        self.accelerator.wait_for_everyone()
        self.saves_checkpoint = True
        try:
            super()._save_checkpoint(model, trial)
            if self.state.best_global_step == self.state.global_step:
                self.state.best_model_checkpoint = str(folder / name)
            if self.args.should_save:
                self.state.save_to_json(str(unfinished / name / TRAINER_STATE_NAME))
        finally:
            self.saves_checkpoint = False
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            move_into_place(unfinished / name, folder / name)
            remove(unfinished)
            self._remove_checkpoint_of_signal()
            if not self._stop.requested:  # this checkpoint may go when the run resumes
                self._rotate_checkpoints(self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()
        if self._stop.requested:
            self._raise_stopped("continue with --resume (of an AlignmentTrainer: train(resume_from_checkpoint=True))")

    def _remove_checkpoint_of_signal(self) -> None:
        """Delete the checkpoint from which the run resumed, if an uninterrupted run has none at its step."""
        last = self._resumed
        if last is None:
            return
        best = self.args.save_strategy != SaveStrategy.BEST or last.global_step == last.best_global_step
        if not (best and is_on_schedule(last, self.args)):
            remove(Path(str(self.args.output_dir)) / f"checkpoint-{last.global_step}")

    def _raise_stopped(self, follows: str) -> NoReturn:
        self.callback_handler.on_train_end(self.args, self.state, self.control)
        raise self._stop.error(f"after step {self.state.global_step}: {follows}")

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / UNFINISHED) if self.saves_checkpoint else folder

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Compare only measurements whose step has a checkpoint in every run, with or without a signal.

        Of equal measurements, the later one is the best.
        """
        if not is_on_schedule(self.state, self.args):
            return False
        if metrics.get(deciding_metric(self.args)) == self.state.best_metric:
            self.state.best_metric = None
        return super()._determine_best_metric(metrics, trial)

    # Resuming

    def _resume(self, checkpoint: str | Path | None, changed: Collection[str]) -> None:
        """Read the state of a checkpoint."""
        self._resumed = None
        if checkpoint is not None:
            try:
                self._resumed = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
            except (OSError, ValueError, TypeError) as error:
                raise OutputError(
                    f"{checkpoint} has no readable {TRAINER_STATE_NAME} ({error}): delete it to resume from the "
                    "checkpoint before"
                ) from error
            keep_comparable(self._resumed, self.args, changed)
            logger.info("resuming after step %d", self._resumed.global_step)
            if not self.is_deepspeed_enabled:
                check_complete(Path(checkpoint))

    def _evaluate(
        self, trial: Any, ignore_keys_for_eval: list[str] | None, skip_scheduler: bool = False
    ) -> dict[str, float]:
        """Measure before the first step (``skip_scheduler``) only if the run does not resume: its checkpoint was."""
        if skip_scheduler and self._resumed is not None:
            return {}
        metrics: dict[str, float] = super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler)
        return metrics

    def _rotate_checkpoints(self, best: str | None) -> None:
        """Delete the oldest checkpoints beyond ``save_total_limit``, but neither the newest nor the best."""
        checkpoints = checkpoints_of(str(self.args.output_dir))
        needed = {*checkpoints[:1], *(path for path in checkpoints if best is not None and path == Path(best))}
        deletable = [path for path in checkpoints if path not in needed]
        if limit := self.args.save_total_limit:
            for path in deletable[max(0, limit - len(needed)) :]:
                remove(path)

    def _init_training_state(self, max_steps: int, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Continue from the checkpoint's state, with this run's schedule, and find the best checkpoint again."""
        begin = super()._init_training_state(max_steps, *args, **kwargs)
        if self._resumed is not None:
            self.state.compute_steps(self.args, max_steps)
            self.state.log_history = [*self._resumed.log_history]  # the copy grows, the other ends at the checkpoint
            step = self._resumed.best_global_step
            best = Path(str(self.args.output_dir)) / f"checkpoint-{step}"  # which may have been moved since
            known = (str(best), self._resumed.best_metric, step) if best.is_dir() else (None, None, None)
            self.state.best_model_checkpoint, self.state.best_metric, self.state.best_global_step = known
        return begin

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> tuple[Any, ...]:
        """Return the number of epochs and of steps; no epochs if the checkpoint is of the run's last step."""
        epochs, *others, max_steps = super().set_initial_training_values(args, dataloader)
        if (last := self._resumed) is not None and (last.global_step >= max_steps or stops_early(last, self.args)):
            epochs = 0
        return (epochs, *others, max_steps)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the optimizer's state, and keep this run's settings; raise an error if it is of other weights."""
        optimizer: Any = self.optimizer
        groups = [] if optimizer is None else [dict(group) for group in optimizer.param_groups]
        with loading_state("the optimizer's state", checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and self._builds_optimizer and not self.is_deepspeed_enabled:
            keep_settings(optimizer, self.lr_scheduler, groups)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with loading_state("the state of the random numbers", checkpoint):
            super()._load_rng_state(checkpoint)
