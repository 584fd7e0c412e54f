"""Read and check a study: a YAML file of methods, budget, seeds, poolings and tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xsent.comparison.tasks import check_tasks
from hf_xsent.errors import RecipeError, shortened
from hf_xsent.objectives.registry import merge_objectives
from hf_xsent.settings.read import check_known
from hf_xsent.settings.secrets import refuse_secrets
from hf_xsent.settings.yaml12 import parse_yaml, read_mapping
from hf_xsent.tensors.packing import POOLINGS
from hf_xsent.training.recipe import recipe_settings

NEEDED = ("model", "data", "budget", "methods", "tasks")
STUDY_KEYS = (*NEEDED, "title", "recipe", "settings", "poolings", "seeds", "keep_models", "plot")
METHOD_KEYS = ("recipe", "train", "poolings", "seeds")  # keys of a method, besides those of a recipe
UNTRAINED_KEYS = ("max_length", "bf16", "fp16")  # settings of an untrained encoder
UNTRAINED_PIVOT_KEYS = (*UNTRAINED_KEYS, "method", "layers", "features")
BUDGETS = ("steps", "pairs", "minutes")
NOT_IN_A_STUDY = {  # recipe keys that a study refuses: what to do instead
    "model": "give the study's `model` instead",
    "pooling": "use poolings",
    "seed": "use seeds",
    "max_steps": "use budget",
    "num_train_epochs": "use budget",
    "output_dir": "use hf-xsent compare --output",
    "resume": "remove it, every run resumes",
    "overwrite": "remove it, and choose another --output to train again",
    "dry_run": "use hf-xsent compare --dry_run",
}


@dataclass(frozen=True)
class Budget:
    """The amount of training of every method, in steps, pairs or minutes."""

    unit: str
    amount: float


@dataclass(frozen=True)
class Method:
    """One method of the comparison, with one run per pooling and seed.

    An untrained method is the starting encoder, or the average of its layers (dual pivot).
    """

    name: str
    trained: bool
    settings: dict[str, Any]  # of its recipe, without the keys that the study sets
    poolings: tuple[str, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Study:
    """The checked content of a study file."""

    title: str
    model: str
    budget: Budget
    methods: tuple[Method, ...]
    tasks: dict[str, dict[str, Any]]  # options by name
    keep_models: bool
    plot: str | None = None  # a setting; the report draws each task's main score over it


def read_study(path: str | Path, changes: Sequence[str] = ()) -> Study:
    """Read and check a study file, with ``key=value`` changes such as ``budget.steps=10``."""
    path = Path(path)
    content = read_mapping(path, "study")
    for change in changes:
        _change(content, change)
    refuse_secrets(content, f"{path}: ")  # such as --set settings={hub_token: …}
    try:
        return _study(content, path)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from error


def _change(content: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals:
        raise RecipeError(f"--set takes key=value, such as budget.steps=100, not {change!r}")
    refuse_secrets({key: value, key.rpartition(".")[2]: value}, "--set ")
    *above, last = key.split(".")
    place = content
    for before, part in zip(["", *above], above, strict=False):
        inner = place.get(part)
        if before == "objectives" and isinstance(inner, int | float):
            inner = {"weight": inner}
        place[part] = place = dict(inner) if isinstance(inner, Mapping) else {}
    try:
        place[last] = parse_yaml(value)
    except ValueError as error:
        raise RecipeError(f"--set {key}: the value is not valid YAML") from error


def _study(content: Mapping[str, Any], path: Path) -> Study:
    check_known(content, STUDY_KEYS, "")
    for key in NEEDED:
        if content.get(key) in (None, "", [], {}):
            raise RecipeError(f"{key} is missing: add it to the file, or give --set {key}=…")
    shared = _mapping("settings", content.get("settings", {}))
    _check_settings("settings", shared, [*recipe_settings()])
    defaults = {key: content.get(key, value) for key, value in (("recipe", None), ("poolings", "mean"), ("seeds", 0))}
    methods = tuple(
        _method(str(name), defaults | _mapping(f"methods.{name}", {} if own is None else own), content, shared, path)
        for name, own in _mapping("methods", content["methods"]).items()
    )
    tasks = {name: _mapping(f"tasks.{name}", options) for name, options in _mapping("tasks", content["tasks"]).items()}
    check_tasks(tasks)
    if content.get("plot") is not None:
        check_known([_is("plot", content["plot"], str)], recipe_settings(), "plot: ")
    return Study(
        title=_is("title", content.get("title", path.stem), str),
        model=_is("model", content["model"], str),
        budget=_budget(_mapping("budget", content["budget"])),
        methods=methods,
        tasks=tasks,
        keep_models=_is("keep_models", content.get("keep_models", True), bool),
        plot=content.get("plot"),
    )


def _method(name: str, own: dict[str, Any], content: Mapping[str, Any], shared: dict[str, Any], path: Path) -> Method:
    """Merge the method's recipe file, the study's ``settings`` and the method's own settings; later ones win."""
    at = f"methods.{name}"
    trained = _is(f"{at}.train", own.get("train", True), bool)
    poolings, seeds = _distinct(f"{at}.poolings", own["poolings"]), _distinct(f"{at}.seeds", own["seeds"])
    for pooling in poolings:
        if pooling not in POOLINGS:
            raise RecipeError(f"{at}: unknown pooling {pooling!r}: use {', '.join(POOLINGS)}")
    for seed in seeds:
        _is(f"{at}: a seed", seed, int)
    changes = {key: value for key, value in own.items() if key not in METHOD_KEYS}
    _check_settings(at, changes, [*recipe_settings(), *METHOD_KEYS])
    if not trained:
        settings = shared | changes
        known = UNTRAINED_PIVOT_KEYS if settings.get("method") == "dual-pivot" else UNTRAINED_KEYS
        if stated := [key for key in changes if key not in known]:
            raise RecipeError(f"{at}.{stated[0]}: an untrained method takes no other settings than {', '.join(known)}")
        return Method(name, False, {key: settings[key] for key in known if key in settings}, poolings, ())
    from_file: dict[str, Any] = {}
    if own["recipe"] is not None:
        recipe = path.parent / _is(f"{at}.recipe", own["recipe"], str)
        from_file = read_mapping(recipe)
        check_known(from_file, recipe_settings(), f"{recipe}: ")
        from_file = {key: value for key, value in from_file.items() if key not in NOT_IN_A_STUDY}
    settings = from_file | {"data": content["data"]} | shared | changes
    if isinstance(settings.get("objectives"), dict):
        # the last mapping chooses the objectives; their settings are merged
        objectives: dict[str, Any] = {}
        for one in (from_file, shared, changes):
            if isinstance(one.get("objectives"), dict):
                objectives = merge_objectives(objectives, one["objectives"])
        settings["objectives"] = objectives
    return Method(name, True, settings, poolings, seeds)


