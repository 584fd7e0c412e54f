"""Semantic textual similarity: sentence pairs with a human score each, of STS 2017 and STS22."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.hub import check_texts, hub_columns, hub_configs
from hf_xsent.data.readers.lines import lines
from hf_xsent.errors import DataError, nearest
from hf_xsent.files import is_hub_id


@dataclass(frozen=True)
class StsSet:
    """Sentence pairs of one language pair; ``gold[i]`` says how alike ``first[i]`` and ``second[i]`` are."""

    pair: str  # ar-ar, es-en, …
    first: list[str]
    second: list[str]
    gold: list[float]


@dataclass(frozen=True)
class StsTrack:
    """A track of STS 2017 and its name on the Hub, where it is there."""

    number: str
    languages: str
    on_hub: str | None
    scored: int | None = None  # only so many of the input's first lines have a score


STS17_TRACKS = {
    "ar-ar": StsTrack("1", "ar-ar", "ar-ar"),
    "ar-en": StsTrack("2", "ar-en", "en-ar"),
    "es-es": StsTrack("3", "es-es", "es-es"),
    "es-en": StsTrack("4a", "es-en", "es-en"),
    "es-en-wmt": StsTrack("4b", "es-en", None),  # from WMT's quality estimation
    "en-en": StsTrack("5", "en-en", "en-en"),
    "tr-en": StsTrack("6", "tr-en", "en-tr", scored=250),
}
# fmt: off
STS22_PAIRS = (
    "ar", "de", "de-en", "de-fr", "de-pl", "en", "es", "es-en", "es-it",
    "fr", "fr-pl", "it", "pl", "pl-en", "ru", "tr", "zh", "zh-en",
)
# fmt: on


def load_sts17(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[StsSet]:
    """Load the tracks of STS 2017, all that are there or these, in the order asked for.

    ``source`` is a folder of ``STS.input.track1.ar-ar.txt`` and ``STS.gs.track1.ar-ar.txt``, or a data set on the Hub
    such as ``mteb/sts17-crosslingual-sts`` with configs ``ar-ar`` and columns ``sentence1``, ``sentence2``, ``score``.
    """
    folder = Path(source)
    if folder.is_dir():
        there = [name for name, track in STS17_TRACKS.items() if _track_path(folder, track, "input").is_file()]
        if not there:
            raise DataError(f"{folder} has no files STS.input.track1.ar-ar.txt and so on; name their folder")
        return [_read_track(folder, name) for name in _select("STS17", there, STS17_TRACKS, pairs)]
    configs = {track.on_hub: name for name, track in STS17_TRACKS.items() if track.on_hub}
    return _load_hub("STS17", fspath(source), configs, STS17_TRACKS, pairs)


def load_sts22(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[StsSet]:
    """Load the language pairs of STS22 (news articles), all that are there or these, in the order asked for.

    ``source`` is a folder of ``de-en.jsonl``, compressed or not, with ``sentence1``, ``sentence2`` and ``score`` (the
    more alike, the higher), or a data set on the Hub such as ``mteb/sts22-crosslingual-sts``.
    """
    folder = Path(source)
    if folder.is_dir():
        paths = {path.name.split(".")[0]: path for path in sorted(folder.glob("*.jsonl*"))}
        there = [pair for pair in STS22_PAIRS if pair in paths]
        if not there:
            raise DataError(f"{folder} has no files such as de-en.jsonl or de-en.jsonl.gz; name their folder")
        return [_read_jsonl(paths[pair], pair) for pair in _select("STS22", there, STS22_PAIRS, pairs)]
    return _load_hub("STS22", fspath(source), {pair: pair for pair in STS22_PAIRS}, STS22_PAIRS, pairs)


def _load_hub(
    benchmark: str, repo: str, configs: dict[str, str], known: Iterable[str], pairs: Iterable[str] | None
) -> list[StsSet]:
    if not is_hub_id(repo, owner=True):
        raise DataError(
            f"no such folder: {repo}; give the folder of the {benchmark} files, or a data set as owner/name"
        )
    named = {configs[config]: config for config in hub_configs(repo) if config in configs}
    there = [pair for pair in known if pair in named]
    if not there:
        raise DataError(f"{repo} has none of the configs {', '.join(configs)}; is it {benchmark}?")
    found = []
    for pair in _select(benchmark, there, known, pairs):
        first, second, gold = hub_columns(repo, named[pair], ["sentence1", "sentence2", "score"])
        found.append(_checked(repo, pair, first, second, gold))
    return found


def _select(benchmark: str, there: list[str], known: Iterable[str], pairs: Iterable[str] | None) -> list[str]:
    if pairs is None:
        return there
    chosen = list(pairs)
    for pair in chosen:
        if pair not in there:
            why = "is not there" if pair in known else f"is no pair of {benchmark}{nearest(pair, known)}"
            raise DataError(f"{benchmark}: {pair!r} {why}; there are {', '.join(there)}")
    return chosen


def _track_path(folder: Path, track: StsTrack, kind: str) -> Path:
    return folder / f"STS.{kind}.track{track.number}.{track.languages}.txt"


def _read_track(folder: Path, name: str) -> StsSet:
    track = STS17_TRACKS[name]
    inputs, golds = (_track_path(folder, track, kind) for kind in ("input", "gs"))
    pairs = []
    for number, line in lines(inputs):
        cells = line.split("\t")
        if len(cells) < 2:
            raise DataError(f"{inputs}:{number}: no two sentences, separated by a tab")
        pairs.append((cells[0], cells[1]))
    if not golds.is_file():
        raise DataError(f"no such file: {golds}; each input file needs its gold scores")
    gold = [line for _, line in lines(golds)]
    if track.scored == len(gold):
        pairs = pairs[: track.scored]
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    return _checked(inputs, name, first, second, gold, golds)


def _read_jsonl(path: Path, pair: str) -> StsSet:
    rows: list[tuple[Any, Any, Any]] = []
    for number, line in lines(path):
        try:
            row = json.loads(line)
            rows.append((row["sentence1"], row["sentence2"], row["score"]))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}:{number}: no JSON object with sentence1, sentence2 and score") from error
    first, second, gold = ([row[place] for row in rows] for place in range(3))
    return _checked(path, pair, first, second, gold)


def _checked(
    source: str | Path, pair: str, first: list[Any], second: list[Any], gold: list[Any], golds: str | Path | None = None
) -> StsSet:
    """The records, or one sentence on what is wrong with them."""
    where = f"{source}, {pair}"
    if len(gold) != len(first):
        raise DataError(f"{golds or where} has {len(gold)} gold scores for the {len(first)} pairs of {source}")
    for side in (first, second):
        check_texts(where, side)
    scores = [_number(one) for one in gold]
    wrong = next((i for i, score in enumerate(scores) if score is None), None)
    if wrong is not None:
        raise DataError(f"{golds or where}: gold score {wrong + 1} is no number: {gold[wrong]!r}")
    if len(set(scores)) < 2:
        raise DataError(f"{golds or where}: a correlation needs at least two different gold scores")
    return StsSet(
        pair,
        [text.strip() for text in first],
        [text.strip() for text in second],
        [score for score in scores if score is not None],
    )


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
