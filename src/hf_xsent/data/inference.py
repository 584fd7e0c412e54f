"""Natural language inference: XNLI, MultiNLI, SICK and files like theirs, all read into the same records."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.data.hub import hub_rows, is_hub_id
from hf_xsent.data.lines import lines
from hf_xsent.data.sources import strip_compression
from hf_xsent.errors import DataError, nearest

logger = logging.getLogger(__name__)

LABELS = ("entailment", "neutral", "contradiction")  # in the order of the numbers that data sets on the Hub have
XNLI_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
COLUMNS = (  # what the premise, the hypothesis and the label are called
    ("premise", "hypothesis", "label"),
    ("premise", "hypo", "label"),  # XNLI's translations of MultiNLI
    ("sentence1", "sentence2", "gold_label"),  # MultiNLI and XNLI as published
    ("sentence_A", "sentence_B", "entailment_judgment"),  # SICK
    ("sentence_A", "sentence_B", "entailment_label"),
)
_NO_GOLD = ("-", "-1")  # where MultiNLI's annotators did not agree


@dataclass(frozen=True)
class InferencePair:
    """Whether the hypothesis follows from the premise; ``label`` is a number into ``LABELS``."""

    premise: str
    hypothesis: str
    label: int


def load_inference(source: str | PathLike[str], split: str = "train") -> list[InferencePair]:
    """Load one language's pairs from a file or a data set on the Hub (``nyu-mll/multi_nli``, ``facebook/xnli:de``).

    A file is TSV (premise, hypothesis, label, or with a header of ``COLUMNS``) or JSONL, plain or compressed. Pairs
    without a gold label (``-``) are left out, as is the custom.
    """
    source = fspath(source)
    pairs = [pair for pair in _pairs(source, split) if pair is not None]
    if not pairs:
        raise DataError(f"{source} holds no pairs")
    return pairs


def load_xnli(
    source: str | PathLike[str], languages: Iterable[str] | None = None, split: str = "test"
) -> dict[str, list[InferencePair]]:
    """Load XNLI by language, from a folder of files ``test-de.tsv`` or from ``facebook/xnli`` on the Hub."""
    folder = Path(source)
    if folder.is_dir():
        found = {
            strip_compression(path.name).removeprefix(f"{split}-").removesuffix(".tsv"): str(path)
            for path in sorted(folder.glob(f"{split}-*.tsv*"))
        }
        if not found:
            raise DataError(f"{folder} has no files such as {split}-de.tsv: name XNLI's folder, one file a language")
    elif is_hub_id(fspath(source)):
        found = {language: f"{fspath(source)}:{language}" for language in XNLI_LANGUAGES}
    else:
        raise DataError(f"no such folder: {source}; give the folder of XNLI's files, or facebook/xnli")
    for language in languages or ():
        if language not in found:
            raise DataError(f"{source} has no language {language!r}, only {', '.join(found)}")
    return {language: load_inference(found[language], split) for language in languages or found}


def check_parallel(first: str, pairs: Sequence[InferencePair], second: str, others: Sequence[InferencePair]) -> None:
    """Record i of one file must be the translation of record i of the other, and so have its label."""
    if len(pairs) != len(others):
        raise DataError(f"{first} has {len(pairs)} pairs but {second} has {len(others)}: code-switching needs "
                        "translations record by record")  # fmt: skip
    for number, (one, other) in enumerate(zip(pairs, others, strict=True), start=1):
        if one.label != other.label:
            raise DataError(
                f"record {number} is {LABELS[one.label]} in {first} but {LABELS[other.label]} in {second}: "
                "they do not translate each other"
            )


def _pairs(source: str, split: str) -> Iterator[InferencePair | None]:
    path = Path(source)
    if path.is_file():
        reader = _jsonl_rows if Path(strip_compression(path.name)).suffix in (".jsonl", ".json") else _tsv_rows
        for number, row in reader(path):
            yield _pair(f"{path}:{number}", row)
    elif is_hub_id(source):
        names: tuple[str, str, str] | None = None
        for number, record in enumerate(hub_rows(source, split), start=1):
            names = names or _names(source, record)
            yield _pair(f"{source}, record {number}", [record[name] for name in names])
    else:
        raise DataError(f"no such file: {source}; give a file of premises, hypotheses and labels, or a Hub id")


def _pair(place: str, row: list[Any]) -> InferencePair | None:
    premise, hypothesis, label = (str(one).strip() for one in row)
    label = label.lower()
    if label in _NO_GOLD:
        return None
    label = "contradiction" if label == "contradictory" else label  # as XNLI's translations of MultiNLI write
    label = LABELS[int(label)] if label in ("0", "1", "2") else label
    if label not in LABELS:
        raise DataError(f"{place}: the label is {label!r}, none of {', '.join(LABELS)}{nearest(label, LABELS)}")
    if not (premise and hypothesis):
        raise DataError(f"{place}: the {'hypothesis' if premise else 'premise'} is empty; mend it or leave it out")
    return InferencePair(premise, hypothesis, LABELS.index(label))


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    places, width = [0, 1, 2], 3
    for number, line in lines(path):
        cells = line.split("\t")
        if number == 1 and any({*names} <= {*cells} for names in COLUMNS):
            names = next(names for names in COLUMNS if {*names} <= {*cells})
            places, width = [cells.index(name) for name in names], len(cells)
            continue
        if len(cells) < width:
            raise DataError(f"{path}:{number}: {len(cells)} columns instead of {width}; a line is "
                            "premise<TAB>hypothesis<TAB>label")  # fmt: skip
        yield number, [cells[place] for place in places]


def _jsonl_rows(path: Path) -> Iterator[tuple[int, list[Any]]]:
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({error}); each line is one object") from error
        yield number, [record[name] for name in _names(f"{path}:{number}", record)]


def _names(place: str, record: Any) -> tuple[str, str, str]:
    if isinstance(record, Mapping):
        for names in COLUMNS:
            if {*names} <= {*record}:
                return names
    raise DataError(f"{place}: no columns {', '.join(COLUMNS[0])} (or {', '.join(COLUMNS[2])})")
