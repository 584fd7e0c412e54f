"""Remember what a run starts from, also when it resumes in the process that it was interrupted in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_xsent.errors import RecipeError
from hf_xsent.runs.origin import Origin
from hf_xsent.runs.run import Run, checkpoints_of


@dataclass
class StartOfRun:
    """What a run starts from; the encoder keeps it, since its weights are others after an interruption."""

    folder: Path  # the output folder
    origin: Origin
    values: dict[str, Any] | None = None  # what the run needs of the model before training

    @classmethod
    def find(cls, model: Any, run: Run) -> StartOfRun:
        """Return the start of a run: of the model now, unless it resumes a run that trained this model before."""
        known: StartOfRun | None = getattr(model.encoder, "start_of_run", None)
        if run.resume and checkpoints_of(run.folder) and known is not None and known.folder == run.folder:
            return known
        origin = Origin.of(model)
        if origin.name is not None and Path(origin.name).resolve() == run.folder.resolve():
            origin = replace(origin, name=None)  # an earlier call of train wrote the model that this one replaces
        return cls(run.folder, origin)

    def values_of(self, needs: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Return what the run needs of the model before training, computed when the run begins."""
        if self.values is None:
            self.values = {name: of_now() for name, of_now in needs.items()}
        for name in needs.keys() - self.values.keys():
            raise RecipeError(f"{name} needs the weights before training, which the model no longer has: open it again")
        return self.values
