"""Read settings: values of a recipe or of Python, then flags, become one checked settings object.

A settings class is a dataclass of ``setting()`` fields. The same reader serves every command, recipe and function.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field
from typing import Any, TypeVar

from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.settings.convert import convert, convert_words, mapping_of, members, parse_text, plain, takes_list
from hf_xsent.settings.declare import Names, check_settings, check_values, positional_names, settings_of, types_of
from hf_xsent.settings.hints import suggestion
from hf_xsent.settings.recipes import is_recipe, recipe_names
from hf_xsent.settings.secrets import refuse_secret_arguments, refuse_secrets

Flags = Mapping[str, Sequence[str]]  # the words after each flag
Settings = TypeVar("Settings")
_LISTED = 10  # keys at most, in an error


def read_settings(
    kind: type[Settings], values: Mapping[str, Any] | None = None, flags: Flags | None = None, where: str = ""
) -> Settings:
    """Build a settings object from the values of a recipe or of Python, and from flags, which replace them.

    ``where`` names the recipe in errors. Null is a value where the type has it (``save_total_limit: null`` keeps all
    checkpoints), else it means not set.

    >>> from hf_xsent.mining.settings import MineSettings
    >>> read_settings(MineSettings, {"source": "a", "target": "b", "output": "c", "model": "d"}, {"k": ["8"]}).k
    8
    """
    converted = read_values(values or {}, flags or {}, types_of(kind), where)
    return build_settings(kind, converted)


def build_settings(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Build a settings object from converted values, ignoring those of other classes, and check their ranges."""
    own = {name: values[name] for name in settings_of(kind) if name in values}
    check_values(settings_of(kind).values(), own)  # those that depend on each other are checked when it is built
    try:
        settings = kind(**own)
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:  # of transformers and torch
        raise RecipeError(f"invalid or conflicting settings: {' '.join(str(error).split())}") from error
    check_settings(settings)
    return settings


