"""Read the sentences of test sets, which must not be trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import lru_cache
from glob import glob
from itertools import chain
from os import PathLike
from os.path import exists
from pathlib import Path
from typing import Any

from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.readers.compression import lines, strip_compression
from hf_xsent.data.readers.in_memory import stored_pairs
from hf_xsent.data.readers.records import open_parquet, read_jsonl
from hf_xsent.data.readers.sources import METADATA, files_inside, format_of_name, nearest_file
from hf_xsent.data.readers.tables import read_csv
from hf_xsent.errors import DataError

_MARKUP = (".sgm", ".sgml", ".xml")
_FORMATS = (None, "tsv", "csv", "jsonl", "parquet")  # None: plain text, and the Arrow files of save_to_disk


def excluded_files(patterns: Iterable[str]) -> list[Path]:
    """Expand files, folders and globs to files; raise a `DataError` if one matches no file, or cannot be read."""
    files: set[Path] = set()
    for pattern in patterns:
        matches = [Path(name) for name in ([pattern] if exists(pattern) else glob(pattern, recursive=True))]
        matches += [path for folder in matches if folder.is_dir() for path in files_inside(folder)]
        if not (inside := {path for path in matches if path.is_file() and path.name not in METADATA}):
            raise DataError(f"cleaning rule exclude: no file matches {pattern}{nearest_file(Path(pattern))}")
        files |= inside
    for file in files:
        is_markup = strip_compression(file.name).lower().endswith(_MARKUP)
        if is_markup or format_of_name(file.name) not in _FORMATS:
            raise DataError(f"cleaning rule exclude: {file} is not plain text, TSV, CSV, JSON or Parquet")
    return sorted(files)


def exclude_as_files(rules: Mapping[str, Any], cache_dir: str | PathLike[str] | None) -> dict[str, Any]:
    """Return rules whose pairs to exclude are files; pairs in memory are written to the cache."""
    exclude = stored_pairs(rules.get("exclude"), "test", cache_dir)
    if isinstance(exclude, Mapping):
        of_languages = (paths if isinstance(paths, list | tuple) else [paths] for paths in exclude.values())
        exclude = [*chain.from_iterable(of_languages)]
    return {**rules, "exclude": exclude} if "exclude" in rules else {**rules}


def without_excluded(negatives: Iterable[str] | None, excluded: Set[int]) -> list[str] | None:
    """Return the negatives whose hashes are not among the excluded ones, None if none are left."""
    return [text for text in negatives or () if hash_texts(text) not in excluded] or None


@lru_cache(maxsize=1)  # the languages of a run share it
def hash_sentences(stamped: tuple[tuple[Any, ...], ...]) -> frozenset[int]:
    """Return the hashes of the sentences in files: lines, cells, and texts of records."""
    return frozenset(hash_texts(text) for file, *_ in stamped for text in _texts(file) if text.strip())


def _texts(file: Path) -> Iterator[str]:
    kind = format_of_name(file.name)
    if file.suffix == ".arrow":
        yield from _texts_in_arrow(file)
    elif kind in (None, "tsv"):
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


def _texts_in_arrow(file: Path) -> Iterator[str]:
    import pyarrow as pa

    try:
        with pa.memory_map(str(file)) as stream:
            for batch in pa.ipc.open_stream(stream):
                yield from _texts_in(batch.to_pylist())
    except pa.ArrowException as error:
        raise DataError(f"cleaning rule exclude: {file} is not a file of save_to_disk ({error})") from error


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(inner)
