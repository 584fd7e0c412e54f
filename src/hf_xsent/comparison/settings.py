"""Declare the keys of a study, which are the settings of ``compare``, without importing torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """Train several methods with the same budget, evaluate them, and write one report.

    hf-xsent compare study.yaml --output runs/study
    hf-xsent compare benchmarks/studies/dap.yaml --model ENCODER --data "train/{language}-en.tsv" --budget.steps 50

    A flag replaces a value of the study, which is a YAML file; --methods.DAP.learning_rate 1e-4 replaces one inside.

    Interrupted? The same command resumes. A finished run is repeated only if its settings or data changed. The report
    (report.html, report.md, report.json) is updated after each run. To use several GPUs or cores, start the
    command once for each: the processes share the runs, and none is done twice.
    """

    model: str | None = setting(
        None, "Starting encoder of the methods that name no other: a Hub id or a folder.", required=True
    )
    data: list[str] | None = setting(
        None, "Training pairs, in the format of pretrain --data.", named=True, metavar="CODE=FILE", required=True
    )
    budget: dict[str, Any] | None = setting(
        None, "Training of each method: steps or pairs, such as --budget.steps 100.", required=True
    )
    methods: dict[str, Any] | None = setting(
        None,
        "For each method, by name, changes to the recipe, and optionally its own model, recipe file, poolings, seeds, "
        "or train: false.",
        required=True,
    )
    tasks: dict[str, Any] | None = setting(
        None,
        "Tasks with their options: data, languages, and of some tasks max_pairs (pairs, mixed_pool, "
        "xsim, language_probe), target_language (pairs), choose (word_alignment).",
        required=True,
    )
    title: str | None = setting(None, "Heading of the report. (default: the name of the study)")
    settings: dict[str, Any] | None = setting(
        None, "Recipe file of the methods that name no other one, and changes to the recipe of all. (default: none)"
    )
    poolings: list[str] | None = setting(
        None, "Poolings of sentence embeddings. (default: that of the recipe file, else of the start, else mean)"
    )
    seeds: list[int] = setting([0], "Random seeds.", required=True, at_least=0, at_most=2**32 - 1)
    output: str | None = setting(
        None,
        "Write runs and report into this folder. (default: runs/ and the study's name)",
        metavar="FOLDER",
        local=True,
        aliases=("o",),
    )
    dry_run: bool = setting(False, "Validate and list the runs, and estimate the time of training.", results=False)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The amount of training of every method: one of the two."""

    steps: int | None = setting(None, "Updates.", above=0)
    pairs: int | None = setting(None, "Pairs, rounded up to a whole step.", above=0)

    def steps_of(self, pairs_a_step: int) -> int:
        """Return the number of steps, rounded up."""
        return self.steps or math.ceil((self.pairs or 0) / pairs_a_step)

    def __str__(self) -> str:
        return f"{self.steps:,} steps" if self.steps else f"{self.pairs:,} pairs"


@dataclass(frozen=True, kw_only=True)
class MethodSettings:
    """What a method states besides changes to the recipe."""

    recipe: str | None = setting(None, "Name of a recipe of the package, or a file, relative to the study.")
    train: bool = setting(True, "Train; false measures the starting encoder.")
    poolings: list[str] | None = setting(None, "Poolings of sentence embeddings.")
    seeds: list[int] = setting([0], "Random seeds.", required=True, at_least=0, at_most=2**32 - 1)
