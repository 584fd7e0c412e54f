"""Read and check a study: methods, budget, seeds, poolings and tasks, each recipe as ``pretrain`` would check it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from hf_xsent.comparison.settings import Budget, CompareSettings, MethodSettings
from hf_xsent.data.benchmarks.collection import store_collection
from hf_xsent.data.bitext import Bitext
from hf_xsent.data.readers.sources import cache_folder
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import HfXsentError, RecipeError, did_you_mean, shortened
from hf_xsent.evaluation.pairs import PairsTask
from hf_xsent.evaluation.registry import check_options, task_options
from hf_xsent.evaluation.retrieval import RetrievalTask
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.objectives.registry import merge_objectives
from hf_xsent.settings.declare import settings_of
from hf_xsent.settings.read import Flags, read_settings
from hf_xsent.settings.recipes import recipe_file
from hf_xsent.settings.yaml12 import read_mapping
from hf_xsent.training.bitext import SPLITS, as_files, load_train_and_dev
from hf_xsent.training.plan import Plan
from hf_xsent.training.recipe import build_recipe, check_keys, join_layers
from hf_xsent.training.settings import RunSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Method:
    """One method of the comparison, with one run per pooling and seed."""

    name: str
    recipe: dict[str, Any]  # without the settings that the study sets for each run
    poolings: tuple[str | None, ...]  # None: that of the start, as its recipe file states none
    seeds: tuple[int | None, ...]  # None: nothing is trained


@dataclass(frozen=True)
class Study:
    """The checked content of a study."""

    title: str
    budget: Budget
    methods: tuple[Method, ...]
    tasks: dict[str, dict[str, Any]]  # options by name
    output: Path = Path()
    dry_run: bool = False


class Variant(NamedTuple):
    """A checked method with one pooling."""

    method: Method
    pooling: str
    plan: Plan

    @property
    def pairs_per_step(self) -> int:
        """The pairs of one step, unless the training pairs are fewer."""
        training = self.plan.recipe.training
        return training.train_batch_size * training.gradient_accumulation_steps


def run_settings(pooling: str | None, seed: int | None, steps: int, output_dir: str) -> dict[str, Any]:
    """Return the settings of a recipe that the study sets for each run."""
    return {"pooling": pooling, "seed": seed or 0, "max_steps": steps, "output_dir": output_dir}


_SET_BY_STUDY = {*run_settings("", 0, 0, ""), "num_train_epochs", *settings_of(RunSettings)}


def read_study(layers: Sequence[Mapping[str, Any]], flags: Flags | None = None, where: str = "") -> Study:
    """Read a study from its file's values, Python's and flags; ``where`` is the path of its file."""
    content = {key: value for layer in layers for key, value in layer.items()}
    methods = content.get("methods") or {}
    for flag in flags or ():
        parts = flag.split(".")[1:]
        known = any(".".join(parts[:count]) in methods for count in range(1, len(parts) + 1))
        if flag.startswith("methods.") and not known:
            name = parts[0]
            raise RecipeError(f"--{flag}: {where or 'the study'} has no method {name!r}{did_you_mean(name, methods)}")
    with _errors_at(where):
        return _study(read_settings(CompareSettings, _plain(_as_files(content)), flags, where), Path(where))


def _as_files(content: Mapping[str, Any]) -> dict[str, Any]:
    """Write pairs in memory, of the study, its methods and tasks, and collections of tasks to files."""
    kinds = {"methods": lambda _, own: as_files(own, SPLITS), "tasks": _task_as_files}
    written = {
        key: {name: _errors_at(f"{key}.{name}")(write)(name, own) for name, own in content[key].items()}
        for key, write in kinds.items()
        if isinstance(content.get(key), Mapping)
    }
    files, settings = as_files(content), _errors_at("settings")(as_files)(content.get("settings"))
    if target := {key: files.pop(key) for key in files.keys() - content.keys()}:  # of a Bitext
        settings = {**(settings or {}), **target}
    return {**files, "settings": settings, **written}


def _task_as_files(name: str, source: Any) -> Any:
    options = task_options(name, source)
    collection = options.get("data")
    if name == RetrievalTask.name and isinstance(collection, Mapping):
        return {**options, "data": [str(store_collection(collection, cache_folder()))]}
    return as_files(options, {"data": "test"})


def _plain(value: Any) -> Any:
    """Write weights of objectives as mappings, so that flags change single settings, and names and paths as text."""
    if isinstance(value, Mapping):
        plain = {str(key): _plain(entry) for key, entry in value.items()}
        if isinstance(plain.get("objectives"), Mapping):
            plain["objectives"] = merge_objectives({}, plain["objectives"])
        return plain
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # numbers of numpy
        return value.tolist()
    if not isinstance(value, str | int | float | PathLike | None):
        raise RecipeError(
            f"a study holds texts, numbers, lists and mappings, and models and data by their folders, not "
            f"{type(value).__name__}: save a model or data, and give the folder; write other values as a list"
        )
    return fspath(value) if isinstance(value, PathLike) else value


def _study(settings: CompareSettings, file: Path) -> Study:
    shared = dict(settings.settings or {})
    _check_recipe("settings", shared)
    if taken := [key for key in ("model", "data") if key in shared]:
        raise RecipeError(f"settings: {taken[0]} is not allowed: state it beside settings, or in a method")
    name = file.stem or "study"
    named, tasks = settings.methods or {}, settings.tasks or {}
    if not named:
        raise RecipeError("methods: give at least one, such as {plain: {}}")
    checks: dict[str, Callable[[], Any]] = {
        f"tasks.{task}": partial(check_options, task, options) for task, options in tasks.items()
    }
    checks |= {f"methods.{key}": partial(_method, str(key), named[key], settings, shared, file.parent) for key in named}
    methods = tuple(check_each(checks)[len(tasks) :])
    return Study(
        title=settings.title or name,
        budget=_budget(settings.budget or {}),
        methods=methods,
        tasks={name: _options(name, options, methods) for name, options in tasks.items()},
        output=Path(settings.output or f"runs/{name}"),
        dry_run=settings.dry_run,
    )


def _options(task: str, options: Mapping[str, Any], methods: Iterable[Method]) -> dict[str, Any]:
    """Return a task's options; ``pairs`` searches the target language of the methods unless they name another."""
    if task != PairsTask.name or options.get("target_language") is not None:
        return dict(options)
    targets = sorted({str(method.recipe.get("target_language") or "en") for method in methods})
    if len(targets) > 1:
        raise RecipeError(
            f"the methods have several target languages ({', '.join(targets)}): set tasks.{task}.target_language"
        )
    return {**options, "target_language": targets[0]} if targets else dict(options)


