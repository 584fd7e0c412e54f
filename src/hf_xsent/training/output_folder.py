"""The folder of a run: never overwritten unasked, resumed where it stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

from transformers.trainer_utils import get_last_checkpoint

from hf_xsent.errors import OutputError
from hf_xsent.training.callbacks import METRICS_FILE

RECIPE_FILE = "recipe.yaml"


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


def remove_old_run(folder: str | Path) -> None:
    """Delete an earlier run's checkpoints and metrics, and nothing else; called when the new run is about to start."""
    for checkpoint in Path(folder).glob("checkpoint-*"):
        if checkpoint.name.removeprefix("checkpoint-").isdecimal() and checkpoint.is_dir():
            shutil.rmtree(checkpoint)
    (Path(folder) / METRICS_FILE).unlink(missing_ok=True)
