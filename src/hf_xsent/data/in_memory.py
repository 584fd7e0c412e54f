"""Write pairs in memory (Hugging Face data sets, lists, iterables) to files, which are read like any other.

The name of a file is a hash of its content, so that equal pairs are cleaned and cached once.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import find_language, language_of_tag, matching_tags
from hf_xsent.data.readers.columns import Columns
from hf_xsent.data.readers.records import sides_of
from hf_xsent.data.readers.sources import BitextSource, resolve_sources
from hf_xsent.errors import DataError
from hf_xsent.files import digest, move_into_place

_NAMED = {"source", "target", "language", "links"}


def on_disk(data: Any, folder: Path, target_language: str, columns: Any, split: str) -> Any:
    """Write pairs in memory to files, and return sources of these files; return paths unchanged."""
    columns = None if isinstance(columns, Mapping) else columns  # columns of a language are applied later
    if is_in_memory(data):
        return write_sources(data, folder, target_language, columns, split)
    if not isinstance(data, Mapping) or not any(map(is_in_memory, data.values())):
        return data
    sources: list[BitextSource] = []
    for language, pairs in data.items():
        if is_in_memory(pairs):
            sources += write_sources(pairs, folder, target_language, columns, split, language)
        else:
            options: Any = {"target_language": target_language, "columns": columns, "split": split}
            sources += chain.from_iterable(resolve_sources({language: pairs}, **options).values())
    return sources


def is_in_memory(data: Any) -> bool:
    """Return whether ``data`` holds pairs, rather than paths."""
    if isinstance(data, str | os.PathLike | BitextSource):
        return False
    if isinstance(data, Mapping):
        return _is_dataset(data)
    if isinstance(data, Sequence):
        return len(data) > 0 and not isinstance(data[0], str | os.PathLike | BitextSource)
    return _is_dataset(data) or isinstance(data, Iterable)


def write_sources(
    data: Any, folder: Path, target_language: str, columns: Columns | None, split: str, language: str | None = None
) -> list[BitextSource]:
    """Write the pairs of ``data`` to JSONL files, one per language, and return sources of these files.

    ``language`` is the language of all pairs. Without it, the language of a pair is the value of its column
    ``language``, else the name of its column that is not the target language's, else ``und``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        first, second = columns or (None, None)
        files = _write(_records(data, split), Path(temporary), target_language, language, (first, second))
        if not files:
            raise DataError("the data hold no pairs: give at least one")
        return [
            BitextSource(code, str(_final(path, folder)), target_language, first, second)
            for code, path in files.items()
        ]


def _final(path: Path, folder: Path) -> Path:
    """Rename a file to the hash of its content; do not replace a file, since its time is part of the cache key."""
    with path.open("rb") as lines:
        final = folder / f"{digest(lines)}.jsonl"
    if not final.is_file():
        move_into_place(path, final)
    return final


def _write(
    records: Iterable[dict[str, Any]], folder: Path, target_language: str, language: str | None, columns: Any
) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    writers: dict[str, Any] = {}
    try:
        for number, record in enumerate(records, start=1):
            code = language or str(record.get("language") or _language_of_columns(record, target_language))
            if code not in writers:
                find_language(code)
                paths[code] = folder / f"{len(paths)}.jsonl"
                writers[code] = paths[code].open("w", encoding="utf-8", errors="surrogatepass")
            try:
                line = json.dumps(record, ensure_ascii=False)
            except TypeError:  # a value that JSON lacks, such as a date
                _check_sides(record, BitextSource(code, f"pair {number}", target_language, *columns))
                line = json.dumps(record, ensure_ascii=False, default=str)
            writers[code].write(line + "\n")
    finally:
        for writer in writers.values():
            writer.close()
    return paths


def _check_sides(record: Mapping[str, Any], source: BitextSource) -> None:
    """Raise an error if a side of a pair is not text; a missing one is found by the reader."""
    for name, side in zip(("source", "target"), sides_of(source, record), strict=True):
        if side is not None and not isinstance(side, str):
            raise DataError(f"{source.path}: the {name} side is not text but {type(side).__name__}; convert it to str")


def _records(data: Any, split: str) -> Iterator[dict[str, Any]]:
    """Yield each pair as a record of all its columns."""
    if isinstance(data, Mapping):  # DatasetDict
        if split not in data:
            raise DataError(f"the data set has no split {split!r}, only {', '.join(map(str, data))}: give split")
        data = data[split]
    for number, item in enumerate(data, start=1):
        if isinstance(item, Mapping):
            yield {str(name): value for name, value in item.items()}
        elif isinstance(item, list | tuple) and len(item) == 2:
            yield {"source": item[0], "target": item[1]}
        else:
            shown = f"{item!r}"[:80]
            raise DataError(f"pair {number} is {shown}: give (source, target), or a record with columns")


def _language_of_columns(record: Mapping[str, Any], target_language: str) -> str:
    """Return the language code among the names of the columns, besides the target's; ``und`` if there is none."""
    nested = record.get("translation")
    names = nested if isinstance(nested, Mapping) else record
    if _NAMED & {*names}:
        return "und"
    targets = matching_tags(names, target_language)
    codes = [name for name in names if name not in (*targets, "id") and language_of_tag(name)]
    return codes[0] if len(codes) == len(targets) == 1 else "und"


def _is_dataset(data: Any) -> bool:
    """Return whether ``data`` is an object of the library datasets, without importing it."""
    return any(kind.__module__.split(".")[0] == "datasets" for kind in type(data).__mro__)
