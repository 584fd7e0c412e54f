"""Read ``[recipe.yaml] [--flag value …]`` into one checked ``Recipe``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from hf_xsent.errors import RecipeError, did_you_mean
from hf_xsent.models import METHODS
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.objectives.registry import (
    OBJECTIVES,
    convert_objectives,
    merge_objectives,
    objective_class,
)
from hf_xsent.settings.declaring import check_settings, recipe_fields, takes_names, types_of
from hf_xsent.settings.reading import (
    Names,
    check_known,
    convert_value,
    read_mapping,
    read_values,
    split_arguments,
    value_of_flag,
)
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.recipe import DataSettings, RunSettings, StartSettings

Flags = dict[str, list[str]]

_OBJECTIVES = "objectives"


@dataclass(frozen=True)
class Recipe:
    """All settings of one run."""

    start: StartSettings
    config: AlignmentConfig  # the method's settings; Plan adds the encoder's config
    data: DataSettings
    run: RunSettings
    training: AlignmentTrainingArguments
    stated: frozenset[str] = frozenset()  # keys of file and flags

    def to_dict(self) -> dict[str, Any]:
        """Return the settings of starting encoder, model and data as keys of a recipe, defaults included."""
        return asdict(self.start) | self.config.recipe() | asdict(self.data)


@cache
def recipe_keys() -> tuple[str, ...]:
    """Return all top-level keys of a training recipe."""
    configs = [name for config, _, _ in METHODS.values() for name in config.setting_names()]
    parts = [one.name for kind in (StartSettings, DataSettings, RunSettings) for one in fields(kind)]
    return tuple(dict.fromkeys([*parts, *configs, *(one.name for one in _fields(AlignmentTrainingArguments))]))


def read_recipe(arguments: Sequence[str]) -> Recipe:
    """Read a recipe: a flag replaces the value in the file, which replaces the default."""
    path, flags = split_arguments(arguments)
    stated = {} if path is None else read_mapping(path)
    where = "" if path is None else path
    check_known(stated, recipe_keys(), f"{where}: ")
    method = (flags.get("method") or [stated.get("method") or StartSettings.method])[0]
    if not isinstance(method, str) or method not in METHODS:
        raise RecipeError(f"unknown method {method!r}: use {', '.join(METHODS)}{did_you_mean(str(method), METHODS)}")
    config_class, model_class, _ = METHODS[method]
    objectives, flags = _objectives(config_class, stated.pop(_OBJECTIVES, None), flags, where)
    hints, others = _hints_of_method(config_class)
    for key in [*stated, *flags]:
        if key not in {*hints, *others} and key in recipe_keys():
            raise RecipeError(f"the method {method} has no setting {key!r}" + did_you_mean(key, {*hints, *others}))
    values = read_values(stated, flags, hints | others, where)
    config: Any = model_class.config_of(None, {key: values[key] for key in hints if key in values} | objectives)
    parts: dict[str, Any] = {part: _build(kind, values) for kind, part in _PARTS.items()}
    return Recipe(config=config, stated=frozenset(values), **parts)


def convert_recipe(stated: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Convert the values of a recipe to the types of its settings."""
    config_class = METHODS[stated.get("method") or StartSettings.method][0]
    hints, others = _hints_of_method(config_class)
    rest = {key: value for key, value in stated.items() if key != _OBJECTIVES}
    values = read_values(rest, {}, hints | others, where)
    objectives = stated.get(_OBJECTIVES)
    return values if objectives is None else values | {_OBJECTIVES: convert_objectives(objectives)}


