"""Write pairs in memory (data sets, data frames, lists, iterables) to files, which are read like any other.

The name of a file is a hash of its content, so that equal pairs are cleaned and cached once.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import code_at_end
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


def write_pairs(data: Any, folder: Path, template: BitextSource) -> BitextSource:
    """Write the pairs of ``data`` to a JSONL file, and return the source of this file.

    If the template states no language, it may be in the name of the data set's config, such as en-de.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        path = Path(temporary) / "pairs.jsonl"
        write_records(data, path, template.split)
        if not path.stat().st_size:
            raise DataError("the data hold no pairs: give at least one")
        with path.open("rb") as lines:
            final = folder / f"{digest(lines)}.jsonl"
        if not final.is_file():  # its time is part of the cache key
            move_into_place(path, final)
    config = str(getattr(getattr(data, "info", None), "config_name", ""))
    code = None if template.stated else code_at_end(config, template.target_language)
    return replace(template, path=str(final), language=code or template.language, stated=template.stated or bool(code))


def write_records(data: Any, path: Path, split: str = "train") -> None:
    """Write a data set, data frame or list of records to a JSONL file."""
    with path.open("w", encoding="utf-8", errors="surrogatepass") as file:
        for record in _records(data, split):
            file.write(json.dumps(record, ensure_ascii=False, default=_described) + "\n")


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


def _is_dataset(data: Any) -> bool:
    """Return whether ``data`` is an object of the library datasets, without importing it."""
    return any(kind.__module__.split(".")[0] == "datasets" for kind in type(data).__mro__)
