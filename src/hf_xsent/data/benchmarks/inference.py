"""Read natural language inference (XNLI, MultiNLI, SICK and files in their formats)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.sets import find_sets
from hf_xsent.data.readers.compression import is_jsonl, json_lines, lines
from hf_xsent.data.readers.hub import hub_rows, require_hub_id, select_names
from hf_xsent.errors import DataError, did_you_mean

LABELS = ("entailment", "neutral", "contradiction")  # numbered as in data sets on the Hub
XNLI_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
COLUMNS = (  # names of premise, hypothesis and label
    ("premise", "hypothesis", "label"),
    ("premise", "hypo", "label"),  # XNLI's translations of MultiNLI
    ("sentence1", "sentence2", "gold_label"),  # MultiNLI and XNLI as published
    ("sentence_A", "sentence_B", "entailment_judgment"),  # SICK
    ("sentence_A", "sentence_B", "entailment_label"),
)
_NO_GOLD = ("-", "-1")  # labels of MultiNLI pairs whose annotators disagreed
_NO_LANGUAGE = ""  # the language of files without a column for it


@dataclass(frozen=True)
class InferencePair:
    """A premise, a hypothesis and their label, an index into ``LABELS``."""

    premise: str
    hypothesis: str
    label: int


def load_inference(
    source: str | PathLike[str], language: str | None = None, split: str = "train"
) -> list[InferencePair]:
    """Load one language's pairs from a file or a data set on the Hub (``nyu-mll/multi_nli``, ``facebook/xnli:de``).

    A file is TSV or JSONL, plain or compressed. A TSV has a header, or the columns premise, hypothesis and label;
    headers and JSONL use the names in ``COLUMNS``. If there is a column ``language``, only the rows in ``language``
    are loaded. Pairs without a gold label (``-``) are dropped.
    """
    pairs = _pairs_by_language(fspath(source), split)
    if language is None or _NO_LANGUAGE in pairs:
        if len(pairs) > 1:
            raise DataError(f"{fspath(source)} has several languages, {', '.join(pairs)}; choose one")
        return next(iter(pairs.values()))
    return pairs[select_names(source, pairs, [language])[0]]


def load_xnli(
    source: str | PathLike[str], languages: Iterable[str] | None = None, split: str = "test"
) -> dict[str, list[InferencePair]]:
    """Load XNLI by language: a folder of ``xnli.test.tsv`` (as published) or ``test-de.tsv``, or ``facebook/xnli``."""
    configs = {language: language for language in XNLI_LANGUAGES}
    files = rf"{split}-(.+)\.tsv|xnli\.({split})\.tsv"
    places = find_sets(source, files, f"xnli.{split}.tsv or {split}-de.tsv", configs)
    if published := places.get((None, split)):
        pairs = _pairs_by_language(str(published), split)
        return {language: pairs[language] for language in select_names(source, pairs, languages)}
    paths = {name if isinstance(name, str) else name[0]: str(place) for name, place in places.items()}
    names = select_names(source, paths, languages)
    return {language: load_inference(paths[language], language, split) for language in names}


def check_parallel(first: str, pairs: Sequence[InferencePair], second: str, others: Sequence[InferencePair]) -> None:
    """Raise a `DataError` unless pair i has the same label in both files, as translations do."""
    if [pair.label for pair in pairs] != [pair.label for pair in others]:
        labels = f"the labels of {first} ({len(pairs)} pairs) and {second} ({len(others)}) differ"
        raise DataError(f"{labels}: give files that are translations of each other, line by line")


def _pairs_by_language(source: str, split: str) -> dict[str, list[InferencePair]]:
    """Read all pairs, grouped by the column ``language``, or under ``_NO_LANGUAGE`` without one."""
    path, pairs = Path(source), dict[str, list[InferencePair]]()
    if path.is_file():
        records = json_lines(path) if is_jsonl(path.name) else _tsv_records(path)
    else:
        require_hub_id(source, "a file of premises, hypotheses and labels")
        records = enumerate(hub_rows(source, split), start=1)
    for number, record in records:
        place = f"{source}:{number}"
        pair = _pair(place, _cells(place, record))
        if pair is not None:
            pairs.setdefault(str(record.get("language", _NO_LANGUAGE)), []).append(pair)
    if not pairs:
        raise DataError(f"{source} has no pairs")
    return pairs


def _pair(place: str, cells: list[Any]) -> InferencePair | None:
    premise, hypothesis = (cell.strip() if isinstance(cell, str) else "" for cell in cells[:2])
    label = str(cells[2]).strip().lower()
    if label in _NO_GOLD:
        return None
    label = "contradiction" if label == "contradictory" else label  # in XNLI's translations of MultiNLI
    label = LABELS[int(label)] if label in ("0", "1", "2") else label
    if label not in LABELS:
        raise DataError(f"{place}: unknown label {label!r}; use {', '.join(LABELS)}{did_you_mean(label, LABELS)}")
    if not (premise and hypothesis):
        raise DataError(
            f"{place}: the {'hypothesis' if premise else 'premise'} is empty or not text; fix or remove the row"
        )
    return InferencePair(premise, hypothesis, LABELS.index(label))


def _tsv_records(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    header: Sequence[str] = COLUMNS[0]
    for number, line in lines(path):
        cells = line.split("\t")
        if number == 1 and any({*names} <= {*cells} for names in COLUMNS):
            header = cells
            continue
        if len(cells) < len(header):
            raise DataError(f"{path}:{number}: {len(cells)} columns instead of {len(header)}; lines must be "
                            "premise<TAB>hypothesis<TAB>label")  # fmt: skip
        yield number, dict(zip(header, cells, strict=False))


def _cells(place: str, record: Any) -> list[Any]:
    """Return premise, hypothesis and label."""
    for names in COLUMNS if isinstance(record, Mapping) else ():
        if {*names} <= {*record}:
            return [record[name] for name in names]
    raise DataError(f"{place}: no columns {', '.join(COLUMNS[0])} (or {', '.join(COLUMNS[2])})")
