"""Convert values of recipes, flags and Python to the types that settings declare.

msgspec refuses unions such as ``IntervalStrategy | str`` of transformers' TrainingArguments, and pydantic's errors have
several lines.
"""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.settings.yaml12 import parse_yaml

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_PLAIN = {int, float, str, Path, type(None)}
_UNFIT = object()  # the value is of none of these types


def convert(where: str, value: Any, hint: Any) -> Any:
    """Convert a value to this type, or raise an error that begins with ``where``.

    Text is parsed as YAML if the type has a kind that fits; otherwise, it stays text. Empty text is no value.
    """
    if isinstance(value, str) and not value:
        raise RecipeError(f"{where} needs a value")
    kinds = members(hint)
    choices = [member.value for kind in kinds if _is_enum(kind) for member in kind]
    if isinstance(value, str) and choices and value not in choices:
        raise RecipeError(
            f"{where} {shortened(value)} is unknown: use {', '.join(choices)}{did_you_mean(value, choices)}"
        )
    converted = _converted(value, kinds)
    if converted is _UNFIT:
        raise RecipeError(f"{where} takes {describe_type(hint)}, not {_unfit(value, kinds)}")
    return converted


def converting(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Convert the arguments of a function that are numbers, text or paths to their types, as those of a command are.

    >>> @converting
    ... def repeat(text: str, times: int = 2) -> str:
    ...     return text * times
    >>> repeat("ha"), repeat("ha", times=2.5)
    Traceback (most recent call last):
    hf_xsent.errors.RecipeError: times takes a whole number, not 2.5
    """

    @wraps(function)
    def call(*values: Arguments.args, **named: Arguments.kwargs) -> Result:
        bound, hints = inspect.signature(function).bind(*values, **named), get_type_hints(function)
        for name in bound.arguments.keys() & hints.keys():
            if all((get_origin(kind) or kind) in _PLAIN for kind in members(hints[name])):
                bound.arguments[name] = convert(name, bound.arguments[name], hints[name])
        return function(*bound.args, **bound.kwargs)

    return call


def convert_words(name: str, words: Sequence[str], hint: Any) -> Any:
    """Convert the words after a flag to a value of this type; a flag alone sets a boolean."""
    where, kinds = f"--{name}", members(hint)
    if takes_mapping(hint) and (mapping := mapping_of(words)) is not None:
        return convert(where, mapping, hint)
    if bool in kinds and (not words or words[0] in ("true", "false")) and len(words) < 2:
        return not words or words[0] == "true"
    if not words or "" in words:
        raise RecipeError(f"{where} needs a value")
    if takes_list(hint) and (len(words) != 1 or str not in kinds):
        return convert(where, list(words), hint)
    if len(words) != 1:
        raise RecipeError(f"{where} takes one value, not {shortened(' '.join(words))}")
    return convert(where, words[0], hint)


def plain(value: Any) -> Any:
    """Return a path as text, and a number of numpy or torch as one of Python, also in a mapping; others unchanged."""
    if type(value) is dict:
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if getattr(value, "shape", None) == () else value


def takes_list(hint: Any) -> bool:
    """Return whether a type has a list."""
    return any((get_origin(kind) or kind) in (list, tuple) for kind in members(hint))


def takes_mapping(hint: Any) -> bool:
    """Return whether a type has a mapping."""
    return any((get_origin(kind) or kind) is dict for kind in members(hint))


def members(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the single type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def describe_type(hint: Any) -> str:
    """Describe a type for an error: ``a number``, ``a list of whole numbers``."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a mapping"}
    words |= {list: "a list", tuple: "a list", list[str]: "a list of text"}
    words |= {list[int]: "a list of whole numbers", list[float]: "a list of numbers"}
    kinds = [kind if kind in words else get_origin(kind) or kind for kind in members(hint) if kind is not type(None)]
    return " or ".join(dict.fromkeys(words.get(kind, str(kind)) for kind in kinds))


def _unfit(value: Any, kinds: Sequence[Any]) -> str:
    """Show a value that is of none of these types; of a list, the first item that does not fit."""
    types = [members(get_args(kind)[0]) for kind in kinds if get_origin(kind) in (list, tuple)]
    if not types or not isinstance(value, list | tuple):
        return shortened(value)
    number = next(number for number, item in enumerate(value) if _converted(item, types[0]) is _UNFIT)
    return f"{shortened(value[number])} (item {number})"


def _converted(value: Any, kinds: Sequence[Any]) -> Any:
    """Return the value as the first of these types that fits, or ``_UNFIT``; a single value fits a list."""
    if Any in kinds:
        return _expanded(value)
    value = plain(value)
    if isinstance(value, str) and not isinstance(parsed := parse_text(value), str):
        scalars = [kind for kind in kinds if kind is not str and get_origin(kind) is not list]
        if (converted := _converted(parsed, scalars)) is not _UNFIT:
            return converted
    for kind in kinds:
        if (converted := _as(kind, value)) is not _UNFIT:
            return converted
    lists = [kind for kind in kinds if get_origin(kind) is list]
    return _as(lists[0], [value]) if lists and not isinstance(value, Mapping | list | tuple | None) else _UNFIT


def _as(kind: Any, value: Any) -> Any:
    """Return the value as this type, or ``_UNFIT``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (origin := get_origin(kind)) in (list, tuple):
        if not isinstance(value, list | tuple):
            return _UNFIT
        items = [_converted(item, members(get_args(kind)[0])) for item in value]
        return _UNFIT if any(item is _UNFIT for item in items) else origin(items)
    if (origin or kind) is dict:
        if not isinstance(value, Mapping):
            return _UNFIT
        kinds = members((get_args(kind) or (Any, Any))[1])
        entries = {name: _converted(entry, kinds) for name, entry in value.items()}
        return _UNFIT if any(entry is _UNFIT for entry in entries.values()) else entries
    if kind in (float, str) and number:
        return kind(value)
    if _is_enum(kind):
        return value if value in [member.value for member in kind] else _UNFIT
    fits = isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    return _expanded(value) if fits else _UNFIT


def _expanded(value: Any) -> Any:
    """Return a path with the folder of the user, which the shell leaves in --output=~/runs; other values unchanged."""
    return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~/") else value


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def mapping_of(words: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the mapping that a single word states as YAML or JSON, if it does.

    >>> mapping_of(['{"de": "pairs.tsv"}']), mapping_of(["de=pairs.tsv"])
    ({'de': 'pairs.tsv'}, None)
    """
    parsed = parse_text(words[0]) if len(words) == 1 else None
    return parsed if isinstance(parsed, Mapping) else None


def parse_text(text: str) -> Any:
    """Parse text as YAML if it is valid YAML, else return it, also if YAML reads nothing or a key without value.

    >>> parse_text("8"), parse_text("#1.json"), parse_text("query: "), parse_text("")
    (8, '#1.json', 'query: ', '')
    """
    if not text.strip() or text.startswith("#") or text.rstrip().endswith(":"):
        return text
    try:
        return parse_yaml(text)
    except ValueError:
        return text
