"""Write the folder of a run: whole checkpoints and models or none, the recipe, and the model card."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_utils import SaveStrategy, get_last_checkpoint, rotate_checkpoints

from hf_xsent.errors import OutputError, Stopped
from hf_xsent.files import check_free_space, move_into_place, write_text
from hf_xsent.publishing.model_card import CardFacts, facts_of_run, render_card
from hf_xsent.training.callbacks import METRICS_FILE, MetricsFile, ProgressBar
from hf_xsent.training.interruption import StopOnSigterm

RECIPE_FILE = "recipe.yaml"
UNFINISHED = "_unfinished"  # what is being written; renamed when whole, so that a kill leaves nothing half-written


def prepare_output_folder(folder: str | Path, resume: bool = False, overwrite: bool = False) -> str | None:
    """Check the folder before any work, and return the checkpoint to resume from, if there is one.

    A folder with files is refused unless it holds a run of ours and the caller chooses to resume or to overwrite it.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"the output folder {folder} is a file: choose another name")
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    if not (folder / RECIPE_FILE).is_file():
        raise OutputError(f"the output folder {folder} holds files that are no run of ours: choose an empty folder")
    if resume:
        checkpoint = get_last_checkpoint(str(folder))
        if checkpoint is None and (folder / "model.safetensors").is_file():
            raise OutputError(
                f"the run in {folder} is finished and left no checkpoint to resume: --overwrite replaces it"
            )
        return checkpoint
    if not overwrite:
        raise OutputError(
            f"the output folder {folder} holds another run: go on with --resume or replace it with --overwrite"
        )
    return None


def write_recipe(folder: str | Path, command: str, options: Mapping[str, Any], training: TrainingArguments) -> None:
    """Write all settings of this run, without tokens, into a file that starts the same run again."""
    stated = {key: value for key, value in options.items() if value is not None}
    for field in fields(training):
        value = getattr(training, field.name, None)
        kept = field.init and not field.name.endswith("_token")  # the folder may be pushed to the Hub
        if kept and value != field.default and isinstance(value, str | int | float):
            stated[field.name] = getattr(value, "value", value)
    text = f"# hf-xsent {command} {RECIPE_FILE}\n{yaml.safe_dump(stated, sort_keys=False)}"
    write_text(Path(folder) / RECIPE_FILE, text)


def remove_old_run(folder: str | Path) -> None:
    """Delete an earlier run's checkpoints and metrics, and nothing else, when the new run is about to start."""
    for checkpoint in Path(folder).glob("checkpoint-*"):
        if checkpoint.name.removeprefix("checkpoint-").isdecimal() and checkpoint.is_dir():
            shutil.rmtree(checkpoint)
    (Path(folder) / METRICS_FILE).unlink(missing_ok=True)
    remove_unfinished(folder)


def remove_unfinished(folder: str | Path) -> None:
    """Delete what a killed process was writing."""
    shutil.rmtree(Path(folder) / UNFINISHED, ignore_errors=True)


def move_finished_checkpoint(folder: str | Path, name: str) -> None:
    """Rename a whole checkpoint to its final name."""
    move_into_place(Path(folder) / UNFINISHED / name, Path(folder) / name)
    remove_unfinished(folder)


def move_finished_model(folder: str | Path) -> None:
    """Move a whole final model into the run's folder, the weights last: where they are, the rest is."""
    (Path(folder) / UNFINISHED / "training_args.bin").unlink(missing_ok=True)  # a pickle: nothing for others to open
    files = sorted((Path(folder) / UNFINISHED).iterdir(), key=lambda file: file.suffix == ".safetensors")
    for file in files:
        move_into_place(file, Path(folder) / file.name)
    remove_unfinished(folder)


def check_space(folder: str | Path, model: PreTrainedModel, arguments: TrainingArguments) -> None:
    """Refuse a run whose checkpoints (weights, and two moments of the trained ones) and final model do not fit."""
    left_out = model._keys_to_ignore_on_save or ()
    weights = sum(one.nbytes for name, one in model.state_dict().items() if name not in left_out)
    moments = 2 * sum(one.nbytes for one in model.parameters() if one.requires_grad)
    kept = arguments.save_total_limit or 1
    checkpoints = 0 if arguments.save_strategy == SaveStrategy.NO else kept + 1  # a new one before an old one goes
    needed = checkpoints * (weights + moments) + weights
    cure = "choose another --output_dir, a smaller --save_total_limit or --save_strategy no"
    check_free_space(folder, needed, f"{checkpoints} checkpoints and the model", cure)


