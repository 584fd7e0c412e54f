"""Store the job, results and failure of a run in a folder whose name hashes the recipe and the data."""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from hf_xsent.data.bitext import resolve_sources
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.readers.sources import source_files
from hf_xsent.evaluation.task import Outcomes
from hf_xsent.files import digest, file_digest, is_local, write_json
from hf_xsent.models.fingerprint import fingerprint_model
from hf_xsent.runs.run import METRICS_FILE
from hf_xsent.training.callbacks import last_step, read_metrics

logger = logging.getLogger(__name__)

JOB_FILE, FAILURE_FILE, LOG_FILE = "run.json", "failure.json", "log.txt"
LOCATION_KEYS = (
    "cache_dir",
    "features",
    "output_dir",
    "report_to",
)  # not part of the hash of a run, because they do not change its results (except features=none, see `run_folder`)


@dataclass(frozen=True)
class Run:
    """One method with one pooling and seed; its process reads it from ``run.json`` in the run's folder."""

    folder: Path
    method: str
    pooling: str
    seed: int | None  # None: nothing is trained
    model: str  # the starting encoder
    recipe: dict[str, Any]  # of hf-xsent pretrain; for an untrained method, at most UNTRAINED_PIVOT_KEYS
    tasks: dict[str, dict[str, Any]]  # options by name
    identities: dict[str, str]  # of the tasks
    keep_model: bool

    @property
    def name(self) -> str:
        """Name the run for logs and tables."""
        return f"{self.method}, {self.pooling}" + ("" if self.seed is None else f", seed {self.seed}")

    @property
    def training(self) -> Path:
        """Return the output folder of training."""
        return self.folder / "training"

    @property
    def has_model(self) -> bool:
        """Return whether the model to measure exists; an untrained method measures the starting encoder."""
        return self.seed is None or (self.training / "model.safetensors").is_file()

    @property
    def finished(self) -> bool:
        """Return whether all tasks are measured; without tasks, whether training is complete."""
        return all(self.scores(task) is not None for task in self.tasks) if self.tasks else self.has_model

    @property
    def stage(self) -> str:
        """Return the current stage."""
        return "measuring" if self.has_model else "training"

    @property
    def steps(self) -> int:
        """Return the number of training steps."""
        return int(self.recipe["max_steps"]) if self.seed is not None else 0

    @property
    def steps_done(self) -> int:
        """Return the last step that training logged."""
        return last_step(self.training / METRICS_FILE)

    @property
    def published_recipe(self) -> dict[str, Any]:
        """Return the recipe without places of this machine."""
        return {key: value for key, value in self.recipe.items() if key not in LOCATION_KEYS}

    def scores_file(self, task: str) -> Path:
        """Return the file of the scores on a task."""
        return self.folder / "scores" / f"{task}.json"

    def scores(self, task: str) -> dict[str, Any] | None:
        """Read the scores on a task; None if they are damaged, or were measured on other sentences than the task's."""
        content = _read_json(self.scores_file(task))
        return content if content is not None and content["identity"] == self.identities[task] else None

    def outcomes_file(self, task: str) -> Path:
        """Return the file of the outcomes of all test items."""
        return self.folder / "scores" / f"{task}.npz"

    def outcomes(self, task: str) -> Outcomes | None:
        """Read the outcomes of all test items, if they were saved with the scores and are not damaged."""
        scores = self.scores(task)
        if scores is None or "members" not in scores or not self.outcomes_file(task).is_file():
            return None
        try:
            with np.load(self.outcomes_file(task), allow_pickle=False) as file:
                return Outcomes({name: file[name] for name in file.files}, scores["members"])
        except (OSError, EOFError, ValueError, BadZipFile, zlib.error):
            known, folder = self.outcomes_file(task), self.scores_file(task).parent
            logger.warning("%s is damaged: delete %s to measure the run again", known, folder)
            return None

    def metrics(self) -> list[dict[str, Any]]:
        """Read the lines that training has logged."""
        return read_metrics(self.training / METRICS_FILE)

    def failure(self) -> dict[str, Any] | None:
        """Read exit code and message of the last attempt if it failed."""
        return _read_json(self.folder / FAILURE_FILE)

    def failed_since(self, time: float) -> bool:
        """Return whether an attempt has failed since a time in seconds since the epoch."""
        file = self.folder / FAILURE_FILE
        return file.is_file() and file.stat().st_mtime >= time

    def write_job(self) -> None:
        """Write the job for the run's process, and delete an earlier failure."""
        write_json(self.folder / JOB_FILE, {**asdict(self), "folder": str(self.folder)})
        (self.folder / FAILURE_FILE).unlink(missing_ok=True)

    def record_failure(self, exit_code: int, message: str) -> None:
        """Write exit code and message of a failed process."""
        failure = {"while": self.stage, "exit_code": exit_code, "message": message}
        write_json(self.folder / FAILURE_FILE, failure)

    @classmethod
    def read(cls, folder: str | Path) -> Run:
        """Read the run that ``write_job`` wrote."""
        content = json.loads((Path(folder) / JOB_FILE).read_text(encoding="utf-8"))
        return cls(**{**content, "folder": Path(folder)})