def _check_settings(at: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    check_known(settings, known, f"{at}: ")
    for key in settings:
        if key in NOT_IN_A_STUDY:
            raise RecipeError(f"{at}.{key} is not allowed in a study: {NOT_IN_A_STUDY[key]}")


def _budget(stated: Mapping[str, Any]) -> Budget:
    if len(stated) != 1 or next(iter(stated)) not in BUDGETS:
        raise RecipeError(
            f"budget takes one of {', '.join(BUDGETS)}, such as {{steps: 100}}, not {shortened(dict(stated))}"
        )
    ((unit, amount),) = stated.items()
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < math.inf:
        raise RecipeError(f"budget.{unit} takes a number above 0, not {shortened(amount)}")
    if unit != "minutes" and amount != int(amount):
        raise RecipeError(f"budget.{unit} takes a whole number, not {shortened(amount)}")
    return Budget(unit, amount)


def _mapping(at: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise RecipeError(f"{at} takes keys with values, not {shortened(value)}")
    return dict(value)


def _distinct(at: str, value: Any) -> tuple[Any, ...]:
    some = tuple(value) if isinstance(value, list) else (value,)
    if not some or len(set(map(str, some))) != len(some):
        raise RecipeError(f"{at} takes one or more different values, not {shortened(value)}")
    return some


def _is(at: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RecipeError(f"{at} takes {kind.__name__}, not {shortened(value)}")
    return value