@contextmanager
def explained_write_errors(folder: str | Path, what: str) -> Iterator[None]:
    """Turn a full disk or a folder that went away into one sentence that says how to go on."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "write" not in str(error):  # torch.save's way to say it
            raise
        raise OutputError(
            f"cannot write {what} into {folder} ({error}): make room and go on with --resume "
            "from the last whole checkpoint, if one was saved"
        ) from error


class SavingTrainer(Trainer):
    """Write checkpoints and the final model under another name first; save and end on SIGTERM.

    Logs go to a progress bar and a file of metrics.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = StopOnSigterm()
        self.add_callback(self._stop)
        for default in (PrinterCallback, ProgressCallback):
            self.remove_callback(default)
        self.add_callback(ProgressBar)
        self.add_callback(MetricsFile)
        self._writing = False

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save; a final model is moved into the run's folder when it is whole."""
        if output_dir is not None:
            return super().save_model(output_dir, _internal_call)
        folder = str(self.args.output_dir)
        try:
            with explained_write_errors(folder, "the trained model"):
                super().save_model(str(Path(folder) / UNFINISHED), _internal_call=True)
        except OutputError:
            remove_unfinished(folder)
            raise
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            move_finished_model(folder)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def create_model_card(self, *_: Any, **stated: Any) -> None:
        """Write our card instead of the Trainer's, from the recipe, the data and the trainer's state."""
        if self.is_world_process_zero():
            write_run_card(self, stated.get("model_name"), stated.get("license"), stated.get("finetuned_from"))

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Save under another name until all processes have written their part; then end a stopped run."""
        folder, name = self._get_output_dir(trial), f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            remove_unfinished(folder)
        self.accelerator.wait_for_everyone()
        self._writing = True
        try:
            with explained_write_errors(folder, name):
                super()._save_checkpoint(model, trial)
                if self.state.best_global_step == self.state.global_step:
                    self.state.best_model_checkpoint = str(Path(folder) / name)
                if self.args.should_save:
                    self.state.save_to_json(str(Path(folder) / UNFINISHED / name / TRAINER_STATE_NAME))
        except OutputError:
            remove_unfinished(folder)
            raise
        finally:
            self._writing = False
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            move_finished_checkpoint(folder, name)
            rotate_checkpoints(folder, self.args.save_total_limit, self.state.best_model_checkpoint, use_mtime=True)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            super()._push_from_checkpoint(str(Path(folder) / name))
        if self._stop.requested:
            self.callback_handler.on_train_end(self.args, self.state, self.control)
            raise Stopped(f"stopped by SIGTERM after step {self.state.global_step}: go on with --resume")

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / UNFINISHED) if self._writing else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Do nothing: the checkpoint is still being written, ``_save_checkpoint`` pushes it."""


def write_run_card(trainer: Trainer, name: str | None, license: str | None, base_model: str | None) -> None:
    """Write README.md of the output folder; leave out what is not stated, so that no run fails at its end."""
    folder = Path(str(trainer.args.output_dir))
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    if not (folder / RECIPE_FILE).is_file():
        text = yaml.safe_dump(_stated(trainer, model), sort_keys=False)
        write_text(folder / RECIPE_FILE, text)
    known = facts_of_run(folder)
    bitext: Any = trainer.train_dataset
    if not known["languages"] and hasattr(bitext, "languages"):
        known["pairs"] = dict(bitext.languages)
        known["languages"] = sorted({*known["pairs"], getattr(trainer, "target_language", "en")})
    known |= {"license": license or "", "base_model": base_model or known["base_model"], "plain": False}
    known["name"] = name or known["name"]
    facts = CardFacts(**known, repository=str(trainer.hub_model_id or known["name"]))
    write_text(folder / "README.md", f"{render_card(facts, complete=False)}")


def _stated(trainer: Trainer, model: Any) -> dict[str, Any]:
    """Collect the settings of a run that had no recipe."""
    config, args = model.config, trainer.args
    return {
        "model": config.encoder_config.name_or_path or None,
        "method": config.model_type,
        "objectives": config.recipe()["objectives"],
        "pooling": config.pooling,
        "max_length": config.max_length,
        "per_device_train_batch_size": args.per_device_train_batch_size,
        "max_steps": trainer.state.max_steps,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
    }
