"""Describe one run of a study: its folder, whose name hashes what decides its results, and what the folder holds."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hf_xsent.comparison.study import run_settings, unmeasured
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.readers.hub import hub_commit
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.evaluation.report import Measurement
from hf_xsent.files import digest, is_local, write_json
from hf_xsent.runs.identity import deciding_settings, identify_files, identify_model, plain
from hf_xsent.runs.run import METRICS_FILE, RunState
from hf_xsent.runs.store import Store
from hf_xsent.training.bitext import SPLITS
from hf_xsent.training.callbacks import read_metrics
from hf_xsent.training.identity import identify_method, identify_training
from hf_xsent.training.recipe import Recipe, build_recipe, recipe_settings
from hf_xsent.training.retention import identify_retention

_OF_STARTS = {"method", "pooling", "max_length", "layers", "prompts", "default_prompt_name"}  # what decides embeddings
JOB_FILE, FAILURE_FILE, LOG_FILE = "run.json", "failure.json", "log.txt"


@dataclass(frozen=True)
class Run:
    """One method with one pooling and seed; its process reads it from ``run.json`` in the run's folder."""

    folder: Path
    method: str
    pooling: str
    seed: int | None  # None: nothing is trained
    recipe: dict[str, Any]  # of hf-xsent pretrain
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)  # options by name
    identities: dict[str, str] = field(default_factory=dict)  # of the tasks: hashes of their sentences

    @property
    def name(self) -> str:
        """Name the run for logs and tables."""
        return f"{self.method}, {self.pooling}" + ("" if self.seed is None else f", seed {self.seed}")

    @property
    def model(self) -> str:
        """Return the starting encoder."""
        return str(self.recipe["model"])

    @property
    def training(self) -> Path:
        """Return the output folder of training."""
        return self.folder / "training"

    def settings(self) -> dict[str, Any]:
        """Return the recipe with the settings that the study sets."""
        steps = self.steps or -1  # pretrain refuses 0
        return self.recipe | run_settings(self.pooling, self.seed, steps, str(self.training))

    @property
    def has_model(self) -> bool:
        """Return whether training is finished and has left the model; an untrained method measures the start."""
        state = RunState.read(self.training)
        finished = state is not None and state.finished_at_step is not None and state.problem is None
        return self.seed is None or (finished and (self.training / "model.safetensors").is_file())

    @property
    def finished(self) -> bool:
        """Return whether all tasks are measured; without tasks, whether training is complete."""
        return not self.scores.missing(map(self.scores_file, self.tasks)) if self.tasks else self.has_model

    @property
    def steps(self) -> int:
        """Return the number of training steps."""
        return int(self.recipe["max_steps"])

    @property
    def scores(self) -> Store:
        """Return the store of the scores on each task."""
        return Store(self.folder / "scores")

    def scores_file(self, task: str) -> str:
        """Name the scores on a task; those on other sentences have another name."""
        return f"{task}-{self.identities[task]}.npz"

    def measurement(self, task: str) -> Measurement | None:
        """Read the scores on a task, if it is measured."""
        name = self.scores_file(task)
        return None if self.scores.missing([name]) else self.scores.read(name, Measurement.read)

    @property
    def published_recipe(self) -> dict[str, Any]:
        """Return the recipe without settings of this machine."""
        return {key: value for key, value in self.recipe.items() if not recipe_settings()[key].metadata.get("local")}

    def metrics(self) -> list[dict[str, Any]]:
        """Read the lines that training has logged."""
        return read_metrics(self.training / METRICS_FILE)

    def failure(self) -> dict[str, Any] | None:
        """Read exit code and message of the last attempt if it failed."""
        try:
            content: dict[str, Any] = json.loads((self.folder / FAILURE_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return content

    def write_job(self) -> None:
        """Write the job for the run's process, and delete an earlier failure."""
        write_json(self.folder / JOB_FILE, {**asdict(self), "folder": str(self.folder)})
        (self.folder / FAILURE_FILE).unlink(missing_ok=True)

    def record_failure(self, exit_code: int, message: str) -> None:
        """Write exit code and message of a failed process."""
        write_json(self.folder / FAILURE_FILE, {"exit_code": exit_code, "message": message})

    @classmethod
    def read(cls, folder: str | Path) -> Run:
        """Read the run that ``write_job`` wrote."""
        content = json.loads((Path(folder) / JOB_FILE).read_text(encoding="utf-8"))
        return cls(**{**content, "folder": Path(folder)})


def run_folder(runs: Path, run: Run) -> Path:
    """Return the folder of a run, named by method and a hash of what decides its results: ``bf16: auto`` as stated."""
    settings = run.settings()
    identity = identify_recipe(build_recipe([unmeasured(settings)]), trained=run.seed is not None)
    content = digest([plain(identity | ({"half": "auto"} if settings.get("bf16") == "auto" else {}))])[:8]
    for folder in sorted(runs.glob(f"*-{content}")):
        return folder  # even if the method was renamed
    name = f"{run.method} {run.pooling} {'' if run.seed is None else run.seed}"
    return runs / f"{re.sub(r'[^a-z0-9.]+', '-', name.lower()).strip('-')}-{content}"


def identify_recipe(recipe: Recipe, trained: bool) -> dict[str, Any]:
    """Return the settings of a recipe that decide its results, with the contents of the files that it names."""
    training, data, method = recipe.training, recipe.data, identify_method(recipe.config)
    identity: dict[str, Any] = {"model": identify_model(str(recipe.start.model))}
    features = {None: False, "none": True}.get(data.features, "float16")  # a stated folder also caches test texts
    identity |= {"half": training.bf16 or training.fp16, "features": features}
    if not trained:
        return identity | {name: method[name] for name in method if name.partition(".")[0] in _OF_STARTS}
    identity |= {"method": method, "training": identify_training(training) | identify_retention(training)}
    rules = CleaningRules.parse(data.rules, data.clean)
    tokenizer = None if is_local(rules.tokenizer or "") else rules.tokenizer  # its files are read below
    identity["data"] = deciding_settings(data) | {
        "rules": [asdict(replace(rules, exclude=None, tokenizer=tokenizer)), identify_files(rules.files())],
        **{name: _identify_bitext(recipe, getattr(data, name), split) for name, split in SPLITS.items()},
        "unpaired": data.unpaired and identify_files(data.unpaired),
    }
    return identity


def _identify_bitext(recipe: Recipe, bitext: Any, split: str) -> list[list[str]]:
    """Return language, and a hash of the data files of each source; the id and commit of a Hub data set."""
    sources = resolve_sources(bitext, target_language=recipe.data.target_language, split=split) if bitext else {}
    identities = []
    for language, of_language in sources.items():
        for source in of_language:
            files, path = source.files, source.path
            identities.append([language, identify_files(files) if files else f"{path} {hub_commit(path)}"])
    return identities
