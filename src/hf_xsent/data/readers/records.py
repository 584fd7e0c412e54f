"""Read records with named columns: JSON Lines, Parquet, and data sets of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.columns import choose_columns
from hf_xsent.data.readers.compression import json_lines_or_errors
from hf_xsent.data.readers.hub import choose_split, hub_errors, hub_rows
from hf_xsent.data.readers.sources import BitextSource, is_saved_dataset, require_language, require_order
from hf_xsent.errors import DataError
from hf_xsent.files import is_local

NEGATIVES = ("source_negatives", "target_negatives")  # each a list of sentences that are not translations of the pair
_OPUS = "translation."
_BATCH_ROWS = 1000

LICENCE, LICENSE = "licence", "license"  # two spellings of one column
LEDGER = ("origin", LICENCE)  # where a pair is from, and the licence of its use
PAIR_FIELDS = ("source", "target", "links", *NEGATIVES, *LEDGER)
Row = tuple[Any, ...]  # number, then the fields of a pair, unchecked


def arrow_columns() -> dict[str, Any]:
    """Return the Arrow type of each field of a pair."""
    import pyarrow as pa

    return {name: pa.list_(pa.string()) if name in NEGATIVES else pa.string() for name in PAIR_FIELDS}


def read_jsonl(source: BitextSource) -> Iterator[Row | DataError]:
    """Yield the pairs of a JSON Lines file."""
    columns: tuple[str, str] | None = None
    for number, record in json_lines_or_errors(Path(source.path)):
        if isinstance(record, DataError):
            yield record
            continue
        if not isinstance(record, dict):
            yield DataError(f"{source.place(number)}: expected a JSON object, not {type(record).__name__}")
            continue
        columns = columns or _choose_columns(source, _names(record))
        yield _row(number, record, columns)


def read_parquet(source: BitextSource) -> Iterator[Row | DataError]:
    """Yield the pairs of a Parquet file."""
    with open_parquet(source.path) as file:
        columns = _choose_columns(source, [file.schema.column(number).path for number in range(len(file.schema))])
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=[*columns, *PAIR_FIELDS[2:], LICENSE])
        records = (record for batch in batches for record in batch.to_pylist())
        for number, record in enumerate(records, start=1):
            yield _row(number, record, columns)


@contextmanager
def open_parquet(path: str | Path) -> Iterator[Any]:
    """Open a Parquet file; an error of reading it becomes a `DataError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}); download it again") from error


def read_datasets(source: BitextSource) -> Iterator[Row]:
    """Yield the pairs of a data set on the Hub, from ``save_to_disk``, or of a folder of Parquet files."""
    columns: tuple[str, str] | None = None
    with hub_errors(f"{source.path}: a row of the data set cannot be read"):
        batches = _open_dataset(source).iter(batch_size=_BATCH_ROWS)
        records = (
            dict(zip(batch, values, strict=True)) for batch in batches for values in zip(*batch.values(), strict=True)
        )
        for number, record in enumerate(records, start=1):
            columns = columns or _choose_columns(source, _names(record))
            yield _row(number, record, columns)


def _open_dataset(source: BitextSource) -> Any:
    import datasets

    if not is_local(source.path):
        return choose_split(source.path, hub_rows(source.path, None), source.split)
    with hub_errors(f"{source.path}: the data set cannot be opened"):
        saved = is_saved_dataset(source.path)  # else it has Parquet files
        path = source.path
        loaded: Any = datasets.load_from_disk(path) if saved else datasets.load_dataset(path, streaming=True)
    return loaded if isinstance(loaded, datasets.Dataset) else choose_split(source.path, loaded, source.split)


def _choose_columns(source: BitextSource, names: list[str]) -> tuple[str, str]:
    """Return the names of the source and target columns, by default those below ``translation``, as in OPUS."""
    nested = [name.removeprefix(_OPUS) if name.startswith(_OPUS) else "" for name in names]
    shown = nested if any(nested) and source.columns is None else names
    require_language(source, names)
    columns = choose_columns(source.name, shown, source.columns, source.language, source.target_language)
    require_order(source, *(shown[column] for column in columns))
    return names[columns[0]], names[columns[1]]


def _row(number: int, record: Mapping[str, Any], columns: tuple[str, str]) -> Row:
    source, target = (_value(record, column) for column in columns)
    return number, source, target, *map(record.get, PAIR_FIELDS[2:-1]), record.get(LICENCE) or record.get(LICENSE)


def _names(record: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the keys of a record, nested ones with dots."""
    names: list[str] = []
    for key, value in record.items():
        names += _names(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return names


def _value(record: Mapping[str, Any], name: str) -> Any:
    """Look up a dotted name, None if it is missing; a key with a dot in it takes precedence."""
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def check_negatives(place: str, name: str, negatives: Any) -> list[str] | DataError | None:
    """Return the negatives of one side of a pair, None if it has none, or a `DataError`."""
    if not negatives:
        return None
    if not isinstance(negatives, list) or not all(isinstance(text, str) and text.strip() for text in negatives):
        return DataError(f'{place}: {name} is not a list of sentences; write {{..., "{name}": ["..."]}}')
    return [text.strip() for text in negatives]
