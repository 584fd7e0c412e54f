"""Read the recipe of a training run: its file, Python's values and flags become one checked ``Recipe``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass
from functools import cache
from os import PathLike
from typing import Any

from hf_xsent.data.cleaning.rules import rules_by_name
from hf_xsent.errors import RecipeError, did_you_mean
from hf_xsent.models import METHODS
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.objectives.registry import OBJECTIVES, merge_objectives, objective_class
from hf_xsent.settings.convert import convert, convert_words, mapping_of, parse_text
from hf_xsent.settings.declare import Names, settings_of, types_of
from hf_xsent.settings.hints import suggestion
from hf_xsent.settings.read import Flags, build_settings, check_known, read_values
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.bitext import as_files
from hf_xsent.training.settings import DataSettings, RunSettings, StartSettings

_PARTS: dict[str, type[Any]] = {
    "start": StartSettings,
    "data": DataSettings,
    "run": RunSettings,
    "training": AlignmentTrainingArguments,
}


@dataclass(frozen=True)
class Recipe:
    """All settings of one run."""

    start: StartSettings
    config: AlignmentConfig  # the method's settings; Plan adds the encoder's config
    data: DataSettings
    run: RunSettings
    training: AlignmentTrainingArguments
    stated: frozenset[str] = frozenset()  # keys of file, Python and flags

    def to_dict(self) -> dict[str, Any]:
        """Return the settings of starting encoder, model and data as keys of a recipe, defaults included."""
        return asdict(self.start) | self.config.recipe() | asdict(self.data)


@cache
def recipe_settings() -> dict[str, Field[Any]]:
    """Return all top-level settings of a training recipe, those of every method included; of all, the default's."""
    of_parts = {name: field for part in _PARTS.values() for name, field in settings_of(part).items()}
    configs = [METHODS[method][0] for method in (*METHODS, StartSettings.method)]  # the last wins
    return of_parts | {name: settings_of(config)[name] for config in configs for name in config.setting_names()}


@cache
def recipe_types() -> dict[str, Any]:
    """Return the types of these settings."""
    of_methods = {name: hint for config, _, _ in METHODS.values() for name, hint in _types_of_method(config).items()}
    return of_methods | _types_of_parts() | {"objectives": Names}


@cache
def _types_of_parts() -> dict[str, Any]:
    return {name: hint for part in _PARTS.values() for name, hint in types_of(part).items()}


def build_recipe(layers: Sequence[Mapping[str, Any]], flags: Flags | None = None, where: str = "") -> Recipe:
    """Build a recipe from layers of values (a file's, Python's, …), of which later ones replace earlier ones.

    Objectives are those of the last layer that names any; settings that it does not state come from earlier layers.
    """
    prefix = f"{where}: " if where else ""
    placed = [("" if number else prefix, layer) for number, layer in enumerate(layers)]  # the first is that of the file
    for at, layer in placed:
        check_keys(layer, at)
    values = as_files(join_layers(layers))
    if not isinstance(model := values.get("model"), str | PathLike | None):
        raise RecipeError(
            f"model takes a folder or Hub id, which recipe.yaml records, not {type(model).__name__}: save it by "
            "model.save_pretrained('start') and name that folder, or train it by AlignmentTrainer"
        )
    flags = dict(flags or {})
    method = _text(flags.get("method"), values.get("method"))
    if method not in METHODS:
        raise RecipeError(f"unknown method {method!r}: use {', '.join(METHODS)}{did_you_mean(method, METHODS)}")
    config_class, model_class, _ = METHODS[method]
    values.pop("objectives", None)
    stated = [(at, layer["objectives"]) for at, layer in placed if layer.get("objectives") is not None]
    objectives, flags = _read_objectives(config_class, stated, flags)
    for at, layer in placed:
        _check_places(layer, at, objectives or config_class.default_objectives())
    own, others = _types_of_method(config_class), _types_of_parts()
    for name in [*values, *flags]:
        if name not in own and name not in others and name in recipe_settings():
            raise RecipeError(f"the method {method} has no setting {name!r}{did_you_mean(name, {*own, *others})}")
    changed = {*(key for layer in layers[1:] for key in layer), *(flag.partition(".")[0] for flag in flags)}
    of_file = {key: value for key, value in values.items() if key not in changed}
    of_call = {key: value for key, value in values.items() if key in changed}
    converted = read_values(of_file, {}, own | others, where) | read_values(of_call, flags, own | others)
    of_model = {name: converted[name] for name in own if name in converted}
    if objectives is not None:
        of_model["objectives"] = objectives
    parts: dict[str, Any] = {part: build_settings(kind, converted) for part, kind in _PARTS.items()}
    return Recipe(config=model_class.config_of(None, of_model), stated=frozenset(converted), **parts)


def check_keys(layer: Mapping[str, Any], at: str, others: Collection[str] = ()) -> None:
    """Raise an error for a key that is not a setting of a recipe or of objectives, nor among ``others``.

    Only `build_recipe`, which knows the objectives of the run, can say where a setting of objectives belongs.
    """
    keys = [key for key in layer if key not in OBJECTIVES and not _objectives_with(key)]
    check_known(keys, [*recipe_settings(), *others], at)


