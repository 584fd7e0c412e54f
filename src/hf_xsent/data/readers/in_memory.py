"""Write pairs in memory (data sets, data frames, lists, iterables) to files, which are read like any other.

The name of a file is a hash of its content, so that equal pairs are cleaned and cached once.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import code_at_end, find_language
from hf_xsent.data.readers.columns import LANGUAGE, language_in, language_of_columns
from hf_xsent.data.readers.hub import choose_split
from hf_xsent.data.readers.records import rows_of_dataset
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError, shortened
from hf_xsent.files import digest, move_into_place

_ARROW = "__arrow_c_stream__"  # of data frames and tables


def is_in_memory(data: Any) -> bool:
    """Return whether ``data`` holds pairs, rather than paths."""
    if isinstance(data, str | os.PathLike | BitextSource):
        return False
    if isinstance(data, Mapping):
        return _is_dataset(data)
    if isinstance(data, Sequence):
        return len(data) > 0 and not isinstance(data[0], str | os.PathLike | BitextSource)
    return isinstance(data, Iterable) or any(hasattr(data, name) for name in (_ARROW, "collect"))  # Table, LazyFrame


def holds_pairs(data: Any) -> bool:
    """Return whether ``data``, or one of its languages, holds pairs in memory."""
    return is_in_memory(data) or (isinstance(data, Mapping) and any(map(is_in_memory, data.values())))


def write_pairs(data: Any, folder: Path, template: BitextSource) -> list[BitextSource]:
    """Write the pairs of ``data`` to JSONL files, one per language, and return sources of these files.

    If the template states no language, that of a pair is the value of its column ``language`` or ``lang``, else the
    name of its column that is not the target language's, else the code in the name of the data set's config, such as
    en-de, else ``und``.
    """
    config = str(getattr(getattr(data, "info", None), "config_name", ""))
    usual = template.language if template.stated else code_at_end(config, template.target_language) or "und"
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        with ExitStack() as stack:
            for number, record in enumerate(_records(data, template.split), start=1):
                code = usual if template.stated else _language_of(record, number, template.target_language) or usual
                if code not in files:
                    find_language(code)
                    path = Path(temporary) / f"{len(files)}.jsonl"
                    files[code] = stack.enter_context(path.open("w", encoding="utf-8", errors="surrogatepass"))
                files[code].write(_line(record))
        if not files:
            raise DataError("the data hold no pairs: give at least one")
        return [
            replace(template, path=str(_final(Path(file.name), folder)), language=code, stated=True)
            for code, file in files.items()
        ]


def _final(path: Path, folder: Path) -> Path:
    """Rename a file to the hash of its content; do not replace a file, since its time is part of the cache key."""
    with path.open("rb") as lines:
        final = folder / f"{digest(lines)}.jsonl"
    if not final.is_file():
        move_into_place(path, final)
    return final


def write_records(data: Any, path: Path) -> None:
    """Write a data set, data frame or list of records to a JSONL file."""
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
        file.writelines(map(_line, _records(data, "train")))


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, default=_described) + "\n"


def _described(value: Any) -> Any:
    """Return an array as a list; replace another value that JSON lacks, such as a date, by neither text nor texts."""
    return value.tolist() if hasattr(value, "tolist") else [[f"{type(value).__name__} {value}"]]


def _records(data: Any, split: str) -> Iterator[dict[str, Any]]:
    """Yield each pair as a record of all its columns."""
    if isinstance(data, Mapping):  # DatasetDict
        data = choose_split("the data set", data, split)
    data = data.collect() if hasattr(data, "collect") else data
    if _is_dataset(data):
        data = rows_of_dataset(data)
    elif hasattr(data, _ARROW) and hasattr(data, "columns"):  # not a series
        import pyarrow as pa

        data = data.reset_index(drop=True) if hasattr(data, "reset_index") else data  # of pandas: not a column
        data = chain.from_iterable(batch.to_pylist() for batch in pa.table(data).to_batches(1000))
    for number, item in enumerate(data, start=1):
        if isinstance(item, Mapping):
            yield {str(name): value for name, value in item.items()}
        elif isinstance(item, list | tuple) and len(item) == 2:
            yield {"source": item[0], "target": item[1]}
        else:
            raise DataError(f"pair {number} is {shortened(item)}: give (source, target), or a record with columns")


def _language_of(record: Mapping[str, Any], number: int, target_language: str) -> str | None:
    """Return the value of the column language or lang, else the language of the columns' names, None without any."""
    if column := next((name for name in LANGUAGE if name in record), None):
        if not (code := record[column]) or code != code:  # NaN
            raise DataError(f"pair {number} has no {column}: give its code, and und if it is unknown")
        return language_in(str(code), target_language) or str(code)
    nested = record.get("translation")
    return language_of_columns(tuple(nested if isinstance(nested, Mapping) else record), target_language)


def _is_dataset(data: Any) -> bool:
    """Return whether ``data`` is an object of the library datasets, without importing it."""
    return any(kind.__module__.split(".")[0] == "datasets" for kind in type(data).__mro__)
