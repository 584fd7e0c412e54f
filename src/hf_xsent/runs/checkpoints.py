"""Find the checkpoints of a training run, and refuse to open the output folder of an unfinished run as a model."""

from __future__ import annotations

import json
from pathlib import Path

from hf_xsent.errors import ModelError

RUN_STATE_FILE = "run_state.json"
CHECKPOINT = "checkpoint-"


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
    folder = Path(folder)
    try:
        state = json.loads((folder / RUN_STATE_FILE).read_text(encoding="utf-8"))
        if state["finished_at_step"] is not None:
            return
    except (OSError, ValueError, LookupError, TypeError):
        return  # no run: whoever loads it names what is missing
    checkpoints = checkpoints_of(folder)
    other = f"give its newest checkpoint {checkpoints[0]}, or" if checkpoints else "it has no checkpoint to open:"
    raise ModelError(
        f"the run in {folder} is unfinished: {other} finish it by the command that started it and --resume"
    )
