"""Guard the output folder of a training run: what the run was made from, who trains, how it resumes and ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hf_xsent.errors import ModelError, OutputError, TrainingError
from hf_xsent.files import is_local, move_into_place, remove, write_json, write_text
from hf_xsent.runs.claim import CLAIM_FILE, claim_folder
from hf_xsent.runs.identity import differences, plain

logger = logging.getLogger(__name__)

RUN_STATE_FILE = "run_state.json"
CHECKPOINT = "checkpoint-"
UNFINISHED = "_unfinished"  # folder of what is being written, until it is renamed into place
METRICS_FILE = "metrics.jsonl"
RECIPE_FILE = "recipe.yaml"
RESULTS, TABLE = "results.json", "results.txt"  # of a fine-tuned model
RUN_FACTS = "training.json"  # the facts of the training of a run, checkpoint or export, and those that publish adds
BITEXT_FILE = "bitext.json"  # how many pairs were read and removed
_REPORTS = (RECIPE_FILE, BITEXT_FILE, RESULTS, TABLE)
_BEFORE_RUNS = {CLAIM_FILE, METRICS_FILE, "features"}  # metrics of a run that saved nothing, and cached features
_SHOWN = 8  # differences in an error
_SAME_STATE = {"adamw_torch", "adamw_torch_fused"}  # optimizers that read the state of each other
_ANOTHER_RUN = (
    "the output folder {} holds a run: continue it with --resume or replace it with --overwrite "
    "(of an AlignmentTrainer: train(resume_from_checkpoint=True) or train(overwrite=True))"
)


@dataclass(frozen=True)
class RunState:
    """What ``run_state.json`` records of a run."""

    identity: dict[str, Any]  # what decides its results
    changes: list[dict[str, Any]] = field(default_factory=list)  # when it resumed: step, and name: [before, after]
    finished_at_step: int | None = None
    files: list[str] = field(default_factory=list)  # of the final model
    problem: str | None = None  # for which the final model must not be used

    @classmethod
    def read(cls, folder: str | Path) -> RunState | None:
        """Read the state of the run in a folder; None if it holds none."""
        path = Path(folder) / RUN_STATE_FILE
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise OutputError(f"{path} cannot be read ({error}): restore it, or use another output folder") from error

    def write(self, folder: str | Path) -> None:
        """Write the state into the output folder."""
        write_json(Path(folder) / RUN_STATE_FILE, asdict(self))


def missing_from_checkpoint(folder: str | Path, names: Iterable[str]) -> OutputError:
    """Return the error of a checkpoint without these files."""
    cure = "restore it, delete the checkpoint to resume from the one before, or give --overwrite"
    return OutputError(f"{folder} lacks {' and '.join(names)}: {cure}")


def checkpoints_of(folder: str | Path) -> list[Path]:
    """List the checkpoints of a run, the newest first; each is complete, since it was renamed into place."""
    steps = {path: checkpoint_step(path) for path in Path(folder).glob(f"{CHECKPOINT}*") if path.is_dir()}
    return sorted((path for path in steps if steps[path] is not None), key=lambda path: steps[path] or 0, reverse=True)


def checkpoint_step(checkpoint: Path) -> int | None:
    """Return the step that a checkpoint's name states, None if it states none."""
    number = checkpoint.name.removeprefix(CHECKPOINT)
    return int(number) if number.isdecimal() and number.isascii() else None


def check_finished(folder: str | Path) -> None:
    """Raise an error for the output folder of an unfinished run; name its newest checkpoint, which can be opened."""
    state = RunState.read(folder)
    if state is None or state.finished_at_step is not None:
        return
    checkpoints = checkpoints_of(folder)
    other = f"give its newest checkpoint {checkpoints[0]}, or" if checkpoints else "it has no checkpoint to open:"
    raise ModelError(
        f"the run in {folder} is unfinished: {other} finish it by the command that started it and --resume"
    )


