"""Write pairs in memory (data sets, data frames, lists, iterables) to files, which are read like any other.

The name of a file is a hash of its content, so that equal pairs are cleaned and cached once.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import code_at_end, language_of_tag
from hf_xsent.data.readers.columns import language_column
from hf_xsent.data.readers.hub import choose_split
from hf_xsent.data.readers.records import rows_of_dataset
from hf_xsent.data.readers.sources import IN_MEMORY, BitextSource, cache_folder
from hf_xsent.errors import DataError, shortened
from hf_xsent.files import digest, make_folder, move_into_place

_MOST_LANGUAGES = 500  # each is an open file
_ROWS_AT_ONCE = 1000
_SURROGATE = re.compile("[\ud800-\udfff]")
_ARROW = "__arrow_c_stream__"  # of data frames and tables


def is_in_memory(data: Any) -> bool:
    """Return whether ``data`` holds pairs, rather than paths."""
    if isinstance(data, str | os.PathLike | BitextSource):
        return False
    if isinstance(data, Mapping):
        return _is_dataset(data)
    if isinstance(data, Sequence):
        return len(data) > 0 and not (isinstance(data[0], str | os.PathLike | BitextSource) or _is_table(data[0]))
    return any(hasattr(data, name) for name in ("__iter__", "__getitem__")) or _is_table(data)


def _is_table(data: Any) -> bool:
    """Return whether ``data`` is a data set, frame or table, or a `Bitext`."""
    return _is_dataset(data) or any(hasattr(data, name) for name in (_ARROW, "collect", "iloc", "target_language"))


def stored_pairs(data: Any, split: str = "train", cache_dir: str | os.PathLike[str] | None = None) -> Any:
    """Write pairs in memory to files in the cache, and return their paths in place of them; ``data`` as `load_bitext`.

    Of a DatasetDict that is no mapping from languages, the pairs are those of ``split``.
    """
    folder = cache_folder(cache_dir) / IN_MEMORY
    if isinstance(data, Mapping) and (not is_in_memory(data) or all(map(_names_language, data))):
        refuse_empty(data)
        return {key: _stored(of_key, folder, split, by_column=False) for key, of_key in data.items()}
    return _stored(data, folder, split)


def is_empty(data: Any) -> bool:
    """Return whether there is nothing, or an empty list or mapping, in place of data."""
    return data is None or (isinstance(data, Mapping | list | tuple) and not len(data))


def refuse_empty(named: Mapping[str, Any]) -> None:
    """Raise an error if there is nothing in place of pairs."""
    for name, data in named.items():
        if is_empty(data):
            raise DataError(f"{name} has no pairs: give at least one, or drop {name}")


def _stored(data: Any, folder: Path, split: str, by_column: bool = True) -> Any:
    """Write pairs in memory, or those in a list of paths and pairs, and return their paths; other data unchanged."""
    if is_in_memory(data):
        return write_pairs(data, folder, split, by_column)
    if isinstance(data, list | tuple):
        return [
            word
            for item in data
            for word in (write_pairs(item, folder, split, by_column) if is_in_memory(item) else [item])
        ]
    return data


def settings_as_files(
    settings: Mapping[str, Any], splits: Mapping[str, str], cache_dir: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Return settings whose pairs in memory are files; a `Bitext` also sets their target language.

    ``splits`` are the names of the settings, and what is read of a DatasetDict.
    """
    pairs = {name: settings[name] for name in splits if settings.get(name) is not None}
    refuse_empty(pairs)
    written = {name: stored_pairs(data, splits[name], cache_dir) for name, data in pairs.items()}
    target = target_language_of(pairs, "")
    return {**settings, **written, **({"target_language": target} if target else {})}


def target_language_of(data: Any, stated: str) -> str:
    """Return the target language of a `Bitext`, or of those in a mapping or list; the stated one of other data."""
    targets = sorted(_targets(data))
    if len(targets) > 1:
        raise DataError(f"the data have several target languages ({', '.join(targets)}): give those of one")
    return targets[0] if targets else stated


def _targets(data: Any) -> set[str]:
    if isinstance(data, Mapping | list | tuple) and not is_in_memory(data):
        return set().union(*map(_targets, data.values() if isinstance(data, Mapping) else data))
    target = None if isinstance(data, BitextSource) else getattr(data, "target_language", None)
    return {target} if isinstance(target, str) else set()  # a column of a data frame is no text


def _names_language(key: str) -> bool:
    """Return whether a key is a language code, or ends in two, such as talks-en-de."""
    ends = [part for part in re.split("[-_.]", key)[-2:] if language_of_tag(part)]
    return language_of_tag(key) is not None or any(code_at_end(key, end) for end in ends)


