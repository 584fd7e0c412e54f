"""Read ``recipe.yaml --flag value``: YAML and flags become typed values; a flag replaces the recipe's value.

jsonargparse does this too, but its errors have several lines, its help imports every class (two seconds for torch), and
it needs a subclass of TrainingArguments.
"""

from __future__ import annotations

import errno
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin

import yaml

from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.settings.secrets import refuse_secret_arguments, refuse_secrets

_LARGEST_FILE = 1 << 18  # bytes; pyyaml reads about 100 kB per second
_MOST_VALUES = 100_000  # of a file after its aliases are replaced
_LARGEST_INT = 64  # bits
_TAG = "tag:yaml.org,2002:"
_UNUSABLE = re.compile(r"[\0\ud800-\udfff]")
_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


def split_arguments(arguments: Sequence[str]) -> tuple[str | None, dict[str, list[str]]]:
    """Split a command line into the recipe's path, if the first argument is one, and the values of each flag."""
    refuse_secret_arguments(arguments)
    rest = list(arguments)
    path = rest.pop(0) if rest and not rest[0].startswith("-") else None
    flags: dict[str, list[str]] = {}
    current: list[str] | None = None
    for one in rest:
        if one.startswith("--") or one == "-o":
            name, equals, value = one.lstrip("-").partition("=")
            name = "output_dir" if name in ("o", "output") else name.replace("-", "_")  # as in all other commands
            if name in flags:
                raise RecipeError(f"--{name} is given twice: write all its values after one --{name}")
            current = flags[name] = [value] if equals else []
        elif current is None:
            raise RecipeError(f"unexpected argument {one!r}: the recipe comes first, then --flag value")
        else:
            current.append(one)
    return path, flags


def read_mapping(path: str | Path, what: str = "recipe") -> dict[str, Any]:
    """Read a YAML or JSON mapping (JSON is YAML)."""
    try:
        content = parse_yaml(_read_file(Path(path)).decode("utf-8"))
    except OSError as error:
        raise RecipeError(f"cannot read the {what} {path}: {error.strerror}") from error
    except ValueError as error:
        raise RecipeError(f"the {what} {path} is not valid YAML: {error}") from error
    if not isinstance(content, Mapping):
        raise RecipeError(f"the {what} {path} holds no settings: write lines such as 'model: xlm-roberta-base'")
    refuse_secrets(content, f"{path}: ")
    return dict(cast(Mapping[str, Any], content))


def _read_file(path: Path) -> bytes:
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe may never end, /dev/zero never does
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        data = file.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise OSError(errno.EFBIG, f"it is larger than {_LARGEST_FILE >> 10} KiB")
    return data


