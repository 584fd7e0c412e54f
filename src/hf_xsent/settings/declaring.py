"""Declare a setting once: default, one line of help, valid range. Recipes, flags, help and docs read it from there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from typing import Any, get_type_hints

from hf_xsent.errors import RecipeError, did_you_mean

_HELP, _RANGE, _CHOICES, _DERIVED, _SAVED = "help", "range", "choices", "derived", "saved"
_NAMED, _METAVAR = "named", "metavar"
_COMPARED = {
    "above": (lambda value, bound: value > bound, "above"),
    "at_least": (lambda value, bound: value >= bound, "at least"),
    "below": (lambda value, bound: value < bound, "below"),
    "at_most": (lambda value, bound: value <= bound, "at most"),
}


def setting(
    default: Any = None,
    help: str = "",  # noqa: A002 - argparse's own word
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] | None = None,
    named: bool = False,
    saved: bool = True,
    metavar: str = "",
) -> Any:
    """Declare a dataclass field with its help and its valid range; each element of a list must be in the range.

    ``named`` marks a list of ``name=value`` strings that a recipe may write as a mapping; ``saved``
    writes the value to a model's config.json; ``metavar`` replaces the
    placeholder of the type in help.
    """
    bounds = {"above": above, "at_least": at_least, "below": below, "at_most": at_most}
    metadata = {
        _HELP: help,
        _RANGE: {name: bound for name, bound in bounds.items() if bound is not None},
        _CHOICES: tuple(choices or ()),
        _NAMED: named,
        _SAVED: saved,
        _METAVAR: metavar,
    }
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def derived(default: Any = None, saved: bool = True) -> Any:
    """Declare a field whose value comes from the checkpoint or the data, not from a recipe."""
    return field(default=default, metadata={_DERIVED: True, _SAVED: saved}, repr=saved)


def recipe_fields(kind: type) -> dict[str, Field[Any]]:
    """List the settings of a dataclass that a recipe may set, by name."""
    return {one.name: one for one in fields(kind) if one.init and not is_derived(one)}


def types_of(kind: type, names: Iterable[str]) -> dict[str, Any]:
    """Return the types of these fields, each read in the module of the class that declares it."""
    found: dict[str, Any] = {}
    for name in names:
        owner = next(one for one in kind.__mro__ if name in one.__dict__.get("__annotations__", {}))
        alone = {"__annotations__": {name: owner.__annotations__[name]}, "__module__": owner.__module__}
        found |= get_type_hints(type(owner.__name__, (), alone))
    return found


def is_derived(one: Field[Any]) -> bool:
    """Return whether the value of a field comes from the checkpoint or the data."""
    return bool(one.metadata.get(_DERIVED))


def is_saved(one: Field[Any]) -> bool:
    """Return whether config.json saves a field."""
    return bool(one.metadata.get(_SAVED, True))


def takes_names(one: Field[Any]) -> bool:
    """Return whether a recipe may write this list as a mapping."""
    return bool(one.metadata.get(_NAMED))


def default_of(one: Field[Any]) -> Any:
    """Return the default of a field."""
    return one.default_factory() if one.default_factory is not MISSING else one.default


def range_of(one: Field[Any]) -> str:
    """Describe the valid numbers of a field in words, such as ``above 0 and at most 1``."""
    bounds: Mapping[str, float] = one.metadata.get(_RANGE, {})
    return " and ".join(f"{_COMPARED[name][1]} {bound:g}" for name, bound in bounds.items())


def help_of(one: Field[Any]) -> str:
    """Return the help line of a field with its range and its default."""
    text, valid, default = str(one.metadata.get(_HELP, "")), range_of(one), default_of(one)
    stated = any(word in text for word in ("ithout", "efault", "required"))  # what happens without a value
    notes = ([valid] if valid else []) + ([] if default is None and stated else [f"default: {_shown(default)}"])
    return f"{text} ({'; '.join(notes)})" if notes else text


def metavar_of(one: Field[Any]) -> str:
    """Return the placeholder of a field's values for help: N, X, TEXT, {a,b}, true|false; … after it for a list."""
    if choices := one.metadata.get(_CHOICES, ()):
        return f"{{{','.join(choices)}}}"
    kind = str(one.type)
    words = {"bool": "true|false", "int": "N", "float": "X", "dict": "MAPPING"}
    inner = kind.removeprefix("list[")
    named = (
        "NAME=VALUE" if takes_names(one) else next((words[name] for name in words if inner.startswith(name)), "TEXT")
    )
    return str(one.metadata.get(_METAVAR) or named) + " …" * (inner != kind)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == []:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_settings(settings: Any, where: str = "") -> None:
    """Raise an error for the first setting with an invalid value."""
    for one in fields(settings):
        value = getattr(settings, one.name)
        for element in value if isinstance(value, list | tuple) else [value]:
            if wrong := _outside(one, element):
                raise RecipeError(f"{where}{one.name} {element!r} {wrong}")


def _outside(one: Field[Any], value: Any) -> str:
    """Describe why a value of a field is invalid; empty if it is valid."""
    if value is None:
        return ""
    choices = one.metadata.get(_CHOICES, ())
    if choices and value not in choices:
        return f"is unknown: use {', '.join(choices)}{did_you_mean(str(value), choices)}"
    bounds: Mapping[str, float] = one.metadata.get(_RANGE, {})
    if not bounds:
        return "is not finite" if isinstance(value, float) and not math.isfinite(value) else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number"
    inside = all(_COMPARED[name][0](value, bound) for name, bound in bounds.items())
    return "" if math.isfinite(value) and inside else f"is not {range_of(one)}"