def write_pairs(data: Any, folder: Path, split: str, by_column: bool = True) -> list[str]:
    """Write the pairs of ``data`` to JSONL files, and return their paths.

    It is one file, or ``by_column`` one for each value of the column of languages, which is then read with less work. A
    name of the data set's config that may have a language, such as en-de, is in the file's name.
    """
    make_folder(folder)
    files: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        with ExitStack() as stack:
            column: str | None = None
            for number, record in enumerate(records_of(data, split), start=1):
                if number == 1 and by_column:
                    column = language_column(record)
                value = record.get(column) if column else None
                language = str(value) if column else ""
                if column and (not value or value != value):
                    raise DataError(f"pair {number} has no {column}: give its code, and und if it is unknown")
                if language not in files:
                    if len(files) == _MOST_LANGUAGES:
                        raise DataError(f"the column {column} has no languages, but more than {len(files)} values: "
                                        "rename it, or state the language of all pairs")  # fmt: skip
                    path = Path(temporary) / f"{len(files)}.jsonl"
                    files[language] = stack.enter_context(path.open("wb"))
                files[language].write(_line(record))
        if not files:
            raise DataError("the data hold no pairs: give at least one")
        config = str(getattr(getattr(data, "info", None), "config_name", ""))
        end = f".{config}" if {*files} == {""} and _names_language(config) else ""
        return [str(_final(Path(file.name), folder, end)) for file in files.values()]


def _final(path: Path, folder: Path, end: str) -> Path:
    """Rename a file to the hash of its content; do not replace a file, since its time is part of the cache key."""
    with path.open("rb") as lines:
        final = folder / f"{digest(lines)}{end}.jsonl"
    if not final.is_file() or final.stat().st_size != path.stat().st_size:
        move_into_place(path, final)
    return final


def write_records(data: Any, path: Path) -> None:
    """Write a data set, data frame or list of records to a JSONL file."""
    with path.open("wb") as file:
        file.writelines(map(_line, records_of(data, "train", f"the {path.stem}, record")))


def _line(record: Mapping[str, Any]) -> bytes:
    line = json.dumps(record, ensure_ascii=False, default=_described)
    try:
        return f"{line}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(_encodable(json.loads(line)))}\n".encode()


def _encodable(value: Any) -> Any:
    """Replace a text that UTF-8 cannot encode by neither text nor texts."""
    if isinstance(value, dict):
        return {_SURROGATE.sub("?", name): _encodable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [*map(_encodable, value)]
    if not isinstance(value, str) or not _SURROGATE.search(value):
        return value
    return [["lone surrogate: " + _SURROGATE.sub(lambda match: f"<U+{ord(match[0]):X}>", value)]]


def _described(value: Any) -> Any:
    """Return an array as a list; replace another value that JSON lacks, such as a date, by neither text nor texts."""
    return value.tolist() if hasattr(value, "tolist") else [[f"{type(value).__name__} {value}"]]


def records_of(data: Any, split: str = "train", kind: str = "pair") -> Iterator[dict[str, Any]]:
    """Yield each pair as a record of all its columns; ``kind`` is what messages call it."""
    if isinstance(data, Mapping):  # DatasetDict
        data = choose_split("the data set", data, split)
    data = data.collect() if hasattr(data, "collect") else data
    if _is_dataset(data):
        data = rows_of_dataset(data)
    elif hasattr(data, "columns") and hasattr(data, "iloc"):
        data = _rows_of_pandas(data)
    elif hasattr(data, _ARROW) and hasattr(data, "columns"):  # not a series
        import pyarrow as pa

        data = chain.from_iterable(batch.to_pylist() for batch in pa.table(data).to_batches(_ROWS_AT_ONCE))
    for number, item in enumerate(data, start=1):
        if isinstance(item, Mapping):
            yield {str(name): value for name, value in item.items()}
        elif kind == "pair" and isinstance(item, list | tuple) and len(item) == 2:
            yield {"source": item[0], "target": item[1]}
        else:
            pair = "(source, target), or " if kind == "pair" else ""
            raise DataError(f"{kind} {number} is {shortened(item)}: give {pair}a record with columns")


def _rows_of_pandas(frame: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a data frame, whose columns may have values of several types; missing values are None."""
    names = [str(name) for name in frame.columns]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two columns of the data frame are named {repeated[0]}: rename one")
    for start in range(0, len(frame), _ROWS_AT_ONCE):
        block = frame.iloc[start : start + _ROWS_AT_ONCE]
        for row in block.astype(object).where(block.notna(), None).to_numpy():
            yield dict(zip(names, row, strict=True))


def _is_dataset(data: Any) -> bool:
    """Return whether ``data`` is an object of the library datasets, without importing it."""
    return any(kind.__module__.split(".")[0] == "datasets" for kind in type(data).__mro__)
