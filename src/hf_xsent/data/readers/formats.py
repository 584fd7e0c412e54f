"""Stream sentence pairs from every supported format; memory does not grow with the file.

A reader yields numbered rows: the cells of a table, a record, or two texts; and a `DataError` in place of a bad row,
which the caller raises or counts. Readers of tables and records know no languages: their columns are chosen here.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any, Literal, TypeVar

from hf_xsent.data.identification import check_order
from hf_xsent.data.languages import subtags_of
from hf_xsent.data.readers.catalogs import read_mo, read_po
from hf_xsent.data.readers.columns import (
    CURE,
    LANGUAGE,
    choose_columns,
    has_side,
    is_header,
    language_column,
    language_in,
    language_of_columns,
    language_value,
    names_of_sides,
)
from hf_xsent.data.readers.compression import lines_or_errors
from hf_xsent.data.readers.fields import (
    LEDGER,
    LICENCE,
    LICENSE,
    PAIR_FIELDS,
    LinkedPair,
    checked_pair,
    exchange_sides,
    stated_text,
)
from hf_xsent.data.readers.records import (
    names_of,
    names_of_parquet,
    read_dataset,
    read_jsonl,
    read_parquet,
    value_of,
)
from hf_xsent.data.readers.sources import BitextSource, refuse_table
from hf_xsent.data.readers.tables import read_csv, read_moses, read_tsv
from hf_xsent.data.readers.tmx import read_tmx
from hf_xsent.errors import DataError

OnError = Literal["raise", "skip"]
Row = TypeVar("Row")
Numbered = Iterator[tuple[int, Row | DataError]]
Texts = tuple[Any, ...]  # source and target, or all fields of a pair, unchecked

_FIRST_PAIRS, _MIN_PAIRS = 100, 6  # to decide that a column has no letters
_EXAMPLES = 3
_NOT_OF_PAIRS = re.compile("labels?$|negatives?(_[0-9]+)?$", re.IGNORECASE)  # columns of sentence-transformers' data
# Formats without columns, and how to state the other order of source and target.
ORDERS = dict.fromkeys(("tmx", "po", "mo"), "state the two languages in the other order")
ORDERS["moses"] = (
    "exchange the names of the two files, or join them in the other order if their names have no language codes"
)

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


def by_language(source: BitextSource) -> list[BitextSource]:
    """Return a source for each language in the column ``language`` or ``lang``, else of the names of its columns."""
    names = _names(source)
    if (column := language_column(names)) is None:
        sides = enumerate(zip(names, names_of_sides(names), strict=True))
        stated = [side for place, (name, side) in sides if not source.columns or {place, name} & {*source.columns}]
        code = language_of_columns(tuple(stated), source.target_language)
        return [source if code is None else replace(source, language=code, stated=True)]
    records = ((number, record) for number, record in _records(source, [column]) if isinstance(record, dict))
    codes = dict.fromkeys(_language_of(source, number, record.get(column)) for number, record in records)
    return [replace(source, language=code, stated=True, by_column=True) for code in codes]


def has_languages(source: BitextSource) -> bool:
    """Return whether the column ``language`` or ``lang`` has a code in the first pair."""
    if (column := language_column(_names(source))) is None:
        return False
    first = next((record.get(column) for _, record in _records(source, [column]) if isinstance(record, dict)), None)
    return isinstance(first, str) and bool(language_in(first, source.target_language))


def _language_of(source: BitextSource, number: int, value: Any) -> str:
    """Return the code in the column ``language`` of a pair."""
    if isinstance(value, str) and (code := language_in(value, source.target_language)):
        return code
    place = source.name if source.in_memory else source.place(number)
    raise DataError(
        f"{place}: the language is {value!r}, not a code such as de: correct it, rename the column, or "
        "state the language of all pairs"
    )


def _is_of(source: BitextSource, value: Any) -> bool:
    """Return whether a pair is of the source's language by its column ``language``, if that has a code."""
    code = language_in(value, source.target_language) if isinstance(value, str) else ""
    if source.by_column:
        return code == source.language
    if "und" in (source.language, code or "und"):
        return True
    wanted = subtags_of(source.language)  # de includes de-AT
    return subtags_of(code)[: len(wanted)] == wanted


