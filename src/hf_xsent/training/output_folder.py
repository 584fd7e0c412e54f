"""The folder of a run: never overwritten unasked, resumed where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedModel, TrainingArguments
from transformers.trainer_utils import SaveStrategy, get_last_checkpoint

from hf_xsent.errors import OutputError
from hf_xsent.files import check_free_space, move_into_place, write_text
from hf_xsent.training.callbacks import METRICS_FILE

RECIPE_FILE = "recipe.yaml"
UNFINISHED = "_unfinished"  # what is being written; renamed when whole, so that a kill leaves nothing half-written


def prepare_output_folder(folder: str | Path, resume: bool = False, overwrite: bool = False) -> str | None:
    """Check the folder before any work; the checkpoint to go on from, if one is to be resumed and exists.

    A folder that holds anything is refused unless it is a run of ours and the caller says what shall become of it.
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
    """All that was stated or chosen for this run but tokens, in a file that starts the same run again."""
    stated = {key: value for key, value in options.items() if value is not None}
    for field in fields(training):
        value = getattr(training, field.name, None)
        kept = field.init and not field.name.endswith("_token")  # the folder may be pushed to the Hub
        if kept and value != field.default and isinstance(value, str | int | float):
            stated[field.name] = getattr(value, "value", value)
    text = f"# hf-xsent {command} {RECIPE_FILE}\n{yaml.safe_dump(stated, sort_keys=False)}"
    write_text(Path(folder) / RECIPE_FILE, text)


def remove_old_run(folder: str | Path) -> None:
    """Delete an earlier run's checkpoints and metrics, and nothing else; called when the new run is about to start."""
    for checkpoint in Path(folder).glob("checkpoint-*"):
        if checkpoint.name.removeprefix("checkpoint-").isdecimal() and checkpoint.is_dir():
            shutil.rmtree(checkpoint)
    (Path(folder) / METRICS_FILE).unlink(missing_ok=True)
    remove_unfinished(folder)


def remove_unfinished(folder: str | Path) -> None:
    """Delete what a killed process was writing."""
    shutil.rmtree(Path(folder) / UNFINISHED, ignore_errors=True)


def move_finished_checkpoint(folder: str | Path, name: str) -> None:
    """Give a checkpoint that is whole its name."""
    move_into_place(Path(folder) / UNFINISHED / name, Path(folder) / name)
    remove_unfinished(folder)


def move_finished_model(folder: str | Path) -> None:
    """Put a final model that is whole into the run's folder, the weights last: where they are, the rest is."""
    (Path(folder) / UNFINISHED / "training_args.bin").unlink(missing_ok=True)  # a pickle: nothing for others to open
    files = sorted((Path(folder) / UNFINISHED).iterdir(), key=lambda file: file.suffix == ".safetensors")
    for file in files:
        move_into_place(file, Path(folder) / file.name)
    remove_unfinished(folder)


def check_space(folder: str | Path, model: PreTrainedModel, arguments: TrainingArguments) -> None:
    """Refuse a run whose checkpoints (weights, and two moments of those that learn) and final model cannot fit."""
    left_out = model._keys_to_ignore_on_save or ()
    weights = sum(one.nbytes for name, one in model.state_dict().items() if name not in left_out)
    moments = 2 * sum(one.nbytes for one in model.parameters() if one.requires_grad)
    kept = arguments.save_total_limit or 1
    checkpoints = 0 if arguments.save_strategy == SaveStrategy.NO else kept + 1  # a new one before an old one goes
    needed = checkpoints * (weights + moments) + weights
    cure = "choose another --output_dir, a smaller --save_total_limit or --save_strategy no"
    check_free_space(folder, needed, f"{checkpoints} checkpoints and the model", cure)
