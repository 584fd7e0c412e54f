"""Read tables (TSV and CSV) and Moses pairs (one file per language)."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.columns import Columns, choose_columns, is_header
from hf_xsent.data.readers.compression import lines_or_errors
from hf_xsent.data.readers.records import LEDGER, LICENCE, LICENSE, PAIR_FIELDS
from hf_xsent.data.readers.sources import BitextSource, require_language, require_order, source_files
from hf_xsent.errors import DataError

Row = tuple[Any, ...]  # line, source, target; if there is a header, all fields of a pair
_DELIMITERS = "\t;,"
_LINES_TO_SPLIT = 20


def read_tsv(source: BitextSource) -> Iterator[Row | DataError]:
    """Yield ``(line, source, target)``; the first line may be a header."""
    lines = lines_or_errors(Path(source.path))
    return _pairs(
        source, ((number, line if isinstance(line, DataError) else line.split("\t")) for number, line in lines)
    )


def read_csv(source: BitextSource) -> Iterator[Row | DataError]:
    """Yield ``(last line, source, target)`` of comma-separated values; the first row may be a header.

    The delimiter is tab, semicolon or comma: the first that splits all of the first rows into equally many cells, else
    the most frequent one in the first line.
    """
    return _pairs(source, _csv_rows(Path(source.path)))


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str] | DataError]]:
    bad: list[DataError] = []

    def texts() -> Iterator[str]:
        for _, line in lines_or_errors(path):
            if isinstance(line, DataError):
                bad.append(line)
            yield "" if isinstance(line, DataError) else line + "\n"

    first = [line for _, line in islice(lines_or_errors(path), _LINES_TO_SPLIT) if isinstance(line, str)]
    reader = csv.reader(texts(), delimiter=_delimiter(first), strict=True)
    try:
        for cells in reader:
            while bad:
                yield reader.line_num, bad.pop(0)
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not CSV ({error}); check the quotation marks") from error


def _delimiter(lines: Sequence[str]) -> str:
    for delimiter in _DELIMITERS:
        widths = {len(cells) for cells in csv.reader(lines, delimiter=delimiter) if cells}
        if len(widths) == 1 and max(widths) > 1:
            return delimiter
    return max(_DELIMITERS, key="".join(lines[:1]).count)


def _pairs(source: BitextSource, rows: Iterator[tuple[int, list[str] | DataError]]) -> Iterator[Row | DataError]:
    """Yield the pairs of all rows; the first row is a header if its cells are names of columns, else a pair."""
    others: list[int | None] = []  # numbers of the columns of a pair's other fields, of which tables have the ledger
    by_name = source.columns is not None and any(isinstance(column, str) for column in source.columns)
    first, second = (0, 1) if by_name else map(int, source.columns or (0, 1))
    for place, (number, cells) in enumerate(rows):
        if isinstance(cells, DataError):
            if by_name and place == 0:
                raise cells
            yield cells
        elif place == 0 and (by_name or is_header(cells, source.language, source.target_language)):
            names = [cell.strip() for cell in cells]
            require_language(source, names)
            first, second = choose_columns(
                source.place(number), names, source.columns, source.language, source.target_language
            )
            require_order(source, names[first], names[second])
            names = [LICENCE if name.lower() == LICENSE else name.lower() for name in names]
            others = [names.index(name) if name in LEDGER and name in names else None for name in PAIR_FIELDS[2:]]
        elif len(cells) <= max(first, second):
            error = _too_few_columns(source.columns, (first, second), len(cells))
            yield DataError(f"{source.place(number)}: {error}")
        else:
            if place == 0:
                require_order(source, first, second)
            stated = (cells[column] if column is not None and column < len(cells) else None for column in others)
            yield number, cells[first], cells[second], *stated


def _too_few_columns(requested: Columns | None, numbers: Sequence[int], count: int) -> str:
    if count == 1 and requested is None:
        return "the line has one column; lines of TSV are source<TAB>target, lines of CSV source,target"
    column, name = max(zip(numbers, requested or numbers, strict=True), key=lambda pair: pair[0])
    wanted = f"column {name!r}" if isinstance(name, str) else f"column {column} (counted from 0)"
    return f"{wanted} was requested, but the line has {count}"


def read_moses(source: BitextSource) -> Iterator[Row | DataError]:
    """Yield ``(line, source, target)`` of two files whose lines are translations."""
    source_path, target_path = source_files(source)
    rows = zip_longest(lines_or_errors(source_path), lines_or_errors(target_path))
    for number, (first, second) in enumerate(rows, start=1):
        if first is None or second is None:
            longer, shorter = (source_path, target_path) if first else (target_path, source_path)
            raise DataError(f"{longer}:{number}: {shorter} has only {number - 1} lines; both must have the same number")
        source_text, target_text = first[1], second[1]
        if isinstance(source_text, DataError):
            yield source_text
        elif isinstance(target_text, DataError):
            yield target_text
        else:
            yield number, source_text, target_text