def _budget(content: Mapping[str, Any]) -> Budget:
    with _errors_at("budget"):
        budget = read_settings(Budget, content)
        if (budget.steps is None) == (budget.pairs is None):
            raise RecipeError(f"give one of steps and pairs, such as {{steps: 100}}, not {shortened(content)}")
    return budget


def _method(name: str, own: Any, study: CompareSettings, shared: Mapping[str, Any], folder: Path) -> Method:
    """Merge the method's recipe file, the study's ``settings`` and the method's own settings; later ones win."""
    if not isinstance(own, Mapping | None):
        raise RecipeError(f"give a mapping of settings, such as {{recipe: mixed-small}}, not {shortened(own)}")
    content = dict(own or {})
    of_method = {key: content.pop(key) for key in settings_of(MethodSettings) if key in content}
    defaults = {"recipe": shared.get("recipe"), "poolings": study.poolings, "seeds": study.seeds}
    method = read_settings(MethodSettings, defaults | of_method)
    _check_recipe("", content)
    from_file = {}
    if method.recipe is not None:
        file = recipe_file(method.recipe, folder)
        from_file = read_mapping(file)
        check_keys(from_file, f"{file}: ")
    layers = [{key: value for key, value in from_file.items() if key not in _SET_BY_STUDY}]
    of_all = {key: shared[key] for key in shared if key != "recipe"}
    layers += [{"model": study.model, "data": study.data}, of_all, content]
    recipe = join_layers(layers)
    objectives: dict[str, Any] = {}  # the last mapping chooses the objectives; their settings are merged
    for layer in layers:
        if isinstance(layer.get("objectives"), Mapping):
            objectives = merge_objectives(objectives, layer["objectives"])
    recipe |= {"objectives": objectives} if objectives else {}
    if not method.train and recipe.get("encoder_layers") is not None:
        raise RecipeError("an untrained method has all layers: state encoder_layers in the methods that train")
    if recipe.get("languages"):
        raise RecipeError("tasks do not say the language of a text, which a model with languages needs: drop it")
    poolings = tuple(dict.fromkeys(method.poolings or (from_file.get("pooling"),)))
    return Method(name, recipe, poolings, tuple(dict.fromkeys(method.seeds)) if method.train else (None,))


