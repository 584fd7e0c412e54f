"""State what is known of a model: its trainings, how it was changed since, its results, and what its user states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hf_xsent.data.bitext import NOT_STATED
from hf_xsent.errors import ModelError
from hf_xsent.files import write_json
from hf_xsent.models.sentence_transformer_files import read_json
from hf_xsent.runs.run import RUN_FACTS

_MEASURED = {
    "accuracy": "Accuracy@1 on dev pairs",
    "beside": "Beside the query's language, it",
    "retention": "The score within languages",
}


@dataclass(frozen=True)
class Stage:
    """One training: its recipe, what it read, its steps, and what was measured before and after it."""

    recipe: Mapping[str, Any] = field(default_factory=dict)
    languages: Sequence[str] = ()
    continues: str = ""  # the model that an earlier stage trained
    steps: int = 0
    epochs: float = 0.0
    read_per_step: int = 0  # pairs, or unpaired sentences of each side
    changed_at: int | None = None  # the step at which it resumed with other data, which are those stated
    best_step: int | None = None  # that of the weights, if it is not the last
    share_of_start: float | None = None  # of the start, with which the weights are averaged
    pairs: Mapping[str, int] = field(default_factory=dict)  # by language
    ledger: Mapping[str, int] = field(default_factory=dict)  # pairs by origin and licence, if any is stated
    unpaired: Mapping[str, Sequence[int]] = field(default_factory=dict)  # sentences of both sides, by language
    measured: Mapping[str, Sequence[float]] = field(default_factory=dict)  # by name in ``_MEASURED``: before, after

    def sentences(self) -> list[str]:
        """State the steps, what was read besides pairs, and which weights are those of the model."""
        if not self.steps:
            return []
        read = "unpaired sentences per side" if self.unpaired else "pairs"
        said = [f"Training took {self.steps:,} steps of {self.read_per_step:,} {read} ({self.epochs:.2f} epochs)."]
        said += self.sentences_on_data("It")
        best, share = self.best_step, self.share_of_start
        weights = [] if best is None else [f"those of step {best:,}, the best on the dev pairs"]
        weights += [] if share is None else [f"averaged with those of the start, whose share is {share:g}"]
        return [*said, f"The weights are {', '.join(weights)}."] if weights else said

    def sentences_on_data(self, training: str) -> list[str]:
        """State the unpaired text that a training read, which the sentence names, and when its data changed."""
        target, said = self.recipe.get("target_language"), []
        if self.changed_at is not None:
            said = [f"{training} changed its data at step {self.changed_at:,}: languages and counts are those since."]
        return said + [
            f"{training} read {source:,} sentences in {language} and {count:,} in {target}, which are unpaired."
            for language, (source, count) in self.unpaired.items()
        ]


@dataclass(frozen=True)
class ModelFacts:
    """What the card of a model states, besides how it encodes; a folder stores it as ``training.json``."""

    stages: Sequence[Stage] = ()  # the last is the one whose recipe the card has
    languages: Sequence[str] = ()
    base_model: str = ""  # its id on the Hub
    local_start: str = ""  # the name of a start that is not there
    averaged: Sequence[str] = ()  # names of the models whose weights were averaged; the last stage is that of the first
    vocabulary: str = ""  # how it was trimmed
    language_removed: Sequence[str] = ()  # the languages of the texts by which
    exported_from: str = ""  # the fingerprint of the run that embeds equally, whose results are those of the export
    results: Sequence[Mapping[str, Any]] = ()
    license: str = ""
    name: str = ""
    datasets: Sequence[str] = ()

    @classmethod
    def read(cls, folder: str | Path) -> ModelFacts:
        """Return the facts that a run, a checkpoint or an export stores; none if there are none."""
        stored: dict[str, Any] = dict(read_json(str(folder), RUN_FACTS)) if folder and Path(folder).is_dir() else {}
        try:
            return cls(**stored | {"stages": tuple(Stage(**stage) for stage in stored.get("stages", ()))})
        except TypeError:
            raise ModelError(f"{folder} has no readable {RUN_FACTS}: train or export the model again") from None

    def write(self, folder: str | Path) -> None:
        """Store the facts in the folder of a model."""
        write_json(Path(folder) / RUN_FACTS, {name: fact for name, fact in asdict(self).items() if fact})

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The recipe of the last stage; empty if the model was not trained, or by others."""
        return self.stages[-1].recipe if self.stages else {}

    @property
    def pairs(self) -> dict[str, int]:
        """The pairs of all stages by language."""
        total = Counter[str]()
        for stage in self.stages:
            total.update(stage.pairs)
        return dict(total)

    @property
    def ledger(self) -> dict[str, int]:
        """The pairs of all stages by origin and licence; empty if none states any."""
        total = Counter[str]()
        for stage in self.stages:
            total.update(stage.ledger or ({NOT_STATED: sum(stage.pairs.values())} if stage.pairs else {}))
        return {} if {*total} == {NOT_STATED} else dict(total)

    @property
    def unpaired(self) -> bool:
        """Whether a stage read unpaired text."""
        return any(stage.unpaired for stage in self.stages)

    def sentences(self) -> list[str]:
        """State the last stage, what it continued, how the weights were changed since, and what was measured."""
        last = self.stages[-1] if self.stages else Stage()
        said = last.sentences()
        if last.continues:
            counts = "pairs and languages are of all stages, recipe and steps of the last"
            said.append(f"It continued the training of {last.continues}: {counts}.")
        if self.averaged:
            first = f" Recipe and steps are those of {self.averaged[0]}; a pair is counted for each of the models that "
            counts = f"{first}was trained on it." if self.stages else ""
            said.append(f"The weights are the mean of those of {', '.join(self.averaged)}.{counts}")
        for stage in self.stages[:-1]:
            said += stage.sentences_on_data("Another of its trainings")
        said += [self.vocabulary] if self.vocabulary else []
        for name, what in _MEASURED.items():
            if name in last.measured:
                before, after = last.measured[name]
                said.append(f"{what} was {before:.2f} before training and is {after:.2f} after it.")
        return said

    def not_measured(self) -> ModelFacts:
        """Return the facts of other weights or embeddings than those that training measured."""
        return replace(self, stages=[replace(stage, measured={}) for stage in self.stages])


def without_folders(value: Any) -> Any:
    """Reduce absolute paths, which may be private, to their last name.

    >>> without_folders({"data": ["de=/home/me/a.de, /home/me/a.en"], "model": "/models/e5", "dev": "dev/de.tsv"})
    {'data': ['de=a.de, a.en'], 'model': 'e5', 'dev': 'dev/de.tsv'}
    """
    if isinstance(value, str):
        return re.sub(r"(?:(?<=[=,])|(?<=[=,] )|(?<!.))/(?:[^,]*/)?(?=[^,/])", "", value)
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    return [without_folders(item) for item in value] if isinstance(value, list | tuple) else value
