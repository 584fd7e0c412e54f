"""Natural language inference: XNLI, MultiNLI, SICK and files like theirs, all read into the same records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import is_jsonl, strip_compression
from hf_xsent.data.readers.hub import hub_rows
from hf_xsent.data.readers.lines import lines
from hf_xsent.errors import DataError, nearest
from hf_xsent.files import is_hub_id

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
_UNNAMED = ""  # the language where no column says it

_Row = tuple[int, str, list[Any]]  # its number, its language, and premise, hypothesis and label


@dataclass(frozen=True)
class InferencePair:
    """Whether the hypothesis follows from the premise; ``label`` is a number into ``LABELS``."""

    premise: str
    hypothesis: str
    label: int
    row: int = field(default=0, compare=False)  # of its file or data set, from 1


def load_inference(
    source: str | PathLike[str], language: str | None = None, split: str = "train"
) -> list[InferencePair]:
    """Load one language's pairs from a file or a data set on the Hub (``nyu-mll/multi_nli``, ``facebook/xnli:de``).

    A file is TSV (premise, hypothesis, label, or with a header of ``COLUMNS``) or JSONL, plain or compressed; where it
    has a column ``language``, the rows of this ``language`` are taken. Pairs without a gold label (``-``) are left out,
    as is the custom.
    """
    source = fspath(source)
    found = _pairs_by_language(source, split)
    if language is None or _UNNAMED in found:
        if len(found) > 1:
            raise DataError(f"{source} mixes the languages {', '.join(found)}: say which one to take")
        (pairs,) = found.values()
        return pairs
    if language not in found:
        raise DataError(f"{source} has no pairs in {language!r}, only in {', '.join(found)}")
    return found[language]


def load_xnli(
    source: str | PathLike[str], languages: Iterable[str] | None = None, split: str = "test"
) -> dict[str, list[InferencePair]]:
    """Load XNLI by language: a folder of ``xnli.test.tsv`` (as published) or ``test-de.tsv``, or ``facebook/xnli``."""
    folder, places, found = Path(source), dict[str, str](), dict[str, list[InferencePair]]()
    if folder.is_dir():
        places = {
            strip_compression(path.name).removeprefix(f"{split}-").removesuffix(".tsv"): str(path)
            for path in sorted(folder.glob(f"{split}-*.tsv*"))
        }
        published = sorted(folder.glob(f"xnli.{split}.tsv*"))
        if not places and not published:
            raise DataError(f"{folder} has no file xnli.{split}.tsv, nor such as {split}-de.tsv: name XNLI's folder")
        if not places:
            found = _pairs_by_language(str(published[0]), split)
    elif is_hub_id(fspath(source), owner=True):
        places = {language: f"{fspath(source)}:{language}" for language in XNLI_LANGUAGES}
    else:
        raise DataError(f"no such folder: {source}; give the folder of XNLI's files, or facebook/xnli")
    known = places or found
    for language in languages or ():
        if language not in known:
            raise DataError(f"{source} has no language {language!r}, only {', '.join(known)}")
    return {one: found[one] if one in found else load_inference(places[one], one, split) for one in languages or known}


def check_parallel(first: str, pairs: Sequence[InferencePair], second: str, others: Sequence[InferencePair]) -> None:
    """Record i of one file must be the translation of record i of the other, and so have its label."""
    if len(pairs) != len(others):
        raise DataError(f"{first} has {len(pairs)} pairs but {second} has {len(others)}: code-switching needs "
                        "translations record by record")  # fmt: skip
    for one, other in zip(pairs, others, strict=True):
        if one.label != other.label:
            raise DataError(
                f"row {one.row} of {first} is {LABELS[one.label]} but row {other.row} of {second} is "
                f"{LABELS[other.label]}: they do not translate each other"
            )


def _pairs_by_language(source: str, split: str) -> dict[str, list[InferencePair]]:
    """All pairs by what the column ``language`` says, or under ``_UNNAMED`` where there is none."""
    path, found = Path(source), dict[str, list[InferencePair]]()
    if path.is_file():
        rows = (_jsonl_rows if is_jsonl(path.name) else _tsv_rows)(path)
    elif is_hub_id(source, owner=True):
        rows = _hub_rows(source, split)
    else:
        raise DataError(f"no such file: {source}; give a file of premises, hypotheses and labels, or a Hub id")
    for number, language, cells in rows:
        pair = _pair(source, number, cells)
        if pair is not None:
            found.setdefault(language, []).append(pair)
    if not found:
        raise DataError(f"{source} holds no pairs")
    return found


def _pair(source: str, number: int, cells: list[Any]) -> InferencePair | None:
    place = f"{source}:{number}"
    premise, hypothesis, label = (str(one).strip() for one in cells)
    label = label.lower()
    if label in _NO_GOLD:
        return None
    label = "contradiction" if label == "contradictory" else label  # as XNLI's translations of MultiNLI write
    label = LABELS[int(label)] if label in ("0", "1", "2") else label
    if label not in LABELS:
        raise DataError(f"{place}: the label is {label!r}, none of {', '.join(LABELS)}{nearest(label, LABELS)}")
    if not (premise and hypothesis):
        raise DataError(f"{place}: the {'hypothesis' if premise else 'premise'} is empty; mend it or leave it out")
    return InferencePair(premise, hypothesis, LABELS.index(label), number)


def _tsv_rows(path: Path) -> Iterator[_Row]:
    places, width, of_language = [0, 1, 2], 3, None
    for number, line in lines(path):
        cells = line.split("\t")
        if number == 1 and any({*names} <= {*cells} for names in COLUMNS):
            names = next(names for names in COLUMNS if {*names} <= {*cells})
            places, width = [cells.index(name) for name in names], len(cells)
            of_language = cells.index("language") if "language" in cells else None
            continue
        if len(cells) < width:
            raise DataError(f"{path}:{number}: {len(cells)} columns instead of {width}; a line is "
                            "premise<TAB>hypothesis<TAB>label")  # fmt: skip
        language = _UNNAMED if of_language is None else cells[of_language]
        yield number, language, [cells[place] for place in places]


def _jsonl_rows(path: Path) -> Iterator[_Row]:
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({error}); each line is one object") from error
        yield _row(f"{path}:{number}", number, record)


def _hub_rows(source: str, split: str) -> Iterator[_Row]:
    for number, record in enumerate(hub_rows(source, split), start=1):
        yield _row(f"{source}:{number}", number, record)


def _row(place: str, number: int, record: Any) -> _Row:
    if isinstance(record, Mapping):
        for names in COLUMNS:
            if {*names} <= {*record}:
                return number, str(record.get("language", _UNNAMED)), [record[name] for name in names]
    raise DataError(f"{place}: no columns {', '.join(COLUMNS[0])} (or {', '.join(COLUMNS[2])})")
