"""Write the output folder of a run: checkpoints and the model, never half-written."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerState
from transformers.trainer_utils import SaveStrategy, TrainOutput

from hf_xsent.errors import OutputError
from hf_xsent.files import (
    check_can_create,
    check_free_space,
    create_folder,
    errno_of,
    is_local,
    move_into_place,
    remove,
)
from hf_xsent.locks import HOLDER_FILE, LOCK_FILE, check_not_locked, lock_folder
from hf_xsent.models.run_folder import RUN_STATE_FILE, checkpoints_of
from hf_xsent.training.callbacks import METRICS_FILE, EarlyStopping, MetricsFile, ProgressBar, StopOnSignal
from hf_xsent.training.identity import RunState
from hf_xsent.training.resuming import (
    DAMAGED,
    UNFINISHED,
    WEIGHTS_FILE,
    StatedRates,
    check_no_newer_checkpoint,
    clean_up_checkpoints,
    delete_surplus_checkpoints,
    is_on_schedule,
    moved_checkpoint,
    newest_complete_checkpoint,
)
from hf_xsent.training.run_card import RECIPE_FILE, write_run_card

logger = logging.getLogger(__name__)


def choose_checkpoint(training: TrainingArguments, resume: bool = False, overwrite: bool = False) -> str | None:
    """Check the output folder in one process; return in all processes the checkpoint to resume from, or None."""
    chosen: list[str | None] = [None]
    if training.process_index == 0:
        chosen = [prepare_output_folder(str(training.output_dir), resume, overwrite)]
    if training.world_size > 1:
        broadcast_object_list(chosen)
    return chosen[0]


def check_start_remains(model: str, output: str, overwrite: bool) -> None:
    """Raise an error if the run would replace the model that it starts from, whose folder is ``output`` or in it."""
    if not overwrite or not is_local(model):
        return
    start = Path(model).resolve()
    if Path(output).resolve() in (start, *start.parents):
        raise OutputError(f"the run would replace the model {model} that it starts from: choose another output folder")


def prepare_output_folder(folder: str | Path, resume: bool = False, overwrite: bool = False) -> str | None:
    """Check the folder before any work, and return the checkpoint to resume from, if there is one.

    The folder must be empty, or hold a run of hf-xsent to resume or overwrite, which no other process is training.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"the output folder {folder} is a file: choose another name")
    check_can_create(folder)
    check_not_locked(folder)
    return _choose_checkpoint(folder, resume, overwrite)


def _choose_checkpoint(folder: Path, resume: bool, overwrite: bool) -> str | None:
    if not folder.is_dir() or not any(path.name not in (LOCK_FILE, HOLDER_FILE) for path in folder.iterdir()):
        return None
    if not (folder / RECIPE_FILE).is_file():
        raise OutputError(f"the output folder {folder} holds files that hf-xsent did not write: choose an empty folder")
    if resume:
        checkpoint = newest_complete_checkpoint(folder)
        if checkpoint is None and (folder / WEIGHTS_FILE).is_file() and RunState.read(folder) is None:
            raise OutputError(f"the run in {folder} is finished and left no checkpoint: replace it with --overwrite")
        return None if checkpoint is None else str(checkpoint)
    if not overwrite:
        raise OutputError(
            f"the output folder {folder} holds another run: continue it with --resume or replace it with --overwrite"
        )
    return None


@contextmanager
def output_folder(
    training: TrainingArguments, checkpoint: str | None, resume: bool = False, overwrite: bool = False
) -> Iterator[Path]:
    """Create and lock the output folder, in the process that saves.

    ``checkpoint`` is what ``prepare_output_folder`` returned. If it is None, delete the files of an earlier run.
    """
    folder = Path(str(training.output_dir))
    if not training.should_save:
        yield folder
        return
    with lock_folder(create_folder(folder)):
        if _choose_checkpoint(folder, resume, overwrite) != checkpoint:
            raise OutputError(f"another process has just trained in {folder}: run the command again")
        if checkpoint is None:
            remove_old_run(folder)
        else:
            clean_up_checkpoints(folder, checkpoint, training.save_total_limit)
        yield folder


