"""Stream sentence pairs from every supported format; memory does not grow with the file.

Each reader yields ``(row number, source text, target text)``, optionally with word links, and a `DataError` in place of
a bad row. The caller raises or counts these errors.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, cast

from hf_xsent.data.languages import matching_tags
from hf_xsent.data.readers.catalogs import read_mo, read_po
from hf_xsent.data.readers.columns import guess_columns, is_header, require_letters, states_other_language
from hf_xsent.data.readers.compression import lines_or_errors, parse_json
from hf_xsent.data.readers.hub import hub_errors, hub_rows
from hf_xsent.data.readers.negatives import NEGATIVES, check_negatives, negatives_of, parse_negatives
from hf_xsent.data.readers.sources import BitextSource, is_saved_dataset, source_files, source_format
from hf_xsent.data.readers.tmx import read_tmx
from hf_xsent.data.words.links import LinkLine, check_links, with_links
from hf_xsent.errors import DataError, did_you_mean
from hf_xsent.files import is_local

logger = logging.getLogger(__name__)

# row number, source, target; links and negatives if the format has them
RawRow = tuple[int, Any, Any] | tuple[int, Any, Any, Any] | tuple[int, Any, Any, Any, Any]
LinkedPair = tuple[str, str, str | None, str | None]  # source, target, links, negatives
OnError = Literal["raise", "skip"]
_BATCH_ROWS = 1000
_DEEPEST_COLUMN = 8  # nested objects in a dotted name


def read_pairs(source: BitextSource, on_error: OnError = "raise") -> Iterator[tuple[str, str]]:
    """Stream the pairs of a source; raise an error for a bad row, or skip and count it (``on_error="skip"``)."""
    yield from (pair[:2] for pair in read_valid_pairs(source, on_error))


def read_valid_pairs(source: BitextSource, on_error: OnError = "raise") -> Iterator[LinkedPair]:
    """Stream pairs with their word links and negatives; raise an error for a bad row, or skip and count it."""
    bad = 0
    for pair in read_linked_pairs(source):
        if not isinstance(pair, DataError):
            yield pair
        elif on_error == "raise":
            raise pair
        else:
            bad += 1
            logger.debug("%s", pair)
    if bad:
        logger.warning("%s: %d bad rows were skipped", source.path, bad)


def pair_record(source: str, target: str, links: str | None, negatives: str | None) -> dict[str, Any]:
    """Return the fields of a pair as JSONL has them.

    >>> pair_record("ein Hund", "a dog", "0-0 1-1", None)
    {'source': 'ein Hund', 'target': 'a dog', 'links': '0-0 1-1'}
    """
    record = {"source": source, "target": target} | ({} if links is None else {"links": links})
    return record | ({} if negatives is None else parse_negatives(negatives))


def check_source(source: BitextSource, on_error: OnError = "raise") -> None:
    """Raise a `DataError` for unknown codes and formats, missing files and columns, or a bad first row."""
    next(iter(read_pairs(source, on_error)), None)


def read_linked_pairs(source: BitextSource) -> Iterator[LinkedPair | DataError]:
    """Stream pairs with their word links and negatives, and a `DataError` in place of each bad row."""
    source_files(source)
    yield from require_letters(_linked_pairs(source), source.path)


def _linked_pairs(source: BitextSource) -> Iterator[LinkedPair | DataError]:
    rows = _READERS[source_format(source)](source)
    for row in rows if source.links is None else with_links(rows, source.links, source.path):
        if isinstance(row, DataError):
            yield row
            continue
        number, source_text, target_text, *links = row
        for side, value in (("source", source_text), ("target", target_text)):
            if not isinstance(value, str) or not value.strip():
                kind = "empty" if isinstance(value, str) else f"not text but {type(value).__name__}"
                kind = "missing" if value is None else kind
                yield DataError(f"{source.path}:{number}: the {side} side is {kind}; fix it or skip bad rows")
                break
            if "\0" in value:
                yield DataError(f"{source.path}:{number}: the {side} side has NUL characters; remove them or the row")
                break
        else:
            yield _with_links(source, number, (source_text.strip(), target_text.strip()), links)


def _with_links(source: BitextSource, number: int, pair: tuple[str, str], given: list[Any]) -> LinkedPair | DataError:
    line, place = given[0] if given else None, f"{source.path}:{number}"
    if not isinstance(line, LinkLine):  # the links are in the row
        line = LinkLine(place, line)
    links = check_links(line, *pair, source.link_words)
    if isinstance(links, DataError):
        return links
    negatives = check_negatives(place, given[1] if len(given) > 1 else None)
    return negatives if isinstance(negatives, DataError) else (*pair, links, negatives)


def _read_tsv(source: BitextSource) -> Iterator[RawRow | DataError]:
    path = Path(source.path)
    stated = first, second = source.source_column, source.target_column
    columns = [int(second == 0) if first is None else first, int(first != 1) if second is None else second]
    named = any(isinstance(column, str) for column in columns)
    for number, line in lines_or_errors(path):
        if isinstance(line, DataError):
            if named:
                raise line
            yield line
            continue
        cells = line.split("\t")
        if number == 1 and (named or is_header(cells, source.language, source.target_language)):
            columns = _header_columns(source, f"{path}:{number}", [cell.strip() for cell in cells])
            named = False
            continue
        first, second = cast("list[int]", columns)
        if len(cells) <= max(first, second):
            yield DataError(f"{path}:{number}: {_too_few_columns(stated, columns, len(cells))}")
        elif "\r" in line and all("\t" in part for part in line.split("\r") if part):
            yield DataError(f"{path}:{number}: carriage returns alone end lines here; convert the file with mac2unix")
        else:
            yield number, cells[first], cells[second]


def _header_columns(source: BitextSource, place: str, names: list[str]) -> list[int | str]:
    """Return the numbers of the stated columns, else of those with usual names, else of the only two columns."""
    stated = (source.source_column, source.target_column)
    for name in (column for column in stated if isinstance(column, str) and column not in names):
        raise DataError(
            f"{place}: the header has no column {name!r}, only {', '.join(names)}{did_you_mean(name, names)}"
        )
    usual = guess_columns(names, source.language, source.target_language)
    if len(names) == 2 and None in usual:
        usual = (1, 0) if usual[0] == 1 or usual[1] == 0 else (0, 1)
        _check_languages(source, place, [names[column] for column in usual])
    if any(column is None and found is None for column, found in zip(stated, usual, strict=True)):
        raise _unclear_columns(place, names)
    chosen = (found if column is None else column for column, found in zip(stated, usual, strict=True))
    return [names.index(column) if isinstance(column, str) else cast("int", column) for column in chosen]


def _check_languages(source: BitextSource, place: str, names: list[str]) -> None:
    """Raise an error if the name of the source or target column, where no column is stated, is another language's."""
    stated, codes = (source.source_column, source.target_column), (source.language, source.target_language)
    for side, name, column, code in zip(("source", "target"), names, stated, codes, strict=True):
        if column is None and states_other_language(name, code):
            raise DataError(
                f"{place}: column {name!r} names another language than {code!r}, the {side} language: check the file "
                f"and the languages, or state the columns of the sentences, for example --columns {shlex.join(names)}"
            )


