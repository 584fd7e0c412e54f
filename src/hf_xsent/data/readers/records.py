"""Read records with named columns: JSON Lines, Parquet, and data sets of Hugging Face."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import json_lines_or_errors, open_file, parse_json, strip_compression
from hf_xsent.data.readers.hub import choose_split, hub_errors, hub_rows
from hf_xsent.errors import DataError
from hf_xsent.files import is_local

_BATCH_ROWS = 1000


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any] | DataError]]:
    """Yield the number and the record of each line; of a .json that is one value, of each of its records."""
    is_json = strip_compression(path.name).lower().endswith(".json")
    for number, record in (is_json and _whole(path)) or json_lines_or_errors(path):
        if isinstance(record, dict | DataError):
            yield number, record
        else:
            yield number, DataError(f"{path}:{number}: expected a JSON object, not {type(record).__name__}")


def _whole(path: Path) -> Iterator[tuple[int, Any]] | None:
    """Read a file that is one JSON array, or an object of several lines; return its records, None for other files."""
    with open_file(path) as file:
        first = next((line for line in file if line.strip(b"\xef\xbb\xbf\r\n\t ")), b"")
        start = first.strip(b"\xef\xbb\xbf\r\n\t ")
        if not start.startswith(b"[") and start != b"{":
            return None
        text = first + file.read()
    try:
        value = parse_json(text)
    except ValueError as error:
        raise DataError(
            f"{path}: not a JSON array or object ({error}); write [{{...}}, {{...}}], or one object per line"
        ) from error
    return enumerate(value if isinstance(value, list) else [value], start=1)


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
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}); download it again") from error


def names_of_parquet(path: str | Path) -> list[str]:
    """List the columns of a Parquet file, nested ones with dots."""
    with open_parquet(path) as file:
        return [file.schema.column(number).path for number in range(len(file.schema))]


def read_parquet(path: str | Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the record of each row, with these columns only; names in lower case match all cases."""
    names = names_of_parquet(path)
    with open_parquet(path) as file:
        wanted = [name for name in (*names, *file.schema_arrow.names) if {name, name.lower()} & {*columns}]
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=list(dict.fromkeys(wanted)))
        yield from enumerate((record for batch in batches for record in batch.to_pylist()), start=1)


def read_dataset(path: str, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a data set on the Hub, or from ``save_to_disk``."""
    dataset = _open_dataset(path, split)
    with hub_errors(f"{path}: a row of the data set cannot be read"):
        yield from enumerate(rows_of_dataset(dataset), start=1)


def rows_of_dataset(dataset: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of an open data set, which is faster by batches; class labels, such as languages, as names."""
    import pyarrow as pa

    names = {column: kind.names for column, kind in (dataset.features or {}).items() if hasattr(kind, "int2str")}
    for read in dataset.iter(batch_size=_BATCH_ROWS):
        batch = dict(read) if isinstance(read, Mapping) else pa.table(read).to_pydict()  # of pandas, polars or Arrow
        for column, of_column in names.items():
            batch[column] = [None if label is None or label < 0 else of_column[label] for label in batch[column]]
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _open_dataset(path: str, split: str) -> Any:
    import datasets

    if not is_local(path):
        return choose_split(path, hub_rows(path, None), split)
    with hub_errors(f"{path}: the data set cannot be opened"):
        loaded: Any = datasets.load_from_disk(path)
    dataset = loaded if isinstance(loaded, datasets.Dataset) else choose_split(path, loaded, split)
    return dataset.with_format(None, columns=dataset.format["columns"])  # a saved format may have arrays for lists


def names_of(record: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the keys of a record, nested ones with dots."""
    names: list[str] = []
    for key, value in record.items():
        names += names_of(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return names


def value_of(record: Mapping[str, Any], name: str) -> Any:
    """Look up a dotted name, None if it is missing; a key with a dot in it takes precedence."""
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
