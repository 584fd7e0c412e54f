"""Check the recipes of a study as ``hf-xsent pretrain`` would, and plan its runs, before any training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from hf_xsent.comparison.runs import Run, run_folder
from hf_xsent.comparison.study import Budget, Method, Study
from hf_xsent.errors import HfXsentError, RecipeError
from hf_xsent.models.dual_pivot import DualPivotConfig
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_encoder_config, load_tokenizer
from hf_xsent.training.bitext import load_train_and_dev
from hf_xsent.training.plan import Plan
from hf_xsent.training.recipe import build_recipe

TRIAL_STEPS, DISCARDED_STEPS = 10, 3  # to measure the cost of a method's steps; the first steps are warm-up


@dataclass(frozen=True)
class CheckedMethod:
    """A checked method with one pooling."""

    method: Method
    pooling: str
    recipe: dict[str, Any]  # without model, pooling, seed and steps
    plan: Plan | None  # None for an untrained method


def check_methods(study: Study, cache_dir: Path) -> list[CheckedMethod]:
    """Check each recipe as ``hf-xsent pretrain`` would, before data is read."""
    family(load_encoder_config(study.model))
    tokenizer = load_tokenizer(study.model)  # one for all: that of XLM-R takes 240 MB
    return [
        _check(study, method, pooling, cache_dir, tokenizer) for method in study.methods for pooling in method.poolings
    ]


def _check(study: Study, method: Method, pooling: str, cache_dir: Path, tokenizer: Any) -> CheckedMethod:
    if not method.trained:
        if method.settings.get("method") == "dual-pivot":
            _check_untrained_pivot(study.model, method, pooling)
        return CheckedMethod(method, pooling, method.settings, None)
    settings = {"cache_dir": str(cache_dir)} | method.settings
    needed = {"model": study.model, "pooling": pooling, "output_dir": str(cache_dir / "none"), "max_steps": 1}
    try:
        plan = replace(Plan.of(build_recipe([settings, needed])), tokenizer=tokenizer)
    except HfXsentError as error:
        raise type(error)(f"methods.{method.name}: {error}") from error
    return CheckedMethod(method, pooling, settings, plan)


def _check_untrained_pivot(model: str, method: Method, pooling: str) -> None:
    layers = method.settings.get("layers", [])
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise RecipeError(f"methods.{method.name}.layers takes a list of numbers, not {layers!r}")
    try:
        settings = untrained_settings(method.settings)
        DualPivotConfig(encoder_config=load_encoder_config(model), pooling=pooling, **settings)
    except RecipeError as error:
        raise RecipeError(f"methods.{method.name}: {error}") from error


def untrained_settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an untrained dual pivot: the plain average of its layers, without a linear map."""
    stated = {key: recipe[key] for key in ("layers", "max_length") if recipe.get(key) is not None}
    return stated | {"layer_mix": False, "linear_map": False}


def check_data(variants: Iterable[CheckedMethod]) -> None:
    """Read the bitext into the cache, and check that it has the word links and languages that each method needs."""
    read: dict[str, Any] = {}
    for variant in variants:
        if variant.plan is not None:
            arguments = variant.plan.recipe.data
            if str(arguments) not in read:
                read[str(arguments)] = load_train_and_dev(arguments)
            try:
                variant.plan.check_data(*read[str(arguments)])
            except HfXsentError as error:
                raise type(error)(f"methods.{variant.method.name}: {error}") from error


def plan_runs(
    study: Study,
    variants: Iterable[CheckedMethod],
    output: Path,
    identities: Mapping[str, str],
    step_minutes: Callable[[Run], float],
) -> list[Run]:
    """Plan the runs: untrained methods first, then all methods and poolings seed by seed.

    For budgets in minutes, ``step_minutes`` measures the cost of a step in a short run.
    """

    def run(variant: CheckedMethod, seed: int | None, recipe: dict[str, Any], of_study: bool = True) -> Run:
        runs = output / ("runs" if of_study else "pace")
        return Run(
            folder=run_folder(runs, variant.method.name, variant.pooling, seed, study.model, recipe),
            method=variant.method.name,
            pooling=variant.pooling,
            seed=seed,
            model=study.model,
            recipe=recipe,
            tasks=study.tasks if of_study else {},
            identities=dict(identities) if of_study else {},
            keep_model=of_study and study.keep_models,
        )

    planned: list[tuple[int, Run]] = []
    for variant in variants:
        if variant.plan is None:
            planned.append((-1, run(variant, None, variant.recipe)))
            continue
        training = variant.plan.recipe.training
        pairs_a_step = training.train_batch_size * training.gradient_accumulation_steps
        if study.budget.unit == "minutes":
            trial = run(variant, variant.method.seeds[0], variant.recipe | _TRIAL, of_study=False)
            steps = round(study.budget.amount / step_minutes(trial))
        else:
            steps = steps_of(study.budget, pairs_a_step)
        recipe = variant.recipe | {"max_steps": max(1, steps)}
        planned += [(number, run(variant, seed, recipe)) for number, seed in enumerate(variant.method.seeds)]
    return [one for _, one in sorted(planned, key=lambda numbered: numbered[0])]


_TRIAL = {"max_steps": TRIAL_STEPS, "logging_steps": 1, "eval_strategy": "no", "save_strategy": "no"}


def steps_of(budget: Budget, pairs_a_step: int) -> int:
    """Convert a budget of steps or pairs to steps, rounded up."""
    return int(budget.amount) if budget.unit == "steps" else math.ceil(budget.amount / pairs_a_step)


def step_minutes(trial: Run) -> float | None:
    """Return the median cost of a step of a short run, in CPU minutes on a CPU and in minutes otherwise.

    CPU minutes do not depend on what else runs on the machine. The cost is None if the run has not finished.
    """
    clock = "seconds" if torch.accelerator.is_available() and not trial.recipe.get("use_cpu") else "cpu_seconds"
    ends = [line[clock] for line in trial.metrics() if "pairs_per_second" in line]
    if len(ends) != TRIAL_STEPS:
        return None
    return statistics.median(end - start for start, end in pairwise(ends[DISCARDED_STEPS - 1 :])) / 60
