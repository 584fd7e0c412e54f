"""Find the newest complete checkpoint to resume from, and check that it fits this run's model and settings."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from safetensors import SafetensorError, safe_open
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import SaveStrategy

from hf_xsent.errors import OutputError
from hf_xsent.files import move_into_place, remove
from hf_xsent.models.run_folder import RUN_STATE_FILE, checkpoint_step, checkpoints_of
from hf_xsent.training.identity import RunState

logger = logging.getLogger(__name__)

WEIGHTS_FILE = "model.safetensors"
AVERAGE_FILE = "averaged_weights.safetensors"  # of a checkpoint of a run with ema_decay
DAMAGED = "_damaged-"  # prefix of the folder of a checkpoint that cannot be resumed
UNFINISHED = "_unfinished"  # folder of incomplete files: not yet renamed new ones, not yet deleted old ones
_STATED = ("initial_lr", "weight_decay", "betas", "eps", "momentum")  # of an optimizer's group of weights

Shape = tuple[int, ...]


def newest_complete_checkpoint(folder: str | Path) -> Path | None:
    """Return the newest complete checkpoint, and warn about damaged ones; None if there is no checkpoint."""
    damaged: list[str] = []
    for checkpoint in checkpoints_of(folder):
        damage = find_damage(checkpoint)
        if damage is None:
            for one in damaged:
                logger.warning("%s; resuming from %s instead", one, checkpoint.name)
            return checkpoint
        damaged.append(f"{checkpoint.name} is damaged: {damage}")
    if damaged:
        raise OutputError(f"no checkpoint in {folder} is complete ({'; '.join(damaged)}): train again with --overwrite")
    return None


def check_no_newer_checkpoint(folder: str | Path, resumed: str | Path | None) -> None:
    """Raise an error if a checkpoint is of a later step than the resumed one, or of any step if none is resumed.

    Such a checkpoint is of another run. Because checkpoints are sorted by step, this run's checkpoints would be deleted
    instead of it, and it would be resumed or averaged.
    """
    step = -1 if resumed is None else checkpoint_step(Path(resumed))
    newest = next(iter(checkpoints_of(folder)), None)
    if newest is None or step is None or (checkpoint_step(newest) or 0) <= step:
        return
    cause = "of an earlier run" if resumed is None else f"newer than {Path(resumed).name}, which is resumed"
    raise OutputError(
        f"{newest} is {cause}: choose another output_dir, resume_from_checkpoint=True, or remove the checkpoints"
    )


def clean_up_checkpoints(folder: str | Path, resumed: str | Path, limit: int | None) -> None:
    """Rename damaged checkpoints, so that the run does not average, load or count them; delete half-deleted ones.

    A checkpoint beyond ``limit`` may be half deleted, because the process that was deleting it was killed.
    """
    remove(Path(folder) / UNFINISHED)
    newest = checkpoint_step(Path(resumed)) or 0
    best = json.loads((Path(resumed) / TRAINER_STATE_NAME).read_text(encoding="utf-8")).get("best_model_checkpoint")
    _set_damaged_aside([one for one in checkpoints_of(folder) if (checkpoint_step(one) or 0) > newest])
    delete_surplus_checkpoints(folder, limit, None if best is None else moved_checkpoint(folder, best))
    _set_damaged_aside(checkpoints_of(folder))


def delete_surplus_checkpoints(folder: str | Path, limit: int | None, best: str | Path | None) -> None:
    """Delete the oldest checkpoints above a limit, but neither the newest nor the best.

    Each is renamed first, so that a killed process leaves no incomplete checkpoint.
    """
    deleted = Path(folder) / UNFINISHED
    others = checkpoints_of(folder)[1:]
    if not limit or limit < 0:
        return
    surplus = [one for one in others if best is None or one != Path(best)]
    spared = max(0, limit - 1 - (len(others) - len(surplus)))
    for checkpoint in surplus[spared:]:
        move_into_place(checkpoint, deleted)
        remove(deleted)


def is_on_schedule(state: TrainerState, arguments: TrainingArguments) -> bool:
    """Return whether a run saves a checkpoint at the step of this state without a signal, too."""
    if state.global_step >= state.max_steps or arguments.save_strategy == SaveStrategy.BEST:
        return True
    if arguments.save_strategy == SaveStrategy.EPOCH:
        return state.epoch is not None and float(state.epoch).is_integer()
    return arguments.save_strategy == SaveStrategy.STEPS and state.global_step % state.save_steps == 0


@dataclass(frozen=True)
class StatedRates:
    """The settings of a new optimizer, which the state of a checkpoint replaces: after a change, by the old ones."""

    groups: list[dict[str, Any]]

    @classmethod
    def of(cls, optimizer: Any) -> StatedRates:
        """Copy the settings of each group of weights."""
        return cls([{name: group[name] for name in _STATED if name in group} for group in optimizer.param_groups])

    def restore(self, optimizer: Any, scheduler: Any) -> None:
        """Set them again, and the learning rate of the present step."""
        for group, stated in zip(optimizer.param_groups, self.groups, strict=True):
            group.update(stated)
        if type(scheduler) is LambdaLR:  # others, such as ReduceLROnPlateau, compute a rate from the last one
            peaks = [stated["initial_lr"] for stated in self.groups]
            shares = [share(scheduler.last_epoch) for share in scheduler.lr_lambdas]
            rates = [peak * share for peak, share in zip(peaks, shares, strict=True)]
            scheduler.load_state_dict(scheduler.state_dict() | {"base_lrs": peaks, "_last_lr": rates})
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate


def _set_damaged_aside(checkpoints: Iterable[Path]) -> None:
    for checkpoint in checkpoints:
        if find_damage(checkpoint) is not None:
            move_into_place(checkpoint, checkpoint.with_name(DAMAGED + checkpoint.name))


def moved_checkpoint(folder: str | Path, recorded: str) -> Path:
    """Return the path of a recorded checkpoint in this folder, which may have been moved since."""
    return Path(folder) / Path(recorded).name


def find_damage(checkpoint: Path) -> str | None:
    """Describe the first missing or damaged file of a checkpoint; None if it is complete."""
    try:
        state = json.loads((checkpoint / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
        if state["global_step"] != checkpoint_step(checkpoint):
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
    subfolders = any(path.is_dir() and not path.name[0].isdecimal() for path in checkpoint.iterdir())
    if not weights and not subfolders:
        yield "model.safetensors is missing"
    if states and not (checkpoint / "optimizer.pt").is_file() and not subfolders:
        yield "optimizer.pt is missing"
    config = checkpoint / "config.json"  # a plain torch module has none
    try:
        if config.exists() and not isinstance(json.loads(config.read_text(encoding="utf-8")), dict):
            yield f"{config.name} holds no settings"
    except (OSError, ValueError):
        yield f"{config.name} is truncated or damaged"
    for path in weights:
        if not _is_complete(path):
            yield f"{path.name} is truncated or damaged"
    for path in states:
        try:
            with ZipFile(path) as archive:
                if archive.testzip() is not None:  # compares checksums
                    yield f"{path.name} is damaged"
        except (OSError, EOFError, ValueError, BadZipFile):
            yield f"{path.name} is truncated or damaged"


def _is_complete(weights: Path) -> bool:
    try:
        with safe_open(weights, "pt"):  # compares the header with the size of the file
            return True
    except (OSError, SafetensorError):
        return False


def resumed_state(
    folder: str | Path, checkpoint: str | None, identity: dict[str, Any], resumes: bool, allow_changes: bool
) -> RunState:
    """Return the state of a new run, or of the run to resume, if its settings and data are those of ``identity``."""
    folder, finished = Path(folder), None
    earlier = RunState.read(folder) if resumes else None
    if earlier is not None and _is_complete(folder / WEIGHTS_FILE):
        finished = earlier.finished_at_step
    if checkpoint is None and finished is None:
        return RunState(identity)
    if earlier is None:
        logger.warning("%s does not say how its run was started: settings and data are not compared", folder)
        return RunState(identity)
    step = int(str(checkpoint or finished).rpartition("-")[2])
    state = earlier.resumed(identity, step, allow_changes)
    if state.changes == earlier.changes:
        return replace(state, finished_at_step=finished)
    if checkpoint is None:
        raise OutputError(f"the run in {folder} is finished and left no checkpoint: replace it with --overwrite")
    logger.warning("the run resumes with changes, which %s lists", folder / RUN_STATE_FILE)
    return state
