"""Read semantic textual similarity (STS 2017 and STS22): sentence pairs with human scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import json_lines, lines
from hf_xsent.data.readers.hub import hub_columns, hub_configs, require_hub_id, select_names, stripped_texts
from hf_xsent.errors import DataError


@dataclass(frozen=True)
class StsSet:
    """Sentence pairs of one language pair; ``gold[i]`` is the similarity of ``first[i]`` and ``second[i]``."""

    pair: str  # ar-ar, es-en, …
    first: list[str]
    second: list[str]
    gold: list[float]


@dataclass(frozen=True)
class StsTrack:
    """A track of STS 2017: the part of its file names that identifies it, and its config on the Hub."""

    file: str
    on_hub: str | None
    scored: int | None = None  # if set, only the first N pairs have a score


STS17_TRACKS = {
    "ar-ar": StsTrack("track1.ar-ar", "ar-ar"),
    "ar-en": StsTrack("track2.ar-en", "en-ar"),
    "es-es": StsTrack("track3.es-es", "es-es"),
    "es-en": StsTrack("track4a.es-en", "es-en"),
    "es-en-wmt": StsTrack("track4b.es-en", None),  # from WMT's quality estimation
    "en-en": StsTrack("track5.en-en", "en-en"),
    "tr-en": StsTrack("track6.tr-en", "en-tr", scored=250),
}
STS22_PAIRS = (
    "ar", "de", "de-en", "de-fr", "de-pl", "en", "es", "es-en", "es-it",
    "fr", "fr-pl", "it", "pl", "pl-en", "ru", "tr", "zh", "zh-en",
)  # fmt: skip


def load_sts17(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[StsSet]:
    """Load tracks of STS 2017, by default all, in the order given.

    ``source`` is a folder of ``STS.input.track1.ar-ar.txt`` and ``STS.gs.track1.ar-ar.txt``, or a data set on the Hub
    such as ``mteb/sts17-crosslingual-sts`` with configs ``ar-ar`` and columns ``sentence1``, ``sentence2``, ``score``.
    """
    folder = Path(source)
    if folder.is_dir():
        names = [name for name, track in STS17_TRACKS.items() if (folder / f"STS.input.{track.file}.txt").is_file()]
        if not names:
            raise DataError(f"{folder} has no files such as STS.input.track1.ar-ar.txt")
        return [_read_track(folder, name) for name in select_names(folder, names, pairs)]
    return _load_hub("STS17", source, {name: track.on_hub for name, track in STS17_TRACKS.items()}, pairs)


def load_sts22(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[StsSet]:
    """Load language pairs of STS22 (news articles), by default all, in the order given.

    ``source`` is a folder of ``de-en.jsonl``, compressed or not, with ``sentence1``, ``sentence2`` and ``score``
    (higher is more similar), or a data set on the Hub such as ``mteb/sts22-crosslingual-sts``.
    """
    folder = Path(source)
    if folder.is_dir():
        paths = {path.name.split(".")[0]: path for path in folder.glob("*.jsonl*")}
        names = [pair for pair in STS22_PAIRS if pair in paths]
        if not names:
            raise DataError(f"{folder} has no files such as de-en.jsonl or de-en.jsonl.gz")
        return [_read_jsonl(paths[pair], pair) for pair in select_names(folder, names, pairs)]
    return _load_hub("STS22", source, {pair: pair for pair in STS22_PAIRS}, pairs)


def _load_hub(
    benchmark: str, source: str | PathLike[str], configs: Mapping[str, str | None], pairs: Iterable[str] | None
) -> list[StsSet]:
    """Load ``pairs``; ``configs`` maps each language pair of the benchmark to its config."""
    repo = require_hub_id(source, f"the folder of the {benchmark} files")
    available = hub_configs(repo)
    named = {pair: config for pair, config in configs.items() if config in available}
    if not named:
        raise DataError(
            f"{repo} is not {benchmark}: it has none of the configs {', '.join(filter(None, configs.values()))}"
        )
    sets = []
    for pair in select_names(repo, named, pairs):
        first, second, gold = hub_columns(repo, str(named[pair]), ["sentence1", "sentence2", "score"])
        sets.append(_sts_set(repo, pair, first, second, gold))
    return sets


def _read_track(folder: Path, name: str) -> StsSet:
    track = STS17_TRACKS[name]
    inputs, golds = (folder / f"STS.{kind}.{track.file}.txt" for kind in ("input", "gs"))
    pairs = []
    for number, line in lines(inputs):
        cells = line.split("\t")
        if len(cells) < 2:
            raise DataError(f"{inputs}:{number}: lines must be sentence<TAB>sentence")
        pairs.append(cells)
    gold = [line for _, line in lines(golds)]
    if track.scored == len(gold):
        pairs = pairs[: track.scored]
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    return _sts_set(inputs, name, first, second, gold, golds, list(range(1, len(gold) + 1)))


def _read_jsonl(path: Path, pair: str) -> StsSet:
    rows: list[tuple[Any, Any, Any]] = []
    numbers = []
    for number, row in json_lines(path):
        try:
            rows.append((row["sentence1"], row["sentence2"], row["score"]))
            numbers.append(number)
        except (TypeError, KeyError) as error:
            raise DataError(f"{path}:{number}: not a JSON object with sentence1, sentence2 and score") from error
    first, second, gold = ([row[column] for row in rows] for column in range(3))
    return _sts_set(path, pair, first, second, gold, numbers=numbers)


def _sts_set(
    source: str | Path,
    pair: str,
    first: list[Any],
    second: list[Any],
    gold: list[Any],
    golds: str | Path | None = None,
    numbers: list[int] | None = None,
) -> StsSet:
    """Check texts and scores, whose lines in their file have these ``numbers``."""
    place = f"{source}, {pair}"
    if len(gold) != len(first):
        raise DataError(f"{golds or place} has {len(gold)} gold scores for the {len(first)} pairs of {source}")
    scores = []
    for number, value in enumerate(gold):
        where = f"{golds or source}:{numbers[number]}" if numbers else f"{place}, pair {number + 1}"
        try:
            scores.append(float(value))
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: a gold score is not a number ({error})") from error
        if not math.isfinite(scores[-1]):
            raise DataError(f"{where}: a gold score is {value}, not a finite number; fix or remove the pair")
    return StsSet(pair, stripped_texts(place, first), stripped_texts(place, second), scores)