def _check_places(layer: Mapping[str, Any], at: str, objectives: Mapping[str, Any]) -> None:
    """Raise an error for a key that belongs in ``objectives``, with all those of the run, which it must name."""
    for key in (key for key in layer if key not in recipe_settings()):
        owners = {key: "…"} if key in OBJECTIVES else dict.fromkeys(_owners(at, key, objectives), f"{{{key}: …}}")
        each = ", ".join(f"{name}: {value}" for name, value in (dict.fromkeys(objectives, "{}") | owners).items())
        raise RecipeError(f"{at}{key} belongs in objectives: write objectives: {{{each}}}")


def join_layers(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join layers of settings, of which later ones win; a mapping of rules is added to those of before."""
    values: dict[str, Any] = {}
    for layer in layers:
        before, rules = values.get("rules"), layer.get("rules")
        values |= layer
        if isinstance(rules, str):
            rules = values["rules"] = mapping_of([rules]) or [rules]
        if isinstance(rules, list | tuple) and all(isinstance(rule, str) for rule in rules):
            values["rules"] = rules_by_name(rules)
        elif isinstance(before, Mapping) and isinstance(rules, Mapping):
            values["rules"] = {**before, **rules}
    return values


def _types_of_method(config_class: Any) -> dict[str, Any]:
    """Return the types of the method's settings without its objectives."""
    return types_of(config_class, [name for name in config_class.setting_names() if name != "objectives"])


def _text(words: Sequence[str] | None, value: Any) -> str:
    return str(words[0] if words else value or StartSettings.method)


def _read_objectives(
    config_class: Any, stated: Sequence[tuple[str, Any]], flags: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any] | None, dict[str, Sequence[str]]]:
    """Merge the objectives of the method, those ``stated``, each after its place, and flags of single settings.

    Return the objectives, None if none are stated, and the other flags.
    """
    objectives: dict[str, Any] = config_class.default_objectives()
    if "objectives" in flags:
        stated = [*stated, ("--", _objectives_of_words(flags["objectives"]))]
    for at, value in stated:
        layer = parse_text(value) if isinstance(value, str) else value
        if not isinstance(layer, Mapping):
            raise RecipeError(f"{at}objectives takes a mapping such as {{translation_ranking: 1.0}}, not {layer!r}")
        for name, settings in layer.items():
            if name in OBJECTIVES and isinstance(settings, Mapping):
                check_known(settings, settings_of(objective_class(name).Settings), f"{at}objectives.{name}: ")
        objectives = merge_objectives(objectives, layer)
    keys = recipe_settings().keys() - {"objectives"}
    rest = {flag: words for flag, words in flags.items() if flag.partition(".")[0] in keys}
    single = [flag for flag in flags if flag not in rest and flag != "objectives"]
    for flag in sorted(single, key=lambda flag: not flag.endswith(".weight")):  # weights first: they add objectives
        name, key = _setting_of_flag(flag, objectives)
        value = convert_words(flag, flags[flag], types_of(objective_class(name).Settings)[key])
        objectives = objectives | merge_objectives(objectives, {name: {key: value}})
    return (objectives if stated or single else None), rest


def _objectives_of_words(words: Sequence[str]) -> Mapping[str, Any]:
    """Read names, each with a weight or without (``translation_ranking=0.5``), or one mapping in YAML or JSON."""
    if (mapping := mapping_of(words)) is not None:
        return mapping
    named = [word.partition("=") for word in words]
    return {name: convert(f"--objectives {name}", weight, float) if equals else None for name, equals, weight in named}


def _setting_of_flag(flag: str, objectives: Mapping[str, Any]) -> tuple[str, str]:
    """Split a flag into objective and setting: ``objectives.NAME.SETTING``, or a SETTING that one objective has."""
    settings = {name: settings_of(objective_class(name).Settings) for name in objectives}
    if flag.startswith("objectives."):
        name, _, key = flag.removeprefix("objectives.").partition(".")
        if name not in OBJECTIVES:
            raise RecipeError(f"unknown objective {name!r} in --{flag}{did_you_mean(name, OBJECTIVES)}")
        if not key:
            raise RecipeError(f"--{flag} names no setting: write --{flag}.weight for its weight")
        if name not in objectives and key != "weight":
            raise RecipeError(f"--{flag}: {name} is not an objective of this run; add --objectives.{name}.weight 1.0")
        known = settings_of(objective_class(name).Settings)
        if key not in known:
            raise RecipeError(f"--{flag}: {name} has no setting {key!r}{did_you_mean(key, known)}")
        return name, key
    owners = _owners("--", flag, objectives)
    if len(owners) == 1:
        return owners[0], flag
    if owners:
        ways = " or ".join(f"--objectives.{name}.{flag}" for name in owners)
        raise RecipeError(f"--{flag} is a setting of several objectives: write {ways}")
    known_flags = [*recipe_settings(), *(key for keys in settings.values() for key in keys)]
    raise RecipeError(f"unknown flag --{flag}{suggestion(flag, known_flags)}")


def _owners(at: str, key: str, objectives: Mapping[str, Any]) -> list[str]:
    """Return the objectives of the run that have a setting; raise an error if only others have it."""
    owners = _objectives_with(key)
    ours = [name for name in objectives if name in owners]
    if owners and not ours:
        raise RecipeError(f"{at}{key} is a setting of {' and '.join(owners)}, which this run does not train with")
    return ours


def _objectives_with(setting: str) -> list[str]:
    """Return the objectives that have a setting of this name."""
    return [name for name in OBJECTIVES if setting in settings_of(objective_class(name).Settings)]