def _read(source: BitextSource) -> Numbered[Texts]:
    """Yield the number and the texts of each pair, unchecked."""
    if source.format == "moses":
        for file in source.files:
            refuse_table(file, (line for _, line in lines_or_errors(file) if isinstance(line, str)))
        return read_moses(*source.files)
    if source.format == "tmx":
        return read_tmx(source.files[0], source.language, source.target_language)
    if source.format in ("po", "mo"):
        return (read_po if source.format == "po" else read_mo)(source.files[0])
    if source.format in ("tsv", "csv") and not _names(source):
        return _pairs_of_cells(source)
    return _pairs_of_records(source)


def _names(source: BitextSource) -> list[str]:
    """Return the names of columns: of a header, a schema or the first record; none of a table without a header."""
    if source.format in ("tsv", "csv"):
        first = islice(_rows(source), _FIRST_PAIRS)
        cells, *below = [row for _, row in first if isinstance(row, list) and len(row) > 1] or [[]]
        by_name = any(isinstance(column, str) for column in source.columns or ())
        if not by_name and not is_header(cells, source.language, source.target_language, below):
            return []
        names = [cell.strip() for cell in cells]
        return [f"{name} {place}" if name and name in names[:place] else name for place, name in enumerate(names)]
    if source.format == "parquet":
        return names_of_parquet(source.path)
    if source.format in ("jsonl", "datasets"):
        return names_of(next((record for _, record in _records(source) if isinstance(record, dict)), {}))
    return []


def _rows(source: BitextSource, width: int | None = None) -> Numbered[list[str]]:
    """Yield the cells of each row of a table, and a `DataError` in place of one with text right of its ``width``."""
    for number, row in (read_tsv if source.format == "tsv" else read_csv)(source.files[0]):
        if width and isinstance(row, list) and any(map(str.strip, row[width:])):
            cure = "replace tabs in sentences" if source.format == "tsv" else "put sentences in quotation marks"
            cells = f"the row has {len(row)} cells instead of {width}"
            yield number, DataError(f"{source.place(number)}: {cells}; {cure}, or name all columns in a header")
        else:
            yield number, row


def _usual_width(source: BitextSource) -> int:
    """Return how many cells most of the first rows have, without empty ones at their end."""
    first = (row for _, row in islice(_rows(source), _FIRST_PAIRS) if isinstance(row, list))
    widths = Counter(max((place for place, cell in enumerate(row, 1) if cell.strip()), default=0) for row in first)
    return max(sorted(widths), key=widths.__getitem__, default=0)


def _records(source: BitextSource, columns: Sequence[str] = ()) -> Numbered[dict[str, Any]]:
    """Yield the records of JSON, a data set, a table with a header, or these columns of a Parquet file."""
    if source.format == "datasets":
        yield from read_dataset(source.path, source.split)
    elif source.format == "jsonl":
        yield from read_jsonl(source.files[0])
    elif source.format == "parquet":
        yield from read_parquet(source.path, columns)
    else:
        names, below = _names(source), False
        for number, row in _rows(source, len(names)):
            if isinstance(row, list) and not below and len(row) > 1:
                below = True
            else:
                yield number, row if isinstance(row, DataError) else dict(zip_longest(names, row[: len(names)]))


def _pairs_of_cells(source: BitextSource) -> Numbered[Texts]:
    """Yield the pairs of a table without a header; in CSV, one that has more cells than most is an error."""
    stated = source.columns or (0, 1)  # names, if no line of them was found
    first, second = both = [column if isinstance(column, int) else side for side, column in enumerate(stated)]
    is_first = True
    width = max(max(both) + 1, _usual_width(source)) if source.format == "csv" else None
    for number, cells in _rows(source, width):
        if isinstance(cells, DataError):
            yield number, cells
            continue
        if is_first and all(cell.isidentifier() and cell.islower() for cell in map(str.strip, cells)):
            words, cure = " and ".join(cells), "if they name columns, state the two of the sentences as columns"
            logger.warning("%s: %s are read as a pair; %s", source.place(number), words, cure)
        is_first = False
        if len(cells) > max(both):
            yield number, (cells[first], cells[second])
        else:
            place, tables = source.place(number), "lines of TSV are source<TAB>target, lines of CSV source,target"
            error = f"{place}: no column {max(both)} (numbers count from 0), since the line has {len(cells)}; {tables}"
            yield number, DataError(error)


