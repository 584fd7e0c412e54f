"""Read the Tatoeba retrieval test sets from a folder or the Hub."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from os import PathLike
from typing import cast

from hf_xsent.data.benchmarks.sets import PairSet, Place, find_sets, select_languages
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.hub import hub_columns, stripped_texts
from hf_xsent.errors import DataError


def tatoeba_groups() -> dict[str, list[str]]:
    """Return the groups of languages (ISO 639-3) that papers report, by their usual names, such as ``36``."""
    text = (files("hf_xsent.data.benchmarks") / "tatoeba_groups.json").read_text(encoding="utf-8")
    return cast("dict[str, list[str]]", json.loads(text)["groups"])


def load_tatoeba(source: str | PathLike[str], languages: Iterable[str] | None = None) -> list[PairSet]:
    """Load the Tatoeba test sets of ``languages`` in the order given, by default all.

    Languages are any of their codes, or the name of a group of them, such as ``36``. The language of a set is its code
    in the benchmark (ISO 639-3), and its targets are English. ``source`` is a folder of files
    ``tatoeba.deu-eng.deu`` and ``tatoeba.deu-eng.eng``, or a data set on the Hub such as
    ``mteb/tatoeba-bitext-mining`` with configs ``deu-eng`` and columns ``sentence1`` and ``sentence2``.
    """
    places = find_sets(source, r"tatoeba\.(...)-eng\.eng", "tatoeba.deu-eng.deu and tatoeba.deu-eng.eng", "(...)-eng")
    if languages is not None:
        groups = tatoeba_groups()
        languages = dict.fromkeys(code for name in languages for code in groups.get(name) or [name])
    return [PairSet(name, *_read(places[name], name)) for name in select_languages(source, list(places), languages)]


def _read(place: Place, name: str) -> tuple[list[str], list[str]]:
    if isinstance(place, str):
        sides = hub_columns(place, ["sentence1", "sentence2"])
        first, second = (stripped_texts(f"{place}, sentence{number}", side) for number, side in enumerate(sides, 1))
        return first, second
    paths = [place.with_name(place.name.replace("-eng.eng", f"-eng.{side}")) for side in (name, "eng")]
    first, second = ([line.strip() for _, line in lines(path)] for path in paths)
    if len(first) != len(second):
        raise DataError(f"{paths[0]} has {len(first)} lines but {paths[1]} has {len(second)}; download both again")
    if not first:
        raise DataError(f"{paths[0]} and {paths[1].name} are empty: download both again")
    return first, second