class Run:
    """The output folder of a training run.

    ``resume`` continues the run in the folder (a path: its newest checkpoint), and starts one if there is none;
    ``allow_changes`` also if its settings or data have changed; ``overwrite`` replaces the run in the folder.

        run = Run("runs/mine", resume=True)
        run.check()                    # before any work
        with run.training(identity):   # claims the folder, compares, records
            …                          # train from run.checkpoint (None: from the start)
            run.place_model()          # renames what is in run.unfinished into the folder
            run.finish(step)
    """

    def __init__(
        self,
        folder: str | Path,
        resume: bool | str = False,
        allow_changes: bool = False,
        overwrite: bool = False,
        start: str | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.resume, self.allow_changes, self.overwrite = resume or allow_changes, allow_changes, overwrite
        self.start = start  # Hub id or folder of the model that the run starts from
        self.checkpoint: str | None = None
        self.state = RunState({})

    @property
    def unfinished(self) -> Path:
        """Return the folder of files that are being written."""
        return self.folder / UNFINISHED

    @property
    def changed(self) -> set[str]:
        """Return the names of what has changed since the checkpoint to resume from."""
        step = checkpoint_step(Path(str(self.checkpoint))) or 0
        return {name for change in self.state.changes if change["step"] >= step for name in change["changed"]}

    def check(self) -> None:
        """Raise an error if the folder cannot take this run, before any work; change nothing."""
        if self.resume and self.overwrite:
            raise OutputError("--resume continues the run in the folder, --overwrite replaces it: give one of them")
        if self.folder.exists() and not self.folder.is_dir():
            raise OutputError(f"the output folder {self.folder} is a file: choose another name")
        if (self.folder / CLAIM_FILE).is_file():
            with claim_folder(self.folder):
                pass
        self._check_content()

    def check_holds_no_run(self, what: str) -> None:
        """Raise an error if the folder holds a run, of which ``what`` would be replaced."""
        if RunState.read(self.folder) is not None:
            raise OutputError(
                f"the output folder {self.folder} holds another run, whose {what} would be replaced: choose another "
                "folder"
            )

    def find_checkpoint(self) -> Path | None:
        """Find the checkpoint to resume from, the newest in the folder; raise an error if ``resume`` is another."""
        newest = next(iter(checkpoints_of(self.folder)), None)
        is_newest = newest is not None and Path(str(self.resume)).resolve() == newest.resolve()
        if not isinstance(self.resume, bool) and not is_newest:
            what = "no checkpoint" if newest is None else f"{newest.name} as its newest"
            raise OutputError(
                f"{self.resume} cannot be resumed: the output folder {self.folder} has {what}. To continue an earlier "
                "checkpoint, copy the folder of its run without later ones, and resume in the copy"
            )
        return newest if self.resume else None

    def finished_at(self, identity: Mapping[str, Any]) -> int | None:
        """Return the last step of the run to resume if it is finished.

        Raise an error if it has another identity, and the error with which it ended.
        """
        state = RunState.read(self.folder) if self.resume else None
        if state is None or state.finished_at_step is None or not self._has_model(state):
            return None
        if self._changes(state, plain(identity), state.finished_at_step):
            return None
        if state.problem is not None:
            raise TrainingError(state.problem)
        return state.finished_at_step

    @contextmanager
    def training(self, identity: Mapping[str, Any]) -> Iterator[None]:
        """Claim the folder while the run trains, after it is prepared and its identity is compared and recorded.

        A resumed run that fails before its first new checkpoint leaves the files that describe the run as they were.
        """
        self.check()
        with claim_folder(self.folder):
            self._check_content()
            paths = [self.folder / name for name in (RUN_STATE_FILE, *_REPORTS)]
            before = {path: path.read_text("utf-8") for path in paths if path.is_file()}
            self._prepare(plain(identity))
            prepared = self.state
            try:
                yield
            except BaseException:
                newest = next((str(path) for path in checkpoints_of(self.folder)), None)
                placed = self.state is not prepared or self.unfinished.exists()
                if self.checkpoint == newest is not None and not placed:
                    for path, text in before.items():
                        write_text(path, text)
                raise

    def place_model(self) -> None:
        """Move the final model into place; it replaces that of the run before."""
        files = sorted(path.name for path in self.unfinished.iterdir())
        for name in files:
            move_into_place(self.unfinished / name, self.folder / name)
        for name in {*self.state.files} - {*files}:
            remove(self.folder / name)
        remove(self.unfinished)
        self.state = replace(self.state, files=files)

    def finish(self, step: int, problem: str | None = None) -> None:
        """Record that the run is finished, and the problem that its model has."""
        self.state = replace(self.state, finished_at_step=step, problem=problem)
        self.state.write(self.folder)

    def _check_content(self) -> None:
        """Raise an error if the folder holds anything but a run that this one resumes or replaces."""
        if not self.folder.is_dir():
            return
        if RunState.read(self.folder) is None:
            names = [
                path.name for path in self.folder.iterdir() if path.name not in _BEFORE_RUNS and path.name[0] != "."
            ]
            if names:
                raise OutputError(
                    f"the output folder {self.folder} holds files that hf-xsent did not write, such as {min(names)}: "
                    "choose an empty folder"
                )
            return
        if not (self.resume or self.overwrite):
            raise OutputError(_ANOTHER_RUN.format(self.folder))
        if self.overwrite and not self.resume and self.start is not None and is_local(self.start):
            start, folder = Path(self.start).resolve(), self.folder.resolve()
            if folder in (start, *start.parents):
                raise OutputError(
                    f"the run would replace the model {self.start} that it starts from: choose another output folder"
                )

    def _prepare(self, identity: dict[str, Any]) -> None:
        """Find the checkpoint to resume from, compare the identity, remove what is left of before, write the state."""
        earlier = RunState.read(self.folder)
        remove(self.unfinished)
        self.state, self.checkpoint = RunState(identity), None
        if self.resume:
            self._resume(earlier, identity)
        else:
            for checkpoint in checkpoints_of(self.folder):
                remove(checkpoint)
            for name in (METRICS_FILE, *_REPORTS):
                remove(self.folder / name)
        if earlier is not None:
            self.state = replace(self.state, files=earlier.files)
        self.state.write(self.folder)

    def _resume(self, earlier: RunState | None, identity: dict[str, Any]) -> None:
        checkpoint = self.find_checkpoint()
        if checkpoint is None:
            if earlier is not None and earlier.finished_at_step is not None and self._has_model(earlier):
                raise OutputError(
                    f"the run in {self.folder} is finished and left no checkpoint: replace it with --overwrite"
                )
            return
        self.checkpoint = str(checkpoint)
        if earlier is None:
            return
        step = checkpoint_step(checkpoint) or 0
        changed = self._changes(earlier, identity, step)
        if changed:
            logger.warning("the run resumes with changes, which %s lists", self.folder / RUN_STATE_FILE)
        changes = [*earlier.changes, {"step": step, "changed": changed}] if changed else earlier.changes
        self.state = RunState(identity, changes)

    def _changes(self, earlier: RunState, identity: dict[str, Any], step: int) -> dict[str, tuple[Any, Any]]:
        """Return how an identity differs from the recorded one; raise an error unless changes are allowed."""
        changed = differences(earlier.identity, identity)
        optimizers = {*changed.get("optim", ())}
        if step and "sgd" not in optimizers and not optimizers <= _SAME_STATE:  # SGD neither has nor reads a state
            old, new = changed["optim"]
            raise OutputError(
                f"the run in {self.folder} has a state of the optimizer {_text(old)} since step {step}, which "
                f"{_text(new)} cannot read: restore optim, or begin another run from a checkpoint's weights by --model"
            )
        if changed and not self.allow_changes:
            shown = [f"{name} {_text(old)}, now {_text(new)}" for name, (old, new) in [*changed.items()][:_SHOWN]]
            more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
            raise OutputError(
                f"the run in {self.folder} changed since step {step}: {'; '.join(shown)}{more}: restore this, or give "
                "--resume_with_changes (from Python: allow_changes=True), which records it"
            )
        return changed

    def _has_model(self, state: RunState) -> bool:
        return all((self.folder / name).exists() for name in state.files if name != "README.md")


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
