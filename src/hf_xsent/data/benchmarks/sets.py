"""Sentence pairs of a benchmark; find its sets: files of a folder, or configs of a data set on the Hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import find_language, matching_tags
from hf_xsent.data.readers.compression import strip_compression
from hf_xsent.data.readers.hub import hub_configs, require_hub_id, select_names
from hf_xsent.errors import DataError


@dataclass(frozen=True)
class PairSet:
    """Sentence pairs of one language or language pair: ``targets[i]`` belongs to ``sources[i]``."""

    language: str
    sources: list[str]
    targets: list[str]
    gold: list[float] = field(default_factory=list)  # of semantic similarity: the score of each pair


Place = Path | str  # a file, or owner/name:config on the Hub


def find_sets(
    source: str | PathLike[str], files: str, example: str, configs: str | Mapping[Any, str]
) -> dict[Any, Place]:
    """Return the place of each set by its name, which is what the groups of the pattern ``files`` match.

    ``files`` matches whole names of files of a folder, without the ending of a compression; ``example`` is such a name,
    for errors. On the Hub, ``configs`` has the config of each name, or is a pattern that matches configs.
    """
    folder = Path(source)
    if folder.is_dir():
        names = ((re.fullmatch(files, strip_compression(path.name)), path) for path in sorted(folder.iterdir()))
        places: dict[Any, Place] = {}
        for match, path in names:
            if match and (first := places.setdefault(_name_of_set(match), path)) is not path:
                raise DataError(f"{first} and {path.name} are the same set: keep one of them in the folder")
        if not places:
            raise DataError(f"{folder} has no files such as {example}")
        return places
    repo = require_hub_id(source, f"a folder of files such as {example}")
    if isinstance(configs, Mapping):
        return {name: f"{repo}:{config}" for name, config in configs.items()}
    known = hub_configs(repo)
    matches = [match for config in known if (match := re.fullmatch(configs, config))]
    if not matches:
        raise DataError(f"{repo} has none of the configs of this benchmark, only {', '.join(known[:5])}")
    return {_name_of_set(match): f"{repo}:{match[0]}" for match in matches}


def _name_of_set(match: re.Match[str]) -> Any:
    return match[1] if match.re.groups == 1 else match.groups()


def select_languages(source: str | PathLike[str], names: Sequence[str], languages: Iterable[str] | None) -> list[str]:
    """Return the name of each language: the code as given, else the one that matches it best (see `matching_tags`).

    The default is all languages; one without a region replaces those with one.
    """
    if languages is None:
        same = {name: [other for other in names if find_language(other) == find_language(name)] for name in names}
        return [name for name in names if name in matching_tags(same[name], find_language(name).code)]
    return select_names(source, names, [_name_of(source, names, code) for code in languages])


def _name_of(source: str | PathLike[str], names: Sequence[str], code: str) -> str:
    if code in names:
        return code
    matches = matching_tags(names, code)
    if len(matches) > 1:
        raise DataError(f"{source} has {' and '.join(matches)}: name one of them instead of {code}")
    return matches[0] if matches else code
