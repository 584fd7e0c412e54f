"""Read sentence pairs from every supported format, streaming: memory does not grow with the file.

Each reader yields ``(row number, source text, target text)`` and perhaps word links, or a `DataError` for a row it
cannot read; whether a bad row ends the reading or is counted is decided in one place, by the caller.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, cast

from hf_xsent.data.catalogs import mo_entries, po_entries
from hf_xsent.data.columns import choose_columns, record_names, record_value, schema_names
from hf_xsent.data.compression import open_file
from hf_xsent.data.languages import find_language
from hf_xsent.data.lines import lines_or_errors
from hf_xsent.data.sources import BitextSource, source_files, source_format
from hf_xsent.data.tmx import tmx_units
from hf_xsent.data.word_links import LinkLine, checked_links, with_links
from hf_xsent.errors import DataError, nearest

logger = logging.getLogger(__name__)

Row = tuple[int, Any, Any] | tuple[int, Any, Any, Any]
Item = tuple[str, str, str | None]
OnError = Literal["raise", "skip"]
BATCH_ROWS = 1000


def read_pairs(source: BitextSource, on_error: OnError = "raise") -> Iterator[tuple[str, str]]:
    """Stream the pairs of a source; a bad row is raised, or counted and logged at the end (``on_error="skip"``)."""
    bad = 0
    for pair in read_items(source):
        if not isinstance(pair, DataError):
            yield pair[:2]
        elif on_error == "raise":
            raise pair
        else:
            bad += 1
            logger.debug("%s", pair)
    if bad:
        logger.warning("%s: %d bad rows were skipped", source.path, bad)


def check_source(source: BitextSource, on_error: OnError = "raise") -> None:
    """Raise what would stop the reading: unknown codes and formats, missing files and columns, a bad first row."""
    next(iter(read_pairs(source, on_error)), None)


def read_items(source: BitextSource) -> Iterator[Item | DataError]:
    """Stream pairs, stripped of outer whitespace, with their word links, and a `DataError` in place of each bad row."""
    find_language(source.language)
    find_language(source.target_language)
    source_files(source)
    rows = _READERS[source_format(source)](source)
    for row in rows if source.links is None else with_links(rows, source.links, source.path):
        if isinstance(row, DataError):
            yield row
            continue
        number, source_text, target_text, *links = row
        if not isinstance(source_text, str) or not isinstance(target_text, str):
            side, value = ("target", target_text) if isinstance(source_text, str) else ("source", source_text)
            kind = "missing" if value is None else f"no text but {type(value).__name__}"
            yield DataError(f"{source.path}:{number}: the {side} side is {kind}; mend it or skip bad rows")
            continue
        source_text, target_text = source_text.strip(), target_text.strip()
        if source_text and target_text:
            yield _with_links(source, number, (source_text, target_text), links)
        else:
            side = "target" if source_text else "source"
            yield DataError(f"{source.path}:{number}: the {side} side is empty; mend the row or skip bad rows")


def _with_links(source: BitextSource, number: int, pair: tuple[str, str], given: list[Any]) -> Item | DataError:
    line = given[0] if given else None
    if not isinstance(line, LinkLine):  # links of the row itself
        line = LinkLine(f"{source.path}:{number}", line)
    links = checked_links(line, *pair, source.link_words)
    return links if isinstance(links, DataError) else (*pair, links)


def _read_tsv(source: BitextSource) -> Iterator[Row | DataError]:
    path = Path(source.path)
    stated = (source.source_column, source.target_column)
    columns: list[int | str] = [default if one is None else one for one, default in zip(stated, (0, 1), strict=True)]
    header = any(isinstance(column, str) for column in columns)
    for number, line in lines_or_errors(path):
        if number == 1 and stated == (None, None) and _is_our_header(line):
            columns, header = ["source", "target"], True
        if isinstance(line, DataError):
            if header:
                raise line
            yield line
            continue
        cells = line.split("\t")
        if header:
            columns = [column if isinstance(column, int) else _column(path, column, cells) for column in columns]
            header = False
            continue
        first, second = cast("list[int]", columns)
        if len(cells) <= max(first, second):
            yield DataError(f"{path}:{number}: column {max(first, second)} is missing, the line has {len(cells)} "
                            "(numbered from 0); a line is source<TAB>target")  # fmt: skip
        else:
            yield number, cells[first], cells[second]


def _is_our_header(line: str | DataError) -> bool:
    """Tell whether a table is one of scored pairs, as ``mine``, ``score`` and ``align-documents`` write them."""
    cells = [] if isinstance(line, DataError) else line.split("\t")
    return cells[:1] == ["score"] and {"source", "target"} <= {*cells}


def _column(path: Path, name: str, header: list[str]) -> int:
    names = [cell.strip() for cell in header]
    if name not in names:
        raise DataError(f"{path}:1: the header has no column {name!r}, only {', '.join(names)}{nearest(name, names)}")
    return names.index(name)


def _read_moses(source: BitextSource) -> Iterator[Row | DataError]:
    source_path, target_path = source_files(source)
    sources, targets = lines_or_errors(source_path), lines_or_errors(target_path)
    while True:
        first, second = next(sources, None), next(targets, None)
        if first is None and second is None:
            return
        if first is None or second is None:
            longer, shorter = (source_path, target_path) if first else (target_path, source_path)
            number = (first or second or (0, ""))[0]
            raise DataError(f"{longer}:{number}: {shorter} has only {number - 1} lines; a Moses pair has equal lengths")
        bad = next((line for _, line in (first, second) if isinstance(line, DataError)), None)
        yield bad or (first[0], first[1], second[1])


def _read_jsonl(source: BitextSource) -> Iterator[Row | DataError]:
    columns: tuple[str, str] | None = None
    for number, line in lines_or_errors(Path(source.path)):
        if isinstance(line, DataError):
            yield line
            continue
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if "\\u" in line:  # an escape may hold half a character, which no file can
                json.dumps(record, ensure_ascii=False).encode()
        except ValueError as error:
            yield DataError(f"{source.path}:{number}: not JSON ({error}); each line is one object")
            continue
        if not isinstance(record, dict):
            yield DataError(f"{source.path}:{number}: an object was expected, not {type(record).__name__}")
            continue
        columns = columns or choose_columns(source, record_names(record))
        yield number, record_value(record, columns[0]), record_value(record, columns[1]), record.get("links")


def _read_parquet(source: BitextSource) -> Iterator[Row | DataError]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source.path) as file:
            names = choose_columns(source, schema_names(file.schema_arrow))
            number = 0
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(names)):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record_value(record, names[0]), record_value(record, names[1])
    except pa.ArrowInvalid as error:
        raise DataError(f"{source.path}: not a readable Parquet file ({error}); fetch the file anew") from error


def _read_datasets(source: BitextSource) -> Iterator[Row | DataError]:
    columns: tuple[str, str] | None = None
    number = 0
    for batch in _open_dataset(source).iter(batch_size=BATCH_ROWS):
        for values in zip(*batch.values(), strict=True):
            record = dict(zip(batch, values, strict=True))
            columns = columns or choose_columns(source, record_names(record))
            number += 1
            yield number, record_value(record, columns[0]), record_value(record, columns[1])


def _open_dataset(source: BitextSource) -> Any:
    import datasets

    path = Path(source.path)
    name, _, revision = source.path.partition("@")
    name, _, config = name.partition(":")
    try:
        if not path.exists():
            return datasets.load_dataset(
                name, config or None, split=source.split, revision=revision or None, streaming=True
            )
        if not any((path / name).exists() for name in ("dataset_info.json", "dataset_dict.json", "state.json")):
            return datasets.load_dataset(str(path), split=source.split, streaming=True)
        loaded = datasets.load_from_disk(str(path))
    except Exception as error:  # the libraries below raise many kinds; each means that the data set cannot be had
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        wanted = f"neither a file nor a data set whose split {source.split!r} opens"
        raise DataError(f"{source.path}: {wanted} ({reason})") from error
    if isinstance(loaded, datasets.DatasetDict):
        if source.split not in loaded:
            raise DataError(f"{source.path}: no split {source.split!r}, only {', '.join(loaded)}")
        return loaded[source.split]
    return loaded


def _read_tmx(source: BitextSource) -> Iterator[Row | DataError]:
    with open_file(Path(source.path)) as file:
        yield from tmx_units(file, source.path, source.language, source.target_language)


def _read_po(source: BitextSource) -> Iterator[Row | DataError]:
    yield from po_entries(lines_or_errors(Path(source.path)), source.path)


def _read_mo(source: BitextSource) -> Iterator[Row | DataError]:
    with open_file(Path(source.path)) as file:
        data = file.read()
    yield from mo_entries(data, source.path)


_READERS: dict[str, Callable[[BitextSource], Iterator[Row | DataError]]] = {
    "tsv": _read_tsv,
    "moses": _read_moses,
    "tmx": _read_tmx,
    "po": _read_po,
    "mo": _read_mo,
    "jsonl": _read_jsonl,
    "parquet": _read_parquet,
    "datasets": _read_datasets,
}
