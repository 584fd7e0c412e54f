"""Read and write YAML 1.2 with its core types, in which ``no`` and ``on`` are text and ``5e-5`` is a number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from hf_xsent.errors import RecipeError
from hf_xsent.settings.secrets import refuse_secrets


class _Loader(yaml.SafeLoader):
    """Resolve the core types of YAML 1.2 instead of those of YAML 1.1: no dates, no base-60 numbers, no yes and no."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as in the base class

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Refuse a key that is given twice, of which only the last value would count."""
        node, keys = super().compose_mapping_node(anchor), set[str]()
        for key, _ in node.value:
            if str(key.value) in keys:
                raise yaml.MarkedYAMLError(problem="a key is given twice", problem_mark=key.start_mark)
            keys.add(str(key.value))
        return node


class _Dumper(yaml.SafeDumper):
    """Quote text that either YAML 1.1 or YAML 1.2 reads as another type, such as ``no``, ``1e-4`` and ``08``."""


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
):
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))


def parse_yaml(text: str) -> Any:
    """Parse YAML 1.2 (JSON is YAML); raise a ValueError in one line if it is invalid."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except yaml.MarkedYAMLError as error:  # without the text around it, which may hold a token
        mark = error.problem_mark
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"{': '.join(filter(None, (error.context, error.problem)))}{place}") from error
    except (yaml.YAMLError, LookupError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def write_yaml(values: Mapping[str, Any], **options: Any) -> str:
    """Return a mapping as YAML, in its order."""
    return cast(str, yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, **options))


def read_mapping(path: str | Path, what: str = "recipe") -> dict[str, Any]:
    """Read a YAML or JSON mapping."""
    try:
        content = parse_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"cannot read the {what} {path}: {error.strerror}") from error
    except ValueError as error:
        raise RecipeError(f"the {what} {path} is not valid YAML: {error}") from error
    if not isinstance(content, Mapping):
        raise RecipeError(f"the {what} {path} holds no settings: write lines such as 'model: xlm-roberta-base'")
    refuse_secrets(content, f"{path}: ")
    return dict(cast(Mapping[str, Any], content))
