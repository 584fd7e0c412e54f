"""Read semantic textual similarity (STS 2017 and STS22): sentence pairs with human scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.sets import PairSet, Place, find_sets
from hf_xsent.data.languages import STRICT_CODE
from hf_xsent.data.readers.compression import json_lines, lines
from hf_xsent.data.readers.hub import hub_columns, select_names
from hf_xsent.errors import DataError, shortened

_Row = tuple[str, Any, Any, Any]  # place, both sentences, gold score


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
    return [_read(places[name], name, _track_rows) for name in select_names(source, places, pairs)]


def load_sts22(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[PairSet]:
    """Load language pairs of STS22 (news articles), by default all, in the order given.

    ``source`` is a folder of ``de-en.jsonl``, compressed or not, with ``sentence1``, ``sentence2`` and ``score``
    (higher is more similar), also of other languages, or a data set on the Hub such as ``mteb/sts22-crosslingual-sts``.
    """
    pattern, example = rf"({STRICT_CODE}(?:-{STRICT_CODE})?)\.jsonl", "de-en.jsonl or de-en.jsonl.gz"
    files = find_sets(source, pattern, example, {pair: pair for pair in STS22_PAIRS})
    places = {pair: files[pair] for pair in sorted(files, key=[*STS22_PAIRS, *files].index)}
    return [_read(places[name], name, _json_rows) for name in select_names(source, places, pairs)]


def _read(place: Place, name: str, rows_of_file: Callable[[Path, str], Iterable[_Row]]) -> PairSet:
    """Read and check the pairs of a set."""
    rows = rows_of_file(place, name) if isinstance(place, Path) else _hub_rows(place)
    pairs = PairSet(name, [], [])
    for where, first, second, value in rows:
        for side, text in ((pairs.sources, first), (pairs.targets, second)):
            if not isinstance(text, str):
                raise DataError(f"{where}: a sentence is not text but {shortened(text)}; fix or remove the pair")
            side.append(text.strip())
        try:
            pairs.gold.append(float(value))
        except (TypeError, ValueError):
            pairs.gold.append(math.nan)
        if not math.isfinite(pairs.gold[-1]):
            raise DataError(f"{where}: a gold score is {value!r}, not a finite number; fix or remove the pair")
    if not pairs.sources:
        raise DataError(f"{place} has no pairs: download it again, or name the languages to measure")
    return pairs


def _hub_rows(place: str) -> Iterator[_Row]:
    rows = zip(*hub_columns(place, ["sentence1", "sentence2", "score"]), strict=True)
    for number, (first, second, gold) in enumerate(rows, start=1):
        yield f"{place}, pair {number}", first, second, gold


def _track_rows(inputs: Path, name: str) -> Iterator[_Row]:
    golds = inputs.with_name(inputs.name.replace(".input.", ".gs.", 1))
    pairs, gold = list(lines(inputs)), list(lines(golds))
    if STS17_TRACKS[name].scored == len(gold):
        pairs = pairs[: len(gold)]
    if len(gold) != len(pairs):
        raise DataError(f"{golds} has {len(gold)} gold scores for the {len(pairs)} pairs of {inputs}")
    for (number, line), (_, score) in zip(pairs, gold, strict=True):
        first, tab, second = line.partition("\t")
        if not tab:
            raise DataError(f"{inputs}:{number}: lines must be sentence<TAB>sentence")
        yield f"{golds}:{number}", first, second.partition("\t")[0], score


def _json_rows(path: Path, _: str) -> Iterator[_Row]:
    for number, row in json_lines(path):
        try:
            yield f"{path}:{number}", row["sentence1"], row["sentence2"], row["score"]
        except (TypeError, KeyError) as error:
            raise DataError(f"{path}:{number}: not a JSON object with sentence1, sentence2 and score") from error
