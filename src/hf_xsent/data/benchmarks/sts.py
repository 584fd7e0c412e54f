"""Read semantic textual similarity (STS 2017 and STS22): sentence pairs with human scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.sets import PairSet, Place, find_sets
from hf_xsent.data.readers.compression import json_lines, lines
from hf_xsent.data.readers.hub import hub_columns, select_names, stripped_texts
from hf_xsent.errors import DataError


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


def load_sts17(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[PairSet]:
    """Load tracks of STS 2017, by default all, in the order given.

    ``source`` is a folder of ``STS.input.track1.ar-ar.txt`` and ``STS.gs.track1.ar-ar.txt``, or a data set on the Hub
    such as ``mteb/sts17-crosslingual-sts`` with configs ``ar-ar`` and columns ``sentence1``, ``sentence2``, ``score``.
    """
    configs = {track.file: track.on_hub for track in STS17_TRACKS.values() if track.on_hub}
    files = find_sets(source, r"STS\.input\.(track.+)\.txt", "STS.input.track1.ar-ar.txt", configs)
    places = {name: files[track.file] for name, track in STS17_TRACKS.items() if track.file in files}
    return [_read(places[name], name, _read_track) for name in select_names(source, places, pairs)]


def load_sts22(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[PairSet]:
    """Load language pairs of STS22 (news articles), by default all, in the order given.

    ``source`` is a folder of ``de-en.jsonl``, compressed or not, with ``sentence1``, ``sentence2`` and ``score``
    (higher is more similar), or a data set on the Hub such as ``mteb/sts22-crosslingual-sts``.
    """
    files = find_sets(source, r"(.+)\.jsonl", "de-en.jsonl or de-en.jsonl.gz", {pair: pair for pair in STS22_PAIRS})
    places = {pair: files[pair] for pair in STS22_PAIRS if pair in files}
    return [_read(places[name], name, _read_jsonl) for name in select_names(source, places, pairs)]


def _read(place: Place, pair: str, read_file: Callable[[Path, str], PairSet]) -> PairSet:
    if isinstance(place, Path):
        return read_file(place, pair)
    first, second, gold = hub_columns(place, ["sentence1", "sentence2", "score"])
    return _sts_set(place, pair, first, second, gold)


def _read_track(inputs: Path, name: str) -> PairSet:
    track, golds = STS17_TRACKS[name], inputs.with_name(inputs.name.replace(".input.", ".gs.", 1))
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


def _read_jsonl(path: Path, pair: str) -> PairSet:
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
) -> PairSet:
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
    return PairSet(pair, stripped_texts(place, first), stripped_texts(place, second), scores)
