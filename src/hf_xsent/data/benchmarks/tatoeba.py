"""Read the Tatoeba retrieval test sets from a folder or the Hub."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import cast

from hf_xsent.data.languages import find_language
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.hub import hub_columns, hub_configs, require_hub_id, select_names, stripped_texts
from hf_xsent.errors import DataError


@dataclass(frozen=True)
class TatoebaSet:
    """The Tatoeba sentences of one language; ``targets[i]`` is the English translation of ``sources[i]``."""

    language: str  # ISO 639-3, as in the benchmark
    code: str  # ISO 639-1 if it exists
    sources: list[str]
    targets: list[str]


def tatoeba_groups() -> dict[str, list[str]]:
    """Return the groups of languages (ISO 639-3) that papers report, by their usual names, such as ``36``."""
    text = (files("hf_xsent.data.benchmarks") / "tatoeba_groups.json").read_text(encoding="utf-8")
    return cast("dict[str, list[str]]", json.loads(text)["groups"])


def load_tatoeba(source: str | PathLike[str], languages: Iterable[str] | None = None) -> list[TatoebaSet]:
    """Load the Tatoeba test sets of ``languages`` (any of their codes; default all) in the order given.

    ``source`` is a folder of files ``tatoeba.deu-eng.deu`` and ``tatoeba.deu-eng.eng``, or a data set on the Hub such
    as ``mteb/tatoeba-bitext-mining`` with configs ``deu-eng`` and columns ``sentence1`` and ``sentence2``.
    """
    folder = Path(source)
    if folder.is_dir():
        names = [path.name.split(".")[1][:3] for path in sorted(folder.glob("tatoeba.???-eng.eng"))]
        if not names:
            raise DataError(f"{folder} has no files tatoeba.xxx-eng.xxx and tatoeba.xxx-eng.eng; name their folder")
        sides = {name: _read_folder(folder, name) for name in _select(folder, names, languages)}
    else:
        repo = require_hub_id(source, "the folder of the Tatoeba files")
        configs = hub_configs(repo)
        names = [config.removesuffix("-eng") for config in configs if config.endswith("-eng")]
        if not names:
            raise DataError(f"{repo} has no configs such as deu-eng; its configs are {', '.join(configs[:5])}")
        sides = {name: _read_hub(repo, name) for name in _select(repo, names, languages)}
    return [TatoebaSet(name, find_language(name).code, *pair) for name, pair in sides.items()]


def _select(source: str | Path, names: list[str], languages: Iterable[str] | None) -> list[str]:
    """Return the name of each language's set: the code as given, else another code of the language."""
    if languages is None:
        return names
    by_code = {find_language(name).code: name for name in reversed(names)}
    codes = (language if language in names else find_language(language).code for language in languages)
    return select_names(source, names, (by_code.get(code, code) for code in codes))


def _read_folder(folder: Path, name: str) -> tuple[list[str], list[str]]:
    paths = [folder / f"tatoeba.{name}-eng.{side}" for side in (name, "eng")]
    sides = [[line.strip() for _, line in lines(path)] for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise DataError(f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}; download both again")
    return sides[0], sides[1]


def _read_hub(repo: str, name: str) -> tuple[list[str], list[str]]:
    sources, targets = hub_columns(repo, f"{name}-eng", ["sentence1", "sentence2"])
    place = f"{repo}: {name}-eng, split test"
    return stripped_texts(f"{place}, sentence1", sources), stripped_texts(f"{place}, sentence2", targets)
