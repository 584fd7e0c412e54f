"""Read the sentences of test sets, which must not be trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any

from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.records import open_parquet, read_jsonl
from hf_xsent.data.readers.sources import format_of_name, nearest_file
from hf_xsent.data.readers.tables import read_csv
from hf_xsent.errors import DataError

_FORMATS = (None, "tsv", "csv", "jsonl", "parquet")  # None: plain text


def excluded_files(patterns: Iterable[str]) -> list[Path]:
    """Expand files, folders and globs to files; raise a `DataError` if one matches no file, or cannot be read."""
    files: set[Path] = set()
    for pattern in patterns:
        matches = [Path(name) for name in glob(pattern, recursive=True)]
        matches += [path for folder in matches if folder.is_dir() for path in folder.rglob("*")]
        if not (inside := {path for path in matches if path.is_file()}):
            raise DataError(f"cleaning rule exclude: no file matches {pattern}{nearest_file(Path(pattern))}")
        files |= inside
    for file in files:
        if format_of_name(file.name) not in _FORMATS:
            raise DataError(f"cleaning rule exclude: {file} is not plain text, TSV, CSV, JSON or Parquet")
    return sorted(files)


@lru_cache(maxsize=1)  # the languages of a run share it
def hash_sentences(stamped: tuple[tuple[Any, ...], ...]) -> frozenset[int]:
    """Return the hashes of the sentences in files: lines, cells, and texts of records."""
    return frozenset(hash_texts(text) for file, *_ in stamped for text in _texts(file) if text.strip())


def _texts(file: Path) -> Iterator[str]:
    kind = format_of_name(file.name)
    if kind in (None, "tsv"):
        for _, line in lines(file):
            cells = line.replace("|||", "\t").split("\t")  # of word alignment: source ||| target
            yield from {line, *cells, *(cell[1:-1].replace('""', '"') for cell in cells if cell[:1] == '"')}
    elif kind == "parquet":
        with open_parquet(file) as table:
            for batch in table.iter_batches(batch_size=1000):
                yield from _texts_in(batch.to_pylist())
    else:
        for _, row in (read_csv if kind == "csv" else read_jsonl)(file):
            if isinstance(row, DataError):
                raise row
            yield from _texts_in(row)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(inner)