def _hints_of_method(config_class: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the types of the method's settings without its objectives, and of all other settings of a recipe."""
    own = types_of(config_class, [name for name in config_class.setting_names() if name != _OBJECTIVES])
    return own, {name: hint for kind in _PARTS for name, hint in _hints(kind).items()}


def read_dataclasses(arguments: Sequence[str], kinds: Sequence[type]) -> tuple[Any, ...]:
    """Read ``[recipe.yaml] [--flag value …]``, and build each of these dataclasses from its fields."""
    path, flags = split_arguments(arguments)
    hints = {name: hint for kind in kinds for name, hint in _hints(kind).items()}
    values = read_values({} if path is None else read_mapping(path), flags, hints, path or "")
    return tuple(_build(kind, values) for kind in kinds)


_PARTS: dict[type, str] = {
    StartSettings: "start",
    DataSettings: "data",
    RunSettings: "run",
    AlignmentTrainingArguments: "training",
}


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    own = {one.name: values[one.name] for one in _fields(kind) if one.name in values}
    try:
        built = kind(**own)
    except (ValueError, TypeError, OSError) as error:  # OSError: a setting of transformers names a missing file
        raise RecipeError(f"invalid or conflicting settings: {' '.join(str(error).split())}") from error
    check_settings(built)
    return built


def _hints(kind: Any) -> dict[str, Any]:
    types: dict[str, Any] = types_of(kind, [one.name for one in _fields(kind)])
    for one in _fields(kind):
        if one.metadata.get("const") is True:  # fsdp, which transformers declares as text, may be a flag alone
            types[one.name] |= bool
    return {one.name: Names if takes_names(one) else types[one.name] for one in _fields(kind)}


def _fields(kind: Any) -> list[Field[Any]]:
    return [one for one in fields(kind) if one.init]


def _objectives(config_class: Any, stated: Any, flags: Flags, where: str) -> tuple[dict[str, Any], Flags]:
    """Merge the objectives of the method, the recipe and ``--objectives``: later ones win; then flags of one setting.

    Return ``{"objectives": …}``, empty if neither recipe nor flags name any, and the other flags.
    """
    prefix = f"{where}: " if where else ""
    base = config_class.default_objectives()
    if stated is not None and not isinstance(stated, Mapping):
        raise RecipeError(f"{prefix}objectives takes a mapping such as {{translation_ranking: 1.0}}, not {stated!r}")
    for name, value in (stated or {}).items():
        if name in OBJECTIVES and isinstance(value, Mapping):
            check_known(value, recipe_fields(objective_class(name).Settings), f"{prefix}objectives.{name}: ")
    chosen: dict[str, Any] = base if stated is None else merge_objectives(base, stated)
    rest = dict(flags)
    if (words := rest.pop(_OBJECTIVES, None)) is not None:
        named = [one.partition("=") for one in words]
        weights = {
            one: convert_value(f"--objectives {one}", weight, float) if equals else None
            for one, equals, weight in named
        }
        chosen = merge_objectives(chosen, weights)
    settings = {flag: value for flag, value in rest.items() if flag.startswith(f"{_OBJECTIVES}.")}
    known = {*recipe_keys()}
    settings |= {flag: value for flag, value in rest.items() if flag not in known and flag not in settings}
    for flag, words in sorted(settings.items(), key=lambda item: not item[0].endswith(".weight")):  # weights first
        name, key = _setting_of_flag(flag, chosen, known)
        kind = objective_class(name).Settings
        value = value_of_flag(flag, words, get_type_hints(kind)[key])
        chosen = chosen | merge_objectives(chosen, {name: {key: value}})
    if stated is None and len(rest) == len(flags) and not settings:
        return {}, rest
    return {_OBJECTIVES: chosen}, {flag: value for flag, value in rest.items() if flag not in settings}


def _setting_of_flag(flag: str, chosen: Mapping[str, Any], known: Iterable[str]) -> tuple[str, str]:
    """Split a flag into objective and setting: ``objectives.NAME.SETTING``, or a SETTING that one objective has."""
    owned = {name: [*recipe_fields(objective_class(name).Settings)] for name in chosen}
    if flag.startswith(f"{_OBJECTIVES}."):
        name, _, key = flag.removeprefix(f"{_OBJECTIVES}.").partition(".")
        if name not in OBJECTIVES:
            raise RecipeError(f"unknown objective {name!r} in --{flag}{did_you_mean(name, OBJECTIVES)}")
        if name not in chosen and key != "weight":
            raise RecipeError(f"--{flag}: {name} is not an objective of this run; add --objectives.{name}.weight 1.0")
        settings = [*recipe_fields(objective_class(name).Settings)]
        if key not in settings:
            raise RecipeError(f"--{flag}: {name} has no setting {key!r}{did_you_mean(key, settings)}")
        return name, key
    owners = [name for name, settings in owned.items() if flag in settings]
    if len(owners) == 1:
        return owners[0], flag
    if owners:
        ways = " or ".join(f"--objectives.{name}.{flag}" for name in owners)
        raise RecipeError(f"--{flag} is a setting of several objectives: write {ways}")
    elsewhere = [name for name in OBJECTIVES if flag in recipe_fields(objective_class(name).Settings)]
    if elsewhere:
        raise RecipeError(f"--{flag} is a setting of {' and '.join(elsewhere)}, which this run does not train with")
    words = {setting for settings in owned.values() for setting in settings}
    raise RecipeError(f"unknown flag --{flag}" + did_you_mean(flag, [*known, *words]))
