"""Read tab-separated tables and Moses pairs (one file per language)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.columns import choose_columns, guess_columns, is_header, names_other_language
from hf_xsent.data.readers.compression import lines_or_errors
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.errors import DataError

Row = tuple[int, str, str]


def read_tsv(source: BitextSource) -> Iterator[Row | DataError]:
    """Yield ``(line, source, target)``; the first line may be a header."""
    path = Path(source.path)
    requested = first, second = source.source_column, source.target_column
    columns: Any = (int(second == 0) if first is None else first, int(first != 1) if second is None else second)
    by_name = any(isinstance(column, str) for column in requested)
    for number, line in lines_or_errors(path):
        if isinstance(line, DataError):
            if number == 1 and by_name:
                raise line
            yield line
            continue
        cells = line.split("\t")
        if number == 1 and (by_name or is_header(cells, source.language, source.target_language)):
            columns = _header_columns(source, f"{path}:{number}", [cell.strip() for cell in cells])
        elif len(cells) <= max(columns):
            yield DataError(f"{path}:{number}: {_too_few_columns(requested, columns, len(cells))}")
        else:
            yield number, cells[columns[0]], cells[columns[1]]


def _header_columns(source: BitextSource, place: str, names: list[str]) -> tuple[int, int]:
    """Return the numbers of the requested columns, else of those with usual names, else of the only two columns.

    A column that names a third language is neither side.
    """
    guesses = guess_columns(names, source.language, source.target_language)
    if len(names) == 2 and None in guesses:
        first, second = (1, 0) if guesses[0] == 1 or guesses[1] == 0 else (0, 1)
        guesses = (
            None if names_other_language(names[first], source.language) else first,
            None if names_other_language(names[second], source.target_language) else second,
        )
    return choose_columns(place, names, (source.source_column, source.target_column), guesses)


def _too_few_columns(requested: Sequence[int | str | None], columns: Sequence[int], count: int) -> str:
    if count == 1 and requested == (None, None):
        return "the line has no tab; lines must be source<TAB>target"
    column, name = max(zip(columns, requested, strict=True), key=lambda pair: pair[0])
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
