"""Stream sentence pairs from every supported format; memory does not grow with the file.

A reader yields numbered rows: the cells of a table, a record, or two texts; and a `DataError` in place of a bad row,
which the caller raises or counts. Readers of tables and records know no languages: their columns are chosen here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from hf_xsent.data.identification import check_order
from hf_xsent.data.readers.catalogs import read_mo, read_po
from hf_xsent.data.readers.columns import CURE, LANGUAGE, choose_columns, is_header, language_of_columns, names_of_sides
from hf_xsent.data.readers.compression import lines_or_errors
from hf_xsent.data.readers.fields import LEDGER, LICENCE, LICENSE, PAIR_FIELDS, LinkedPair, checked_pair
from hf_xsent.data.readers.records import names_of, open_parquet, read_dataset, read_jsonl, value_of
from hf_xsent.data.readers.sources import BitextSource, refuse_table
from hf_xsent.data.readers.tables import read_csv, read_moses, read_tsv
from hf_xsent.data.readers.tmx import read_tmx
from hf_xsent.errors import DataError
from hf_xsent.files import is_local

OnError = Literal["raise", "skip"]
Row = TypeVar("Row")
Numbered = Iterator[tuple[int, Row | DataError]]
Texts = tuple[Any, ...]  # source and target, or all fields of a pair, unchecked

_FIRST_PAIRS, _MIN_PAIRS = 100, 6  # to decide that a column has no letters
_EXAMPLES = 3
_NOT_OF_PAIRS = re.compile("labels?$|negatives?(_[0-9]+)?$", re.IGNORECASE)  # columns of sentence-transformers' data
# Formats without columns, and how to state the other order of source and target.
ORDERS = dict.fromkeys(("tmx", "po", "mo"), "state the two languages in the other order")
ORDERS["moses"] = "join the two files in the other order"

logger = logging.getLogger(__name__)


def read_pairs(source: BitextSource) -> Iterator[tuple[str, str]]:
    """Stream the pairs of a source; raise the error of the first bad row."""
    for pair in read_linked_pairs(source):
        if isinstance(pair, DataError):
            raise pair
        yield pair[:2]


def read_linked_pairs(source: BitextSource) -> Iterator[LinkedPair | DataError]:
    """Stream pairs with their word links and negatives, and a `DataError` in place of each bad row."""
    pairs = (
        texts if isinstance(texts, DataError) else checked_pair(source, number, *texts)
        for number, texts in _read(source)
    )
    first = list(islice(pairs, _FIRST_PAIRS))
    _check_sides(source, [pair for pair in first if not isinstance(pair, DataError)])
    yield from first
    yield from pairs


def language_of_header(source: BitextSource) -> str | None:
    """Return the language that the names of a file's columns have besides the target's; None without one."""
    names: list[str] = []
    if source.format in ("tsv", "csv"):
        first = next((row for _, row in _rows_of_table(source) if not isinstance(row, DataError)), [])
        names = first if is_header(first, source.language, source.target_language) else []
    elif source.format == "jsonl":
        rows = (row for _, row in read_jsonl(Path(source.path)))
        names = names_of(next((row for row in rows if not isinstance(row, DataError)), {}))
    elif source.format == "datasets" and is_local(source.path):
        names = names_of(next((row for _, row in read_dataset(source.path, source.split)), {}))
    elif source.format == "parquet":
        with open_parquet(source.path) as file:
            names = _names_of_parquet(file)
    has_language = any(name in LANGUAGE for name in names)
    return None if has_language else language_of_columns(tuple(names_of_sides(names)), source.target_language)


def _read(source: BitextSource) -> Numbered[Texts]:
    """Yield the number and the texts of each pair, unchecked."""
    if source.format == "datasets":
        return _pairs_of_records(source, read_dataset(source.path, source.split))
    if source.format == "moses":
        for file in source.files:
            refuse_table(file, (line for _, line in lines_or_errors(file) if isinstance(line, str)))
        return read_moses(*source.files)
    (path,) = source.files
    if source.format == "tmx":
        return read_tmx(path, source.language, source.target_language)
    if source.format in ("po", "mo"):
        return read_po(path) if source.format == "po" else read_mo(path)
    if source.format == "jsonl":
        return _pairs_of_records(source, read_jsonl(path))
    if source.format == "parquet":
        return _pairs_of_parquet(source)
    return _pairs_of_table(source, _rows_of_table(source))


def _rows_of_table(source: BitextSource) -> Numbered[list[str]]:
    return (read_tsv if source.format == "tsv" else read_csv)(Path(source.path))


def _pairs_of_table(source: BitextSource, rows: Numbered[list[str]]) -> Numbered[Texts]:
    """Yield the pairs of a table; its first row is a header if its cells are names of columns, else a pair."""
    numbers = [column for column in source.columns or (0, 1) if isinstance(column, int)]
    sides: tuple[int, int] | None = None
    ledger: list[int | None] = []  # the column of each further field of a pair
    for number, cells in rows:
        if isinstance(cells, DataError):
            yield number, cells
            continue
        if sides is None and len(cells) > 1:
            if len(numbers) != 2 or is_header(cells, source.language, source.target_language):
                names = [cell.strip() for cell in cells]
                sides = _choose(source, source.place(number), names)
                names = [LICENCE if name.lower() == LICENSE else name.lower() for name in names]
                ledger = [names.index(name) if name in LEDGER and name in names else None for name in PAIR_FIELDS[2:]]
                continue
            sides = numbers[0], numbers[1]
            if all(cell.isidentifier() and cell.islower() for cell in map(str.strip, cells)):
                words, cure = " and ".join(cells), "if they name columns, state the two of the sentences as columns"
                logger.warning("%s: %s are read as a pair; %s", source.place(number), words, cure)
        first, second = both = sides or (0, 1)
        if len(cells) > max(both):
            stated = [cells[column] if column is not None and column < len(cells) else None for column in ledger]
            yield number, (cells[first], cells[second], *stated)
        else:
            missing = (source.columns or both)[both.index(max(both))]
            place, tables = source.place(number), "lines of TSV are source<TAB>target, lines of CSV source,target"
            error = f"{place}: no column {missing!r} (numbers count from 0), since the line has {len(cells)}; {tables}"
            yield number, DataError(error)


def _pairs_of_records(
    source: BitextSource, records: Iterable[tuple[int, Any]], sides: tuple[str, str] | None = None
) -> Numbered[Texts]:
    """Yield the pairs of records, whose columns are those of the first one unless ``sides`` names them."""
    for number, record in records:
        if isinstance(record, DataError):
            yield number, record
            continue
        if sides is None and len(names := names_of(record)) < 2:
            yield number, DataError(f"{source.place(number)}: a pair needs two columns, not only {', '.join(names)}")
            continue
        sides = sides or _choose_names(source, names)
        others = {name.lower(): value for name, value in record.items()}
        others[LICENCE] = others.get(LICENCE) or others.get(LICENSE)
        yield number, (*(value_of(record, side) for side in sides), *map(others.get, PAIR_FIELDS[2:]))


def _pairs_of_parquet(source: BitextSource) -> Numbered[Texts]:
    """Yield the pairs of a Parquet file; no other columns are read."""
    with open_parquet(source.path) as file:
        sides = _choose_names(source, _names_of_parquet(file))
        others = (name for name in file.schema_arrow.names if name.lower() in (*PAIR_FIELDS[2:], LICENSE))
        batches = file.iter_batches(batch_size=1000, columns=[*sides, *others])
        records = (record for batch in batches for record in batch.to_pylist())
        yield from _pairs_of_records(source, enumerate(records, start=1), sides)


def _names_of_parquet(file: Any) -> list[str]:
    return [file.schema.column(number).path for number in range(len(file.schema))]


def _choose_names(source: BitextSource, names: list[str]) -> tuple[str, str]:
    first, second = _choose(source, source.name, names)
    return names[first], names[second]


def _choose(source: BitextSource, place: str, names: list[str]) -> tuple[int, int]:
    """Return the numbers of the source and target column, by default those below ``translation``, as in OPUS."""
    language = next((name for name in names if name in LANGUAGE), None)
    if language and not source.stated:
        raise DataError(
            f"{source.name}: the column {language} of a file is not read: name the language, as in de={source.path}, "
            f"or und={source.path} for a mixture; in Python, a Dataset is read by language"
        )
    if source.columns is None and (unread := [name for name in names if _NOT_OF_PAIRS.match(name)]):
        logger.warning(
            "%s: not read: %s. All rows are translations; negatives are lists named source_negatives, target_negatives",
            source.name,
            ", ".join(unread),
        )
    shown = names_of_sides(names) if source.columns is None else names
    return choose_columns(place, shown, source.columns, source.language, source.target_language)


def _check_sides(source: BitextSource, first: list[LinkedPair]) -> None:
    """Raise an error if a side of the first pairs has no letters, as in columns of numbers, or both are swapped."""
    sides = [pair[0] for pair in first], [pair[1] for pair in first]
    for side, texts in zip(("source", "target"), sides, strict=True):
        rest = texts[1:]  # the first may be a header that was not recognized
        if len(texts) >= _MIN_PAIRS and not any(map(str.isalpha, "".join(rest))):
            raise DataError(
                f"{source.name}: the {side} column has no letters in the first {len(texts)} pairs "
                f"({', '.join(map(repr, rest[:_EXAMPLES]))}): {CURE}"
            )
    if source.language != "und" or not source.stated:  # score and align-words state und by default
        cure = "drop --columns, or name them in the other order" if source.columns else ""
        check_order(sides, (source.language, source.target_language), source.name, ORDERS.get(source.format, cure))
