"""Write the output folder of a run: checkpoints and the model, never half-written, the recipe and the model card."""

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
from hf_xsent.files import check_free_space, move_into_place, remove, write_text
from hf_xsent.publishing.export_folder import read_run_facts
from hf_xsent.publishing.model_card import CardFacts, facts_of_run, render_card
from hf_xsent.training.callbacks import METRICS_FILE, MetricsFile, ProgressBar, StopOnSigterm

RECIPE_FILE = "recipe.yaml"
UNFINISHED = "_unfinished"  # written here, then renamed when complete, so that a kill leaves no incomplete file


def prepare_output_folder(folder: str | Path, resume: bool = False, overwrite: bool = False) -> str | None:
    """Check the folder before any work, and return the checkpoint to resume from, if there is one.

    The folder must be empty, or hold a run of hf-xsent to resume or overwrite.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"the output folder {folder} is a file: choose another name")
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    if not (folder / RECIPE_FILE).is_file():
        raise OutputError(f"the output folder {folder} holds files that hf-xsent did not write: choose an empty folder")
    if resume:
        checkpoint = get_last_checkpoint(str(folder))
        if checkpoint is None and (folder / "model.safetensors").is_file():
            raise OutputError(f"the run in {folder} is finished and left no checkpoint: replace it with --overwrite")
        return checkpoint
    if not overwrite:
        raise OutputError(
            f"the output folder {folder} holds another run: continue it with --resume or replace it with --overwrite"
        )
    return None


def write_recipe(folder: str | Path, command: str, options: Mapping[str, Any], training: TrainingArguments) -> None:
    """Write all settings of this run, except Hub tokens, as a recipe that repeats it."""
    stated = {key: value for key, value in options.items() if value is not None}
    for field in fields(training):
        value = getattr(training, field.name, None)
        public = field.init and not field.name.endswith("_token")  # the folder may be pushed to the Hub
        if public and value != field.default and isinstance(value, str | int | float):
            stated[field.name] = getattr(value, "value", value)
    text = f"# hf-xsent {command} {RECIPE_FILE}\n{yaml.safe_dump(stated, sort_keys=False)}"
    write_text(Path(folder) / RECIPE_FILE, text)


def remove_old_run(folder: str | Path) -> None:
    """Delete an earlier run's checkpoints and metrics, and nothing else."""
    for checkpoint in Path(folder).glob("checkpoint-*"):
        if checkpoint.name.removeprefix("checkpoint-").isdecimal() and checkpoint.is_dir():
            shutil.rmtree(checkpoint)
    (Path(folder) / METRICS_FILE).unlink(missing_ok=True)
    remove(Path(folder) / UNFINISHED)


def check_space(folder: str | Path, model: PreTrainedModel, arguments: TrainingArguments) -> None:
    """Raise an error if the disk has no space for the checkpoints and the final model.

    A checkpoint holds all weights, and two optimizer moments of each trained weight.
    """
    not_saved = model._keys_to_ignore_on_save or ()
    weights = sum(one.nbytes for name, one in model.state_dict().items() if name not in not_saved)
    moments = 2 * sum(one.nbytes for one in model.parameters() if one.requires_grad)
    limit = arguments.save_total_limit or 1
    checkpoints = (
        0 if arguments.save_strategy == SaveStrategy.NO else limit + 1
    )  # the new one is written before an old one is deleted
    needed = checkpoints * (weights + moments) + weights
    cure = "choose another --output_dir, a smaller --save_total_limit or --save_strategy no"
    check_free_space(folder, needed, f"{checkpoints} checkpoints and the model", cure)


@contextmanager
def _write_errors(folder: str, what: str) -> Iterator[None]:
    """Raise an OutputError for a full disk or a missing folder, and delete incomplete files."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "write" not in str(error):  # torch.save raises RuntimeError
            raise
        remove(Path(folder) / UNFINISHED)
        raise OutputError(
            f"cannot write {what} into {folder} ({error}): make room and continue with --resume "
            "from the last complete checkpoint, if one was saved"
        ) from error


class SavingTrainer(Trainer):
    """Rename checkpoints and the final model into place when they are complete; on SIGTERM, save and stop.

    Logs go to a progress bar and a file of metrics.
    """

    _writing = False  # whether a checkpoint is being written

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = StopOnSigterm()
        self.add_callback(self._stop)
        for default in (PrinterCallback, ProgressCallback):
            self.remove_callback(default)
        self.add_callback(ProgressBar)
        self.add_callback(MetricsFile)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save into ``output_dir``; without it, save the final model and move it into place when complete."""
        if output_dir is not None:
            return super().save_model(output_dir, _internal_call)
        folder = Path(str(self.args.output_dir))
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

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Save, rename the folder when all processes have written their part, and raise ``Stopped`` after SIGTERM."""
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
            rotate_checkpoints(folder, self.args.save_total_limit, self.state.best_model_checkpoint, use_mtime=True)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            super()._push_from_checkpoint(str(Path(folder) / name))
        if self._stop.requested:
            self.callback_handler.on_train_end(self.args, self.state, self.control)
            raise Stopped(f"stopped by SIGTERM after step {self.state.global_step}: continue with --resume")

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / UNFINISHED) if self._writing else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Do nothing: the checkpoint is incomplete here; ``_save_checkpoint`` pushes it later."""


def write_run_recipe(trainer: Trainer) -> None:
    """Write the recipe of a run that was not started from one, as far as the trainer knows it."""
    config = trainer.accelerator.unwrap_model(trainer.model).config
    options = {
        "model": config.encoder_config.name_or_path or None,
        "method": config.model_type,
        "objectives": config.recipe()["objectives"],
        "pooling": config.pooling,
        "max_length": config.max_length,
    }
    write_recipe(str(trainer.args.output_dir), "pretrain", options, trainer.args)


def write_run_card(
    trainer: Trainer, name: str | None, license: str | None, base_model: str | None, plain: bool = False
) -> None:
    """Write the model card of the output folder; omit unknown facts, so that no run fails at its end.

    ``plain``: the folder holds an export of the run.
    """
    folder = Path(str(trainer.args.output_dir))
    if plain:
        known = read_run_facts(folder)
    else:
        if not (folder / RECIPE_FILE).is_file():
            write_run_recipe(trainer)
        known = facts_of_run(folder)
    bitext: Any = trainer.train_dataset
    if not known["languages"] and hasattr(bitext, "languages"):
        known["pairs"] = dict(bitext.languages)
        known["languages"] = sorted({*known["pairs"], getattr(trainer, "target_language", "en")})
    known |= {"license": license or "", "base_model": base_model or known["base_model"], "plain": plain}
    known["name"] = name or known["name"]
    facts = CardFacts(**known, repository=str(trainer.hub_model_id or known["name"]))
    write_text(folder / "README.md", f"{render_card(facts, complete=False)}")