def _pairs_of_records(source: BitextSource) -> Numbered[Texts]:
    """Yield the pairs of the source's language, of ``und`` all; names of columns are those of the first record."""
    sides = None if source.format in ("jsonl", "datasets") else _choose(source, _names(source))
    others, has_pairs = Counter[str](), False  # others: pairs of other languages, which are not read
    unknown = dict[str, None]()  # values of the column of languages that are none
    more = LEDGER if source.format in ("tsv", "csv") else PAIR_FIELDS[2:]
    for number, record in _records(source, [*(sides or ()), *more, LICENSE, *LANGUAGE]):
        if isinstance(record, DataError):
            yield number, record
            continue
        if sides is None and len(names := names_of(record)) < 2:
            yield number, DataError(f"{source.place(number)}: a pair needs two columns, not only {', '.join(names)}")
            continue
        sides = sides or _choose(source, names)
        fields = {name.lower(): value for name, value in record.items()}
        fields[LICENCE] = stated_text(fields.get(LICENCE)) or stated_text(fields.get(LICENSE))
        own = language_value(fields)
        if own and not source.stated:
            way = f"state a language (de={source.path}, und={source.path} for all pairs), or pass a Dataset in Python"
            way = "give it to that, too" if source.in_memory else way
            raise DataError(f"{source.name}: a column of languages is read if the first record has it: {way}")
        if _is_of(source, own):
            has_pairs = True
            if isinstance(own, str) and len(unknown) < _EXAMPLES and not language_in(own, source.target_language):
                unknown[own] = None
            read = [fields.get(name) if name in more else None for name in PAIR_FIELDS[2:]]
            if tuple(map(str.lower, sides)) == ("target", "source"):
                read[:3] = exchange_sides(*read[:3])
            yield number, (*(value_of(record, side) for side in sides), *read)
        else:
            others[str(own)] += 1
    if unknown and source.language != "und":
        values = ", ".join(map(repr, unknown))
        logger.warning("%s: pairs whose language is %s are read as %s", source.name, values, source.language)
    if others:
        counts = ", ".join(f"{count} of {name}" for name, count in others.most_common())
        if not has_pairs:
            raise DataError(
                f"{source.name} has no pairs of {source.language}, but {counts}, by its column of languages: state one "
                "of these, or und for all pairs; or rename the column"
            )
        logger.info("%s: only its pairs of %s are read, not %s", source.name, source.language, counts)


def _choose(source: BitextSource, names: list[str]) -> tuple[str, str]:
    """Return the names of the source and target column, by default those below ``translation``, as in OPUS."""
    if source.columns is None and (unread := [name for name in names if _NOT_OF_PAIRS.match(name)]):
        logger.warning(
            "%s: not read: %s. All rows are translations; negatives are lists named source_negatives, target_negatives",
            source.name,
            ", ".join(unread),
        )
    shown = names_of_sides(names) if source.columns is None else names
    first, second = choose_columns(source.name, shown, source.columns, source.language, source.target_language)
    if source.format in ("tsv", "csv") and not (
        {*(source.columns or ())} & {*names} or has_side(shown, source.language, source.target_language)
    ):
        cure = "if they are a pair, write a line above that names the columns, such as source and target"
        logger.warning("%s: %s are read as names of columns; %s", source.name, " and ".join(names), cure)
    return names[first], names[second]


def _check_sides(source: BitextSource, first: list[LinkedPair]) -> None:
    """Raise an error if a side of the first pairs has no letters, as in columns of numbers, or both are swapped."""
    sides = [pair[0] for pair in first], [pair[1] for pair in first]
    for side, texts in zip(("source", "target"), sides, strict=True):
        rest = texts[1:]  # the first may be a header that was not recognized
        if len(texts) >= _MIN_PAIRS and not any(map(str.isalpha, "".join(rest))):
            raise DataError(
                f"{source.name}: the {side} column has no letters in the first {len(texts)} pairs "
                f"({', '.join(map(repr, texts[:_EXAMPLES]))}): {CURE}"
            )
    if source.language != "und" or not source.stated:  # score and align-words state und by default
        cure = "drop --columns, or name them in the other order" if source.columns else ""
        check_order(sides, (source.language, source.target_language), source.name, ORDERS.get(source.format, cure))
