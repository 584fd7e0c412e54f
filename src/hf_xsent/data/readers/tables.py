"""Read the rows of tables (TSV and CSV) and Moses pairs (one file per language)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import decoded, lines_or_errors, numbered_lines
from hf_xsent.errors import DataError

_DELIMITERS = "\t;,"
_ROWS_TO_SPLIT = 20
_LONGEST_CELL = 10_000_000  # characters; more are taken for an unclosed quotation mark


def read_tsv(path: Path) -> Iterator[tuple[int, list[str] | DataError]]:
    """Yield the number and the cells of each line that is not blank."""
    for number, line in lines_or_errors(path):
        if line:
            yield number, line if isinstance(line, DataError) else line.split("\t")


def read_csv(path: Path) -> Iterator[tuple[int, list[str] | DataError]]:
    """Yield the number of the last line and the cells of each row.

    The delimiter is tab, semicolon or comma: the one that splits all of the first rows into equally many cells, else
    the first row into most. Spaces may be before a quotation mark.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))  # of the process, so never lowered again
    bad: list[DataError] = []  # lines of the row

    def texts() -> Iterator[str]:
        for number, raw in numbered_lines(path):
            line = decoded(f"{path}:{number}", raw)
            if isinstance(line, DataError):
                bad.append(line)
                line = raw.decode("utf-8", "replace").replace("\0", "").rstrip("\r\n")  # for its quotation marks
            yield line + "\n"

    reader = csv.reader(texts(), delimiter=_delimiter(path, texts), skipinitialspace=True, strict=True)
    bad.clear()
    try:
        for cells in reader:
            if bad:
                yield reader.line_num, bad[0]
            elif cells:
                yield reader.line_num, cells
            bad.clear()
    except csv.Error as error:
        if bad:  # perhaps its bytes are the cause
            raise bad[0] from error
        raise DataError(f"{path}:{reader.line_num}: not CSV ({error}); check the quotation marks") from error


def _delimiter(path: Path, texts: Callable[[], Iterator[str]]) -> str:
    """Return the delimiter that splits all of the first rows into as many cells, or else the first into most.

    A `DataError` is raised if several do, such as the comma and the Greek question mark, which is a semicolon.
    """
    splitting, widths = [], dict.fromkeys(_DELIMITERS, 0)  # of the first row
    for delimiter in _DELIMITERS:
        rows = filter(None, csv.reader(texts(), delimiter=delimiter, skipinitialspace=True))
        with suppress(csv.Error):  # `read_csv` says where
            width = widths[delimiter] = len(next(rows, ()))
            if width > 1 and all(len(cells) == width for cells in islice(rows, _ROWS_TO_SPLIT)):
                splitting.append(delimiter)
    if len(splitting) > 1:
        raise DataError(
            f"{path}: its rows are split equally by {' and by '.join(map(repr, splitting))}: add a first line that "
            f"names the columns, such as source{splitting[-1]}target"
        )
    return splitting[0] if splitting else max(_DELIMITERS, key=widths.__getitem__)


def read_moses(source: Path, target: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number and the texts of each line of two files whose lines are translations, or a `DataError`."""
    for number, (first, second) in enumerate(zip_longest(lines_or_errors(source), lines_or_errors(target)), start=1):
        if first is None or second is None:
            longer, shorter = (source, target) if first else (target, source)
            raise DataError(f"{longer}:{number}: {shorter} has only {number - 1} lines; both must have the same number")
        (_, source_text), (_, target_text) = first, second
        if isinstance(source_text, DataError) or isinstance(target_text, DataError):
            yield number, source_text if isinstance(source_text, DataError) else target_text
        else:
            yield number, (source_text, target_text)