def remove_old_run(folder: str | Path) -> None:
    """Delete an earlier run's checkpoints, metrics and state, and nothing else."""
    folder = Path(folder)
    for checkpoint in [*checkpoints_of(folder), *folder.glob(f"{DAMAGED}checkpoint-*")]:
        shutil.rmtree(checkpoint)
    for name in (METRICS_FILE, RUN_STATE_FILE):
        (folder / name).unlink(missing_ok=True)
    remove(folder / UNFINISHED)


def check_space(folder: str | Path, model: PreTrainedModel, arguments: TrainingArguments) -> None:
    """Raise an error if the disk has no space for the checkpoints and the final model.

    A checkpoint holds all weights, and two optimizer moments and perhaps an average of each trained weight.
    """
    weights = sum(weight.nbytes for weight in model.state_dict().values())
    states = 2 if getattr(arguments, "ema_decay", None) is None else 3
    moments = states * sum(one.nbytes for one in model.parameters() if one.requires_grad)
    limit = arguments.save_total_limit or 1
    checkpoints = (
        0 if arguments.save_strategy == SaveStrategy.NO else limit + 1
    )  # the new one is written before an old one is deleted
    needed = checkpoints * (weights + moments) + weights
    cure = "choose another --output, a smaller --save_total_limit or --save_strategy no"
    check_free_space(folder, needed, f"{checkpoints} checkpoints and the model", cure)


@contextmanager
def _write_errors(folder: str, what: str) -> Iterator[None]:
    """Raise an OutputError for a full disk or a missing folder, and delete incomplete files."""
    try:
        yield
    except Exception as error:
        failed = errno_of(error) is not None or isinstance(error, SafetensorError)
        if not failed and not (isinstance(error, RuntimeError) and "write" in str(error)):  # of torch.save
            raise
        remove(Path(folder) / UNFINISHED)
        raise OutputError(
            f"cannot write {what} into {folder} ({error}): free disk space and continue with --resume "
            "from the last complete checkpoint, if one was saved"
        ) from error