def run_folder(runs: Path, method: str, pooling: str, seed: int | None, model: str, recipe: Mapping[str, Any]) -> Path:
    """Return the folder of a run, named by method and a hash of what determines its model.

    The hash covers the settings and the contents of the starting encoder's and the data's files.
    """
    decides = {key: value for key, value in recipe.items() if key not in LOCATION_KEYS}
    decides |= {key: _bitext_hashes(recipe, key) for key in ("data", "dev") if recipe.get(key)}
    decides |= {"rules": [recipe["rules"], _rule_hashes(recipe["rules"])]} if recipe.get("rules") else {}
    decides |= {"unpaired": [content_hash(file) for file in recipe["unpaired"]]} if recipe.get("unpaired") else {}
    decides |= (
        {"features": "none"} if recipe.get("features") == "none" else {}
    )  # without the cache, features are float32, not float16
    if isinstance(recipe.get("objectives"), Mapping):
        decides["objectives"] = dict(recipe["objectives"])
        for name, one in recipe["objectives"].items():
            if isinstance(one, Mapping) and one.get("teacher"):
                decides["objectives"][name] = {**one, "teacher": content_hash(one["teacher"])}
    decides.pop("links", None)  # hashed with the data
    content = digest([content_hash(model), pooling, seed, decides])[:8]
    for known in sorted(runs.glob(f"*-{content}")):
        return known  # even if the method was renamed
    name = re.sub(r"[^a-z0-9.]+", "-", f"{method} {pooling} {'' if seed is None else seed}".lower()).strip("-")
    return runs / f"{name}-{content}"


def content_hash(name: str) -> str:
    """Hash a file, or the model in a folder; return a Hub id unchanged."""
    path = Path(name)
    if path.is_dir():
        return fingerprint_model(name)
    return file_digest(path) if is_local(path) else name


def _rule_hashes(rules: Sequence[str]) -> list[str]:
    """Return hashes of the files that cleaning rules name."""
    return [file_digest(file) for file in CleaningRules.parse(rules).files()]


def _bitext_hashes(recipe: Mapping[str, Any], key: str) -> list[list[str]]:
    """Return language, columns, and hashes of the data file and the word links of each source."""
    columns = recipe.get("columns") or (None, None)
    links = recipe.get("links") if key == "data" else None
    sources = resolve_sources(recipe[key], links=links, target_language=recipe.get("target_language", "en"))
    found = []
    for language, some in sources.items():
        for source in some:
            files = [*source_files(source), *([Path(source.links)] if source.links else [])]
            hashes = [file_digest(file) for file in files] or [source.path]  # a Hub id
            found.append([language, *map(str, columns), *hashes])
    return found


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content
