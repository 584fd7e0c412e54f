"""Declare a setting once: default, one line of help, valid range. Recipes, flags, help and docs read it from there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from functools import cache
from typing import Any, get_type_hints

from hf_xsent.errors import RecipeError, did_you_mean

_COMPARED = {
    "above": (lambda value, bound: value > bound, "above"),
    "at_least": (lambda value, bound: value >= bound, "at least"),
    "below": (lambda value, bound: value < bound, "below"),
    "at_most": (lambda value, bound: value <= bound, "at most"),
}


def setting(
    default: Any = None,
    help: str = "",  # noqa: A002 - the usual word
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] = (),
    named: bool = False,
    metavar: str = "",
    positional: bool = False,
    required: bool = False,
    by_position: bool = False,
    aliases: Sequence[str] = (),
    results: bool = True,
    local: bool = False,
    saved: bool = True,
    shown: bool = True,
) -> Any:
    """Declare a dataclass field with its help and its valid range; each element of a list must be in the range.

    ``named`` marks a list of ``name=value`` strings that a recipe may write as a mapping. ``metavar`` replaces the
    placeholder of the type in help. ``positional`` settings need no flag, ``required`` ones a value; Python
    takes both, and ``by_position`` ones, by position. ``aliases`` are further names of the flag.

    ``results=False``: the value does not change results, only when, where and how fast they are computed, so that a run
    may resume with another one. ``local``: it is a path or a property of this machine, which is not published.
    ``saved=False``: it is not written to a model's config.json. ``shown=False``: help does not list it.
    """
    bounds = {"above": above, "at_least": at_least, "below": below, "at_most": at_most}
    metadata: dict[str, Any] = {
        "help": help,
        "range": {name: bound for name, bound in bounds.items() if bound is not None},
        "choices": tuple(choices),
        **{"named": named, "metavar": metavar, "positional": positional, "required": required},
        **{"by_position": by_position or required},
        **{"aliases": tuple(aliases), "results": results, "local": local, "saved": saved, "shown": shown},
    }
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def derived(default: Any = None, saved: bool = True) -> Any:
    """Declare a field whose value comes from the checkpoint or the data, not from a recipe."""
    return field(default=default, metadata={"derived": True, "saved": saved}, repr=saved)


def settings_of(kind: type) -> dict[str, Field[Any]]:
    """List the fields of a dataclass that recipes, flags and Python may set, by name."""
    return {each.name: each for each in fields(kind) if each.init and not is_derived(each)}


def positional_names(fields: Mapping[str, Field[Any]]) -> list[str]:
    """Return the names of the settings that need no flag on the command line, in order."""
    return [name for name, field in fields.items() if field.metadata.get("positional")]


def is_derived(field: Field[Any]) -> bool:
    """Return whether the value of a field comes from the checkpoint or the data."""
    return bool(field.metadata.get("derived"))


def is_saved(field: Field[Any]) -> bool:
    """Return whether config.json saves a field."""
    return bool(field.metadata.get("saved", True))


def decides_results(field: Field[Any]) -> bool:
    """Return whether another value of a setting may give other results."""
    return bool(field.metadata.get("results", True))


def default_of(field: Field[Any]) -> Any:
    """Return the default of a field."""
    return field.default_factory() if field.default_factory is not MISSING else field.default


Names = list[str] | dict[str, Any] | None  # NAME=VALUE strings, which a recipe may write as a mapping


def types_of(kind: type, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the type of each setting (or of ``names``), read in the module of the class that declares it."""
    return dict(_types_of(kind, None if names is None else frozenset(names)))


@cache
def _types_of(kind: type, names: frozenset[str] | None) -> dict[str, Any]:
    types: dict[str, Any] = {}
    for name, declared in settings_of(kind).items():
        if names is not None and name not in names:
            continue
        if declared.metadata.get("named"):
            types[name] = Names
            continue
        owner = next(base for base in kind.__mro__ if name in base.__dict__.get("__annotations__", {}))
        alone = {"__annotations__": {name: owner.__annotations__[name]}, "__module__": owner.__module__}
        types |= get_type_hints(type(owner.__name__, (), alone))
    return types


# Help


def range_of(field: Field[Any]) -> str:
    """Describe the valid numbers of a field in words, such as ``above 0 and at most 1``."""
    bounds: Mapping[str, float] = field.metadata.get("range", {})
    return " and ".join(f"{_COMPARED[name][1]} {bound:{',' if bound > 1e6 else 'g'}}" for name, bound in bounds.items())


def help_of(field: Field[Any]) -> str:
    """Return the help line of a field with its range and its default."""
    text, valid, default = str(field.metadata.get("help", "")), range_of(field), default_of(field)
    explained = any(word in text for word in ("ithout", "efault", "required"))  # what happens without a value
    notes = [valid] if valid else []
    if not (default is None and (explained or field.metadata.get("required"))):
        notes.append(f"default: {_shown(default)}")
    return f"{text} ({'; '.join(notes)})" if notes else text


def metavar_of(field: Field[Any]) -> str:
    """Return the placeholder of a field's values for help: N, X, TEXT, {a,b}, true|false; … after it for a list."""
    kind = str(field.type)
    inner = kind.removeprefix("list[")
    if choices := field.metadata.get("choices"):
        word = f"{{{','.join(choices)}}}"
    elif field.metadata.get("metavar"):
        word = field.metadata["metavar"]
    elif field.metadata.get("named"):
        word = "NAME=VALUE"
    else:
        words = {"bool": "true|false", "int": "N", "float": "X", "dict": "MAPPING"}
        word = next((words[name] for name in words if inner.startswith(name)), "TEXT")
    return str(word) + " …" * (inner != kind)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == []:
        return "none"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# Range


def check_settings(settings: Any, where: str = "") -> None:
    """Raise an error for the first setting that is missing or has an invalid value."""
    values = {declared.name: getattr(settings, declared.name) for declared in fields(settings)}
    for declared in fields(settings):
        value = values[declared.name]
        empty = value is None or (isinstance(value, str | list | dict) and not value)
        if empty and declared.metadata.get("required"):
            way = declared.name.upper() if declared.metadata["positional"] else f"--{declared.name}"
            raise RecipeError(f"{where}{declared.name} is missing: give {way}")
    check_values(fields(settings), values, where)


def check_values(declared_fields: Iterable[Field[Any]], values: Mapping[str, Any], where: str = "") -> None:
    """Raise an error for the first of these values that its field does not allow."""
    for declared in declared_fields:
        value = values.get(declared.name)
        for element in value if isinstance(value, list | tuple) else [value]:
            if problem := _problem(declared, element):
                raise RecipeError(f"{where}{declared.name} {element!r} {problem}")


def _problem(field: Field[Any], value: Any) -> str:
    """Describe why a value of a field is invalid; empty if it is valid."""
    if value is None:
        return ""
    choices: Iterable[str] = field.metadata.get("choices", ())
    if choices and value not in choices:
        return f"is unknown: use {', '.join(choices)}{did_you_mean(str(value), choices)}"
    bounds: Mapping[str, float] = field.metadata.get("range", {})
    if not bounds:
        return "is not finite" if isinstance(value, float) and not math.isfinite(value) else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number"
    inside = all(_COMPARED[name][0](value, bound) for name, bound in bounds.items())
    return "" if math.isfinite(value) and inside else f"is not {range_of(field)}"