class SavingTrainer(Trainer):
    """Rename checkpoints and the final model into place when they are complete; on SIGTERM or Ctrl-C, save and stop.

    Logs go to a progress bar and a file of metrics.
    """

    _writing = False  # whether a checkpoint is being written
    _resumed: TrainerState | None = None  # of the checkpoint to resume from

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = StopOnSignal()
        self.add_callback(self._stop)
        for default in (PrinterCallback, ProgressCallback):
            self.remove_callback(default)
        self.add_callback(ProgressBar)
        self.add_callback(MetricsFile)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train, or resume from a checkpoint of this model; True: the newest complete one in the output folder."""
        checkpoint = self.checkpoint_to_resume(resume_from_checkpoint)
        if self.args.should_save:  # the process that deletes an earlier run, perhaps after the others are here
            check_no_newer_checkpoint(str(self.args.output_dir), checkpoint)
        self._resumed = None
        if checkpoint is not None:
            self._resumed = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
        try:
            return super().train(checkpoint, *args, **kwargs)
        finally:
            self._stop.restore()

    def checkpoint_to_resume(self, given: str | Path | bool | None) -> str | None:
        """Return the checkpoint that an argument of ``train`` names; rename damaged ones if it is True."""
        if given is not True:
            return str(given) if given else None
        folder = Path(str(self.args.output_dir))
        checkpoint = newest_complete_checkpoint(folder)
        if checkpoint is None:
            raise OutputError(f"no checkpoint in {folder} to resume from: train without resume_from_checkpoint")
        self.accelerator.wait_for_everyone()  # until each process has found it
        if self.args.should_save:
            clean_up_checkpoints(folder, checkpoint, self.args.save_total_limit)
        return str(checkpoint)

    def _load_callback_state(self) -> None:
        """Find the best checkpoint, also in a moved folder; if it is missing, reset the best dev score.

        The patience is that of this run.
        """
        super()._load_callback_state()
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EarlyStopping):
                callback.early_stopping_patience = getattr(self.args, "early_stopping_patience", None) or 1
        recorded = None if self._resumed is None else self._resumed.best_model_checkpoint
        if recorded is None:
            return
        best = moved_checkpoint(str(self.args.output_dir), recorded)
        if best.is_dir():
            self.state.best_model_checkpoint = str(best)
        else:
            logger.warning("%s, the best checkpoint, is missing or damaged: the best one from here on is chosen", best)
            self.state.best_model_checkpoint = self.state.best_metric = self.state.best_global_step = None

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> tuple[Any, ...]:
        """Return the number of epochs and of steps; no epochs if the checkpoint is of the run's last step."""
        epochs, *others, max_steps = super().set_initial_training_values(args, dataloader)
        return (
            (0 if self._resumed is not None and self._has_ended(self._resumed, max_steps) else epochs),
            *others,
            max_steps,
        )

    def _has_ended(self, state: TrainerState, max_steps: int) -> bool:
        """Return whether a checkpoint is that of the last step, or of the step of an early stop."""
        patience = getattr(self.args, "early_stopping_patience", None)
        callbacks: Any = state.stateful_callbacks or {}
        stopping = callbacks.get(EarlyStopping.__name__, {})
        waited = stopping.get("attributes", {}).get("early_stopping_patience_counter", 0)
        return state.global_step >= max_steps or (patience is not None and waited >= patience)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save into ``output_dir``; without it, save the final model and move it into place when complete."""
        if (backend := getattr(self.processing_class, "backend_tokenizer", None)) is not None:
            backend.no_padding()  # a tokenizer saves the padding of its last call, which --resume would change
            backend.no_truncation()
        if output_dir is not None:
            return super().save_model(output_dir, _internal_call)
        folder = Path(str(self.args.output_dir))
        if self.args.should_save:
            remove(folder / UNFINISHED)
        self.accelerator.wait_for_everyone()
        with _write_errors(str(folder), "the trained model"):
            super().save_model(str(folder / UNFINISHED), _internal_call=True)
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            (folder / UNFINISHED / "training_args.bin").unlink(
                missing_ok=True
            )  # a pickle, which can run code when opened
            for file in sorted((folder / UNFINISHED).iterdir(), key=lambda file: file.suffix == ".safetensors"):
                move_into_place(file, folder / file.name)  # weights last, so that a folder with weights is complete
            remove(folder / UNFINISHED)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def create_model_card(self, *_: Any, **stated: Any) -> None:
        """Write our card instead of the Trainer's, from the recipe, the data and the trainer's state."""
        if self.is_world_process_zero():
            write_run_card(self, stated.get("model_name"), stated.get("license"), stated.get("finetuned_from"))

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Compare only measurements whose step has a checkpoint in every run, with or without a signal."""
        return is_on_schedule(self.state, self.args) and super()._determine_best_metric(metrics, trial)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Save, rename the folder when all processes have written their part, and raise ``Stopped`` after a signal."""
        folder, name = self._get_output_dir(trial), f"checkpoint-{self.state.global_step}"
        unfinished = Path(folder) / UNFINISHED
        if self.args.should_save:
            remove(unfinished)
        self.accelerator.wait_for_everyone()
        self._writing = True
        try:
            with _write_errors(folder, name):
                super()._save_checkpoint(model, trial)
                if self.state.best_global_step == self.state.global_step:
                    self.state.best_model_checkpoint = str(Path(folder) / name)
                if self.args.should_save:
                    self.state.save_to_json(str(unfinished / name / TRAINER_STATE_NAME))
        finally:
            self._writing = False
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            move_into_place(unfinished / name, Path(folder) / name)
            remove(unfinished)
            remove(Path(folder) / f"{DAMAGED}{name}")
            if self._resumed is not None and not is_on_schedule(self._resumed, self.args):
                remove(Path(folder) / f"checkpoint-{self._resumed.global_step}")  # of a signal: an uninterrupted run
            delete_surplus_checkpoints(folder, self.args.save_total_limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            super()._push_from_checkpoint(str(Path(folder) / name))
        if self._stop.requested:
            self.callback_handler.on_train_end(self.args, self.state, self.control)
            raise self._stop.error(f"after step {self.state.global_step}: continue with --resume")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the optimizer's state, but not its settings; raise an error if it is of other weights or settings."""
        stated = None if checkpoint is None or self.is_deepspeed_enabled else StatedRates.of(self.optimizer)
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
            if stated is not None:
                stated.restore(self.optimizer, self.lr_scheduler)
        except (ValueError, KeyError, RuntimeError, TypeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise OutputError(
                f"the optimizer's state in {checkpoint} does not fit this run ({reason}): resume with the settings of "
                "that run, or train again with --overwrite"
            ) from error

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / UNFINISHED) if self._writing else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Do nothing: the checkpoint is incomplete here; ``_save_checkpoint`` pushes it later."""