def parse_yaml(text: str) -> Any:
    """Parse YAML in bounded time and memory; raise a ValueError for YAML that is invalid, too large or cyclic."""
    loader: Any = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_nodes(node, loader)
        return loader.construct_document(node)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except yaml.MarkedYAMLError as error:  # without the text around it, which may hold a token
        what = ": ".join(filter(None, (error.context, error.problem)))
        raise ValueError(f"{what}{_place(error.problem_mark)}") from error
    except (yaml.YAMLError, OverflowError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    finally:
        if loader is not None:
            loader.dispose()


def _place(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _check_nodes(root: yaml.Node, loader: Any) -> None:
    """Raise a ValueError for a huge or endless document, and for impossible values such as the date 2023-02-30."""
    waiting, count = [root], 0
    while waiting:
        node = waiting.pop()
        count += 1
        if count > _MOST_VALUES:
            raise ValueError(f"it has more than {_MOST_VALUES:,} values, or an alias of itself")
        if isinstance(node, yaml.MappingNode):
            waiting.extend(one for pair in node.value for one in pair)
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif _UNUSABLE.search(node.value):
            raise ValueError(f"a NUL character or a lone surrogate{_place(node.start_mark)}")
        elif node.tag.removeprefix(_TAG) in ("bool", "int", "float", "timestamp"):
            try:
                if getattr(loader.construct_object(node), "numerator", 0) >> _LARGEST_INT not in (0, -1):
                    raise OverflowError
            except (ValueError, KeyError, AttributeError, TypeError, OverflowError) as error:
                kind = node.tag.removeprefix(_TAG)
                reason = f"not a valid {kind}{_place(node.start_mark)}; quote it if it is text"
                raise ValueError(reason) from error


def check_known(keys: Iterable[Any], known: Collection[str], where: str) -> None:
    """Raise an error for the first unknown key."""
    for key in keys:
        if key not in known:
            raise RecipeError(f"{where}unknown key {shortened(key)}" + did_you_mean(str(key), known))


def read_values(
    stated: Mapping[str, Any], flags: Mapping[str, Sequence[str]], hints: Mapping[str, Any], where: str = ""
) -> dict[str, Any]:
    """Convert the values of a recipe and of flags to the types of ``hints``; a flag replaces the recipe's value.

    A setting of type ``Names`` may be a mapping. Null is a value where the type has it (``save_total_limit: null``
    keeps all checkpoints), else it means not set.
    """
    prefix = f"{where}: " if where else ""
    check_known(stated, hints, prefix)
    values = {
        key: convert_value(
            prefix + key, named_values(prefix + key, value) if hints[key] == Names else value, hints[key]
        )
        for key, value in stated.items()
        if value is not None or type(None) in _members(hints[key])
    }
    for name, words in flags.items():
        if name not in hints:
            raise RecipeError(f"unknown flag --{name}" + did_you_mean(name, hints))
        values[name] = value_of_flag(name, words, hints[name])
    return values


Names = list[str] | dict[str, Any] | None  # NAME=VALUE strings, which a recipe may write as a mapping


def value_of_flag(name: str, values: Sequence[str], hint: Any) -> Any:
    """Read the words after a flag as a value of this type; a flag alone sets a boolean."""
    where, kinds = f"--{name}", _members(hint)
    takes_list = any(get_origin(kind) is list for kind in kinds)
    if not values and bool in kinds:
        return True
    if takes_list and (len(values) != 1 or str not in kinds):
        return convert_value(where, list(values), hint)
    if len(values) != 1:
        raise RecipeError(
            f"{where} takes one value, not {shortened(' '.join(values))}" if values else f"{where} needs a value"
        )
    return convert_value(where, values[0], hint)


def convert_value(where: str, value: Any, hint: Any) -> Any:
    """Convert a value of a recipe or flag to this type, or raise an error.

    Text is parsed as YAML (``5e-5`` is a number, too) if the type has a kind that fits; otherwise, it stays text.
    """
    kinds = _members(hint)
    choices = [one.value for kind in kinds if _is_enum(kind) for one in kind]
    if choices and value is False:
        value = "no"  # YAML 1.1 parses no as false
    if isinstance(value, str) and choices and value not in choices:
        raise RecipeError(
            f"{where} {shortened(value)} is unknown: use {', '.join(choices)}{did_you_mean(value, choices)}"
        )
    found = _converted(value, kinds)
    if found is _NOT:
        quotes = (
            "; quote it: YAML reads a bare no, yes, on or off as true or false"
            if "str" in str(hint) and _has_boolean(value)
            else ""
        )
        raise RecipeError(f"{where} takes {describe_type(hint)}, not {shortened(value)}{quotes}")
    return found


def _has_boolean(value: Any) -> bool:
    return any(isinstance(one, bool) for one in (value if isinstance(value, list | tuple) else [value]))


_NOT = object()  # the value is of none of these types


def _converted(value: Any, kinds: Sequence[Any]) -> Any:
    """Return the value as the first of these types that fits, or ``_NOT``; convert a single value to a list of one."""
    if Any in kinds:
        return value
    if isinstance(value, str) and not isinstance(parsed := _parsed(value), str):
        found = _converted(parsed, [kind for kind in kinds if kind is not str and get_origin(kind) is not list])
        if found is not _NOT:
            return found
    for kind in kinds:
        found = _as(kind, value)
        if found is not _NOT:
            return found
    lists = [kind for kind in kinds if get_origin(kind) is list]
    return _as(lists[0], [value]) if lists and not isinstance(value, Mapping | list | tuple | None) else _NOT


def _as(kind: Any, value: Any) -> Any:
    """Return the value as this type, or ``_NOT``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if (origin := get_origin(kind)) in (list, tuple):
        if not isinstance(value, list | tuple):
            return _NOT
        items = [_converted(one, _members(get_args(kind)[0])) for one in value]
        return _NOT if any(one is _NOT for one in items) else origin(items)
    if (get_origin(kind) or kind) is dict:
        return dict(value) if isinstance(value, Mapping) else _NOT
    if kind in (float, str) and number:
        return kind(value)
    if _is_enum(kind):
        return value if value in [one.value for one in kind] else _NOT
    fits = isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    return value if fits else _NOT


def describe_type(hint: Any) -> str:
    """Describe a type for an error: ``a number``, ``a list``."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", dict: "a mapping"}
    kinds = [get_origin(kind) or kind for kind in _members(hint) if kind is not type(None)]
    return " or ".join(
        dict.fromkeys("a list" if kind in (list, tuple) else words.get(kind, str(kind)) for kind in kinds)
    )


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the single type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _parsed(text: str) -> Any:
    """Parse text as YAML, and as a number where YAML 1.1 reads text, such as 5e-5."""
    try:
        return float(text) if _EXPONENT.fullmatch(text) else parse_yaml(text)
    except ValueError:
        return text


def named_values(where: str, value: Any) -> Any:
    """Rewrite the mapping ``{de: pairs.tsv}`` as the list ``[de=pairs.tsv]``; leave anything else as it is."""
    return list(_names(where, value)) if isinstance(value, Mapping) else value


def _names(where: str, value: Mapping[Any, Any]) -> Iterator[str]:
    for name, some in value.items():
        if isinstance(name, bool):
            raise RecipeError(f"{where}: a key is {str(name).lower()}; quote it: YAML reads a bare no or yes so")
        for one in some if isinstance(some, list) else [some]:
            if isinstance(one, Mapping | list):
                raise RecipeError(f"{where}: {name} takes one value or a list of values, not {shortened(one)}")
            yield f"{name}={'null' if one is None else str(one).lower() if isinstance(one, bool) else one}"