def _too_few_columns(stated: tuple[int | str | None, ...], columns: list[Any], count: int) -> str:
    if count == 1 and stated == (None, None):
        return "the line has no tab; lines must be source<TAB>target"
    column, name = max(zip(columns, stated, strict=True), key=lambda one: one[0])
    requested = f"column {name!r}" if isinstance(name, str) else f"column {column} (counted from 0)"
    return f"{requested} was requested, but the line has {count}"


def _read_moses(source: BitextSource) -> Iterator[RawRow | DataError]:
    source_path, target_path = source_files(source)
    rows = zip_longest(lines_or_errors(source_path), lines_or_errors(target_path))
    for number, (first, second) in enumerate(rows, start=1):
        if first is None or second is None:
            longer, shorter = (source_path, target_path) if first else (target_path, source_path)
            raise DataError(f"{longer}:{number}: {shorter} has only {number - 1} lines; both must have the same number")
        bad = next((line for _, line in (first, second) if isinstance(line, DataError)), None)
        yield bad or (number, first[1], second[1])


def _read_jsonl(source: BitextSource) -> Iterator[RawRow | DataError]:
    columns: tuple[str, str] | None = None
    for number, line in lines_or_errors(Path(source.path)):
        if isinstance(line, DataError):
            yield line
            continue
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except ValueError as error:
            yield DataError(f"{source.path}:{number}: not JSON ({error}); each line must be one object")
            continue
        if not isinstance(record, dict):
            yield DataError(f"{source.path}:{number}: expected a JSON object, not {type(record).__name__}")
            continue
        columns = columns or _choose_columns(source, _record_names(record))
        yield _record_row(number, record, columns)


