"""The Tatoeba retrieval test sets, read from a local folder or from the Hub into the same records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import cast

from hf_xsent.data.languages import find_language
from hf_xsent.data.readers.hub import hub_configs, hub_sentences
from hf_xsent.data.readers.lines import lines
from hf_xsent.errors import DataError, nearest
from hf_xsent.files import is_hub_id


@dataclass(frozen=True)
class TatoebaSet:
    """The Tatoeba sentences of one language; ``sources[i]`` and ``targets[i]`` (English) translate each other."""

    language: str  # as the benchmark names it: ISO 639-3
    code: str  # ISO 639-1 where there is one
    sources: list[str]
    targets: list[str]


def tatoeba_groups() -> dict[str, list[str]]:
    """Give the groups of languages that papers report on (ISO 639-3), by their usual names, such as 14 or 36."""
    text = (files("hf_xsent.data.benchmarks") / "tatoeba_groups.json").read_text(encoding="utf-8")
    return cast("dict[str, list[str]]", json.loads(text)["groups"])


def load_tatoeba(source: str | PathLike[str], languages: Iterable[str] | None = None) -> list[TatoebaSet]:
    """Load the Tatoeba test sets of ``languages`` (any of their codes; default all) in the order asked for.

    ``source`` is a folder of files ``tatoeba.deu-eng.deu`` and ``tatoeba.deu-eng.eng``, or a data set on the Hub such
    as ``mteb/tatoeba-bitext-mining`` with configs ``deu-eng`` and columns ``sentence1`` and ``sentence2``.
    """
    folder = Path(source)
    if folder.is_dir():
        names = [path.name.split(".")[1][:3] for path in sorted(folder.glob("tatoeba.???-eng.eng"))]
        if not names:
            raise DataError(f"{folder} has no files tatoeba.xxx-eng.xxx and tatoeba.xxx-eng.eng; name their folder")
        return [_tatoeba_set(name, *_read_folder(folder, name)) for name in _select(names, languages)]
    repo = fspath(source)
    if not is_hub_id(repo, owner=True):
        raise DataError(f"no such folder: {repo}; give the folder of the Tatoeba files, or a data set as owner/name")
    return [_tatoeba_set(name, *_read_hub(repo, name)) for name in _select(_hub_names(repo), languages)]


def _tatoeba_set(name: str, sources: list[str], targets: list[str]) -> TatoebaSet:
    return TatoebaSet(name, find_language(name).code, sources, targets)


def _select(names: list[str], languages: Iterable[str] | None) -> list[str]:
    """Match the languages asked for with the names there are: the very code first, then the same language."""
    if languages is None:
        return names
    by_code = {find_language(name).code: name for name in reversed(names)}
    selected = []
    for language in languages:
        name = language if language in names else by_code.get(find_language(language).code)
        if name is None:
            raise DataError(f"Tatoeba has no language {language!r}{nearest(language, [*names, *by_code])}")
        selected.append(name)
    return selected


def _read_folder(folder: Path, name: str) -> tuple[list[str], list[str]]:
    paths = [folder / f"tatoeba.{name}-eng.{side}" for side in (name, "eng")]
    sides = [_read_lines(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise DataError(f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}; fetch both anew")
    return sides[0], sides[1]


def _read_lines(path: Path) -> list[str]:
    if not path.is_file():
        raise DataError(f"no such file: {path}; each language needs its own file and the English one")
    return [line.strip() for _, line in lines(path)]


def _hub_names(repo: str) -> list[str]:
    configs = hub_configs(repo)
    names = [config.removesuffix("-eng") for config in configs if config.endswith("-eng")]
    if not names:
        raise DataError(f"{repo} has no configs such as deu-eng; its configs are {', '.join(configs[:5])}")
    return names


def _read_hub(repo: str, name: str) -> tuple[list[str], list[str]]:
    sources, targets = hub_sentences(repo, f"{name}-eng", ["sentence1", "sentence2"])
    return sources, targets