def read_values(values: Mapping[str, Any], flags: Flags, types: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Convert values and flags to these types by name; ``--name.key value`` changes an entry of a mapping."""
    prefix = f"{where}: " if where else ""
    in_memory = {name for name in values if Any in members(types.get(name))}
    refuse_secrets({name: _texts(value) if name in in_memory else value for name, value in values.items()}, prefix)
    check_known(values, types, prefix)
    nested = {name: words for name, words in flags.items() if "." in name and name not in types}
    heads = {name.partition(".")[0] for name in nested} & flags.keys()
    values = {**values, **{head: mapping_of(flags[head]) or flags[head] for head in heads}}  # before their entries
    for name, words in nested.items():
        if (head := name.partition(".")[0]) not in types:
            raise RecipeError(f"unknown flag --{name}{suggestion(head, types)}")
        if not words:
            raise RecipeError(f"--{name} needs a value")
        is_text = dict[str, str] in members(types[head])
        entry = [word if is_text or re.fullmatch("0[0-9]+", word) else parse_text(word) for word in words]
        values = _replace_entry(name, values, name.split("."), entry[0] if len(entry) == 1 else entry)
    converted = {
        name: _as_names(prefix + name, convert(prefix + name, value, types[name]), types[name])
        for name, value in values.items()
        if value is not None or {type(None), Any} & {*members(types[name])}
    }
    for name, words in flags.items():
        if name in nested or name in heads:
            continue
        if name not in types:
            raise RecipeError(f"unknown flag --{name}{suggestion(name, types)}")
        converted[name] = _as_names(f"--{name}", convert_words(name, words, types[name]), types[name])
    return converted


def check_known(keys: Iterable[Any], known: Collection[str], where: str) -> None:
    """Raise an error for the first unknown key."""
    for key in keys:
        if key not in known:
            listed = f": use one of {', '.join(known)}" if len(known) <= _LISTED else ""
            raise RecipeError(f"{where}unknown key {shortened(key)}{suggestion(str(key), known) or listed}")


def _texts(data: Any) -> list[str]:
    """Return the texts that stand in place of data or models, which are paths, not those inside of pairs."""
    parts = data.values() if isinstance(data, Mapping) else [data]
    items = (item for part in parts for item in (part if isinstance(part, list | tuple) else [part]))
    return [item for item in items if isinstance(item, str)]


def _replace_entry(flag: str, values: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of nested mappings with one entry replaced; raise an error if it is in something else.

    Keys that the mappings have may contain dots.
    """
    count = next((count for count in range(len(path), 1, -1) if ".".join(path[:count]) in values), 1)
    name, rest = ".".join(path[:count]), path[count:]
    if rest:
        inner = parse_text(values[name]) if isinstance(values.get(name), str) else values.get(name)
        if not isinstance(inner, Mapping | None):
            raise RecipeError(
                f"--{flag} changes an entry of {name}, which is {shortened(inner)}: write all of it by "
                f"such flags, or as a mapping, such as {name}: {{{rest[0]}: …}}"
            )
        value = _replace_entry(flag, inner or {}, rest, value)
    return {**values, name: value}


def _as_names(where: str, value: Any, hint: Any) -> Any:
    """Rewrite the mapping ``{de: pairs.tsv}`` as the list ``[de=pairs.tsv]``; leave other values unchanged."""
    return list(_names(where, value)) if hint == Names and isinstance(value, Mapping) else value


def _names(where: str, mapping: Mapping[Any, Any]) -> Iterator[str]:
    for name, values in mapping.items():
        for value in map(plain, values if isinstance(values, list | tuple) else [values]):
            if not isinstance(value, str | int | float | None):
                raise RecipeError(f"{where}: {name} takes text, a number or a list of them, not {shortened(value)}")
            yield f"{name}={'null' if value is None else str(value).lower() if isinstance(value, bool) else value}"


# Command lines


def split_arguments(
    arguments: Sequence[str], fields: Mapping[str, Field[Any]], types: Mapping[str, Any]
) -> tuple[str | None, dict[str, list[str]]]:
    """Split a command line into a recipe (see `is_recipe`) and words by flag.

    A setting takes one word, a list all words up to the next flag, a boolean none or one. Flags that are not among
    ``fields`` take all words. Other words are positional settings.
    """
    refuse_secret_arguments(arguments)
    names = {alias: name for name, field in fields.items() for alias in field.metadata.get("aliases", ())}
    words: list[str] = []
    flags: dict[str, list[str]] = {}
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if not _is_flag(word):
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        head, dot, key = name.partition(".")  # the keys of a mapping, such as methods of a study, may have hyphens
        name = head.replace("-", "_") + dot + key
        name = names.get(name, name)
        if name in flags:
            raise RecipeError(f"--{name} is given twice: write all its values after one --{name}")
        flags[name] = [value] if equals else _take_words(waiting, types.get(name))
    free = [name for name in positional_names(fields) if name not in flags]
    surplus = len(words) > len(free) and not any(takes_list(types[name]) for name in free)
    if recipe := next((word for word in reversed(words) if is_recipe(word, surplus)), None):
        words.remove(recipe)
    return recipe, _assign(words, free, types) | flags


def refuse_unknown_flags(arguments: Iterable[str], known: Collection[str]) -> None:
    """Raise an error for flags whose names, before ``=`` and the first dot, are not known."""
    flags = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in arguments if _is_flag(word)]
    if unknown := [flag for flag in flags if flag.partition(".")[0] not in known]:
        hints = (f"--{flag}{suggestion(flag.partition('.')[0], known)}" for flag in unknown)
        raise RecipeError(f"unknown flag {'; also '.join(hints)}")


def _is_flag(word: str) -> bool:
    return word.startswith("--") or (len(word) == 2 and word[0] == "-" and word[1].isalpha())


def _take_words(waiting: list[str], hint: Any) -> list[str]:
    """Remove the words of a flag from the front of those that wait."""
    count = next((i for i, word in enumerate(waiting) if _is_flag(word)), len(waiting))
    kinds = members(hint)
    if hint is None or takes_list(hint):
        most = count
    elif bool in kinds and not (count and (isinstance(parse_text(waiting[0]), bool) or str in kinds)):
        most = 0
    else:
        most = 1
    taken, waiting[:] = waiting[: min(most, count)], waiting[min(most, count) :]
    return taken


def _assign(words: Sequence[str], names: Sequence[str], types: Mapping[str, Any]) -> dict[str, list[str]]:
    """Assign words to positional settings in order; a list takes the rest."""
    rest, assigned = list(words), {}
    for name in names:
        count = len(rest) if takes_list(types[name]) else 1
        if rest:
            assigned[name], rest = rest[:count], rest[count:]
    if rest:
        if rest[0] in recipe_names():
            raise RecipeError(f"{rest[0]!r} is a second recipe: give one")
        hint = did_you_mean(rest[0], recipe_names()) or (
            ": others are flags, listed by --help; a recipe is a YAML file, or the name of one of the package, such as "
            'tr-small; a pattern of files is put in quotes, such as "books/*.txt"'
        )
        raise RecipeError(f"unexpected argument {rest[0]!r}{hint}")
    return assigned