def _check_recipe(at: str, content: Mapping[str, Any]) -> None:
    """Raise an error for an unknown key, or for one that the study sets itself."""
    prefix = f"{at}: " if at else ""
    check_keys(content, prefix, ["recipe"])
    if taken := [key for key in content if key in _SET_BY_STUDY]:
        raise RecipeError(
            f"{prefix}{taken[0]} is not allowed: the study sets it by its budget, poolings, seeds and output"
        )


@contextmanager
def _errors_at(where: str) -> Iterator[None]:
    """Begin errors with the place of the mistake."""
    try:
        yield
    except HfXsentError as error:
        prefix = "" if not where or str(error).startswith(f"{where}: ") else f"{where}: "
        raise type(error)(f"{prefix}{error}") from error


def check_each(checks: Mapping[str, Callable[[], Any]]) -> list[Any]:
    """Call the checks of places in the study; raise one error that states each mistake with all its places."""
    results, mistakes, cause = [], dict[str, list[str]](), HfXsentError()
    for place, check in checks.items():
        try:
            results.append(check())
        except HfXsentError as error:
            cause = error
            mistakes.setdefault(str(error).removeprefix(f"{place}: "), []).append(place)
    if mistakes:
        lines = [
            reason if reason.startswith(places[0]) else f"{', '.join(places)}: {reason}"
            for reason, places in mistakes.items()
        ]
        raise type(cause)("; also ".join(lines)) from cause
    return results


def unmeasured(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe with float32 in place of ``bf16: auto``, which only a run measures."""
    return {**recipe} | ({"bf16": False} if recipe.get("bf16") == "auto" else {})


def check_methods(study: Study, cache_dir: Path) -> list[Variant]:
    """Check each recipe as ``hf-xsent pretrain`` would, before data is read."""
    tokenizers: dict[str, Any] = {}  # one for each start: that of XLM-R takes 240 MB

    def check(method: Method) -> list[Variant]:
        variants = []
        for pooling in method.poolings:
            own = unmeasured(method.recipe) | run_settings(pooling, None, 1, str(study.output / "runs" / "none"))
            recipe = build_recipe([{"cache_dir": str(cache_dir)} | own])
            plan = Plan.of(recipe, tokenizers.get(str(recipe.start.model)))
            tokenizers[plan.encoder] = plan.tokenizer
            variants.append(Variant(method, str(plan.recipe.config.pooling), plan))
        return variants

    checks = {f"methods.{method.name}": partial(check, method) for method in study.methods}
    return [variant for variants in check_each(checks) for variant in variants]


def check_data(variants: Iterable[Variant], budget: Budget, tasks: Iterable[EvaluationTask]) -> None:
    """Read the bitext into the cache, and check that it has what each method and a budget of pairs need."""
    loaded: dict[str, Any] = {}
    for variant in variants:
        if variant.method.seeds != (None,):
            with _errors_at(f"methods.{variant.method.name}"):
                data = variant.plan.recipe.data
                if str(data) not in loaded:
                    loaded[str(data)] = load_train_and_dev(data)
                    _warn_of_measured_pairs(variant.method.name, loaded[str(data)][0], tasks)
                variant.plan.check_data(*loaded[str(data)])
                step, pairs = variant.pairs_per_step, len(loaded[str(data)][0])
                if budget.pairs and step > pairs:
                    raise RecipeError(
                        f"a step of {step:,} pairs is more than the {pairs:,} training pairs, so that steps do not add "
                        "up to budget.pairs: lower per_device_train_batch_size, or give budget.steps"
                    )


def _warn_of_measured_pairs(method: str, train: Bitext | TextSides, tasks: Iterable[EvaluationTask]) -> None:
    """Warn of training pairs of which a task measures both sentences."""
    if not isinstance(train, Bitext):
        return
    for task in tasks:
        if count := train.count_pairs_among({text for test_set in task.sets for text in task.texts(test_set)}):
            logger.warning(
                "methods.%s trains on %d pairs that tasks.%s measures: set settings: {rules: {exclude: FILES}}",
                *(method, count, task.name),
            )
