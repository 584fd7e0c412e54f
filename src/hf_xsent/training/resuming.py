"""Find the checkpoint to resume from: the newest one that is whole, of the model of this run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel
from transformers.trainer import TRAINER_STATE_NAME

from hf_xsent.errors import OutputError
from hf_xsent.files import move_into_place

logger = logging.getLogger(__name__)

DAMAGED = "_damaged-"  # prefix of the folder of a checkpoint that cannot be resumed
_CHECKPOINT = "checkpoint-"


def checkpoints_of(folder: str | Path) -> list[Path]:
    """List the checkpoints of a run, the newest first."""
    found = [path for path in Path(folder).glob(f"{_CHECKPOINT}*") if path.is_dir() and _step(path) is not None]
    return sorted(found, key=lambda path: _step(path) or 0, reverse=True)


def newest_whole_checkpoint(folder: str | Path) -> Path | None:
    """Return the newest checkpoint that is whole, and warn about damaged ones; None if there is no checkpoint."""
    damaged: list[str] = []
    for checkpoint in checkpoints_of(folder):
        damage = find_damage(checkpoint)
        if damage is None:
            for one in damaged:
                logger.warning("%s; resuming from %s instead", one, checkpoint.name)
            return checkpoint
        damaged.append(f"{checkpoint.name} is damaged: {damage}")
    if damaged:
        raise OutputError(f"no checkpoint in {folder} is whole ({'; '.join(damaged)}): train again with --overwrite")
    return None


def set_damaged_aside(folder: str | Path, newest_whole: str | Path) -> None:
    """Rename the damaged checkpoints after the newest whole one, so that no later step reads them."""
    for checkpoint in checkpoints_of(folder):
        if (_step(checkpoint) or 0) > (_step(Path(newest_whole)) or 0):
            move_into_place(checkpoint, checkpoint.with_name(DAMAGED + checkpoint.name))


def find_damage(checkpoint: Path) -> str | None:
    """Describe the first missing or damaged file of a checkpoint; None if it is whole."""
    try:
        state = json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        if state["global_step"] != _step(checkpoint):
            return f"{TRAINER_STATE_NAME} is of step {state['global_step']}"
    except FileNotFoundError:
        return f"{TRAINER_STATE_NAME} is missing"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{TRAINER_STATE_NAME} cannot be read"
    return next(_damages(checkpoint), None)


def _damages(checkpoint: Path) -> Iterator[str]:
    """Describe damaged weights and training states; a distributed checkpoint stores some of them in subfolders."""
    weights = sorted(checkpoint.glob("*.safetensors"))
    states = sorted([*checkpoint.glob("*.pt"), *checkpoint.glob("*.pth")])
    subfolders = any(path.is_dir() for path in checkpoint.iterdir())
    if not weights and not subfolders:
        yield "model.safetensors is missing"
    if states and not (checkpoint / "optimizer.pt").is_file() and not subfolders:
        yield "optimizer.pt is missing"
    config = checkpoint / "config.json"  # of a plain model, there is none
    try:
        if config.exists() and not isinstance(json.loads(config.read_text(encoding="utf-8")), dict):
            yield f"{config.name} holds no settings"
    except (OSError, ValueError):
        yield f"{config.name} is truncated or damaged"
    for path in weights:
        try:
            with safe_open(path, "pt"):  # compares the header with the size of the file
                pass
        except (OSError, SafetensorError):
            yield f"{path.name} is truncated or damaged"
    for path in states:
        try:
            with ZipFile(path) as archive:
                if archive.testzip() is not None:  # compares checksums
                    yield f"{path.name} is damaged"
        except (OSError, EOFError, ValueError, BadZipFile):
            yield f"{path.name} is truncated or damaged"


def check_fits(checkpoint: str | Path, model: PreTrainedModel) -> None:
    """Raise an error if the weights of a checkpoint are not those of this model, by names and shapes."""
    expected = model.state_dict()
    found: dict[str, tuple[int, ...]] = {}
    for path in Path(checkpoint).glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            found |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if not found:  # a sharded checkpoint
        return
    cure = "resume with the recipe of that run, or give another --output"
    for name, shape in found.items():
        if name not in expected:
            raise OutputError(f"{checkpoint} is of another model: it has weights {name}, which this one lacks: {cure}")
        if shape != tuple(expected[name].shape):
            shapes = f"{name} has shape {shape}, here {tuple(expected[name].shape)}"
            raise OutputError(f"{checkpoint} is of another model: {shapes}: {cure}")
    tied = {expected[name].data_ptr() for name in found}
    not_saved = model._keys_to_ignore_on_save or ()
    for name, weight in expected.items():
        if name not in found and name not in not_saved and weight.data_ptr() not in tied:
            raise OutputError(f"{checkpoint} is of another model: it lacks the weights {name}: {cure}")


def _step(checkpoint: Path) -> int | None:
    number = checkpoint.name.removeprefix(_CHECKPOINT)
    return int(number) if number.isdecimal() and number.isascii() else None
