"""Find the checkpoints of a run, and refuse to open the output folder of an unfinished run as a model."""

from __future__ import annotations

import json
from pathlib import Path

from hf_xsent.errors import ModelError

RUN_STATE_FILE = "run_state.json"
CHECKPOINT = "checkpoint-"


def checkpoints_of(folder: str | Path) -> list[Path]:
    """List the checkpoints of a run, the newest first."""
    found = [
        path for path in Path(folder).glob(f"{CHECKPOINT}*") if path.is_dir() and checkpoint_step(path) is not None
    ]
    return sorted(found, key=lambda path: checkpoint_step(path) or 0, reverse=True)


def checkpoint_step(checkpoint: Path) -> int | None:
    """Return the step that a checkpoint's name states, None if it states none."""
    number = checkpoint.name.removeprefix(CHECKPOINT)
    return int(number) if number.isdecimal() and number.isascii() else None


def check_finished(folder: str | Path) -> None:
    """Raise an error for the output folder of an unfinished run; it names the newest checkpoint that can be opened."""
    folder = Path(folder)
    try:
        state = json.loads((folder / RUN_STATE_FILE).read_text(encoding="utf-8"))
        unfinished = state["finished_at_step"] is None  # config.json and weights may be of an earlier run
    except (OSError, ValueError, LookupError, TypeError):
        unfinished = False
    checkpoints = checkpoints_of(folder)
    if not unfinished and ((folder / "config.json").exists() or not checkpoints):
        return
    complete = [one for one in checkpoints if (one / "config.json").is_file() and any(one.glob("*.safetensors"))]
    other = f"give its newest checkpoint {complete[0]}, or" if complete else "it has no checkpoint to open:"
    raise ModelError(
        f"the run in {folder} is unfinished: {other} finish it by the command that started it and --resume"
    )