def _read_parquet(source: BitextSource) -> Iterator[RawRow | DataError]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source.path) as file:
            columns = _choose_columns(source, [file.schema.column(number).path for number in range(len(file.schema))])
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=[*columns, "links", *NEGATIVES])
            records = (record for batch in batches for record in _records(batch))
            for number, record in enumerate(records, start=1):
                if isinstance(record, ValueError):
                    yield DataError(f"{source.path}:{number}: not UTF-8 ({record}); fix the row or skip bad rows")
                else:
                    yield _record_row(number, record, columns)
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{source.path}: not a readable Parquet file ({reason}); download it again") from error


def _records(batch: Any) -> Iterator[dict[str, Any] | ValueError]:
    """Yield the rows of a batch, and the error in place of a row with text that is not UTF-8."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError as error:
        if len(batch) == 1:
            yield error
        else:
            for row in range(len(batch)):
                yield from _records(batch.slice(row, 1))


def _read_datasets(source: BitextSource) -> Iterator[RawRow | DataError]:
    columns: tuple[str, str] | None = None
    with hub_errors(f"{source.path}: a row of the data set cannot be read"):
        batches = _open_dataset(source).iter(batch_size=_BATCH_ROWS)
        rows = (
            dict(zip(batch, values, strict=True)) for batch in batches for values in zip(*batch.values(), strict=True)
        )
        for number, record in enumerate(rows, start=1):
            columns = columns or _choose_columns(source, _record_names(record))
            yield _record_row(number, record, columns)


def _open_dataset(source: BitextSource) -> Any:
    import datasets

    if not is_local(source.path):
        return hub_rows(source.path, source.split, streaming=True)
    with hub_errors(f"{source.path}: split {source.split!r} of the data set cannot be opened"):
        if not is_saved_dataset(source.path):  # then it has Parquet files
            return datasets.load_dataset(source.path, split=source.split, streaming=True)
        loaded = datasets.load_from_disk(source.path)
    if isinstance(loaded, datasets.DatasetDict):
        if source.split not in loaded:
            raise DataError(f"{source.path}: no split {source.split!r}, only {', '.join(loaded)}")
        return loaded[source.split]
    return loaded


def _choose_columns(source: BitextSource, names: list[str]) -> tuple[str, str]:
    """Return the source and target columns.

    Columns that are not stated are ``source`` and ``target`` or, in this order, named by the language code as in OPUS
    (``translation.de``), by the code (``de``; see `matching_tags`), or ``source`` or ``target``.
    """
    if (source.source_column, source.target_column) == (None, None) and {"source", "target"} <= {*names}:
        return "source", "target"
    return (
        _choose_column(source, names, source.source_column, source.language, "source"),
        _choose_column(source, names, source.target_column, source.target_language, "target"),
    )


def _choose_column(source: BitextSource, names: list[str], stated: int | str | None, code: str, side: str) -> str:
    if isinstance(stated, int) and stated < len(names):
        return names[stated]
    if stated in names:
        return str(stated)
    if stated is not None:
        count = f" (counted from 0) was requested, but there are {len(names)}: "
        reason = count if isinstance(stated, int) else " was requested, but there are only "
        raise DataError(f"{source.path}: column {stated!r}{reason}{', '.join(names)}{did_you_mean(str(stated), names)}")
    for prefix in ("translation.", ""):
        found = matching_tags((name.removeprefix(prefix) for name in names if name.startswith(prefix)), code)
        if len(found) == 1:
            return prefix + found[0]
    if side not in names:
        raise _unclear_columns(source.path, names)
    return side


def _unclear_columns(place: str, names: list[str]) -> DataError:
    cure = "state the two that have the sentences, for example --columns source target"
    return DataError(f"{place}: cannot choose among the columns {', '.join(names)}; {cure}")


def _record_row(number: int, record: dict[str, Any], columns: tuple[str, str]) -> RawRow:
    sides = (_record_value(record, column) for column in columns)
    return (number, *sides, record.get("links"), negatives_of(record))


def _record_names(record: dict[str, Any], prefix: str = "") -> list[str]:
    """List the keys of a record, nested ones with dots."""
    names: list[str] = []
    for key, value in record.items():
        nested = isinstance(value, dict) and prefix.count(".") < _DEEPEST_COLUMN
        names += _record_names(value, f"{prefix}{key}.") if nested else [prefix + key]
    return names


def _record_value(record: dict[str, Any], name: str) -> Any:
    """Look up a dotted name, None if it is missing; a key with a dot in it takes precedence."""
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


_READERS: dict[str, Callable[[BitextSource], Iterator[RawRow | DataError]]] = {
    "tsv": _read_tsv,
    "moses": _read_moses,
    "tmx": read_tmx,
    "po": read_po,
    "mo": read_mo,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "datasets": _read_datasets,
}
