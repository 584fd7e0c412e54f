"""Write distinct rows to an Arrow file in constant memory; memory-map the file to read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_xsent.data.cleaning.repeats import first_occurrences, shuffle_key
from hf_xsent.data.cleaning.report import CleaningCounts

ROWS_AT_ONCE = 10_000
_COUNTS = b"hf_xsent"  # key of the counts in the metadata of a file

Row = tuple[Any, ...]
Mask = npt.NDArray[np.bool_]


def write_distinct(
    path: Path,
    columns: Mapping[str, Any],
    rows: Iterator[Row],
    counts: CleaningCounts,
    key: Callable[[Row], int] | None,
    max_rows: int | None = None,
    choice: str = "first",
    rows_per_batch: Callable[[int], int] = lambda _: ROWS_AT_ONCE,
    preferred: Sequence[str] = (),
) -> None:
    """Write rows without repetitions, and their counts into the metadata, from which `read_counts` reads them.

    columns: name and Arrow type of each column; columns without any value are omitted.
    key: the hash of a row; rows of equal hashes are repetitions. Without it, all rows are distinct.
    preferred: of equal rows, write the first that has any of these columns, else the first.
    max_rows, choice: write the ``first`` rows, without reading many more, or ``random`` ones.
    rows_per_batch: rows of a batch, by the number of rows written.
    """
    import pyarrow as pa

    schema = pa.schema(list(columns.items()))
    rows_path, hashes_path = path.with_name("rows.arrow"), path.with_name("hashes")
    count, stop = 0, max_rows if choice == "first" else None
    with pa.ipc.new_file(str(rows_path), schema) as file, hashes_path.open("wb") as hashes:
        while batch := list(islice(rows, ROWS_AT_ONCE if stop is None else min(ROWS_AT_ONCE, stop - count))):
            cells = zip(zip(*batch, strict=True), schema.types, strict=True)
            file.write_batch(pa.record_batch([pa.array(values, kind) for values, kind in cells], schema=schema))
            if key is not None:
                np.fromiter(map(key, batch), np.uint64, len(batch)).tofile(hashes)
            count += len(batch)
            if count == stop:
                hashes.flush()
                if np.count_nonzero(_distinct(hashes_path, key, count)) >= (max_rows or 0):
                    break
                stop = 2 * count
    table = pa.ipc.open_file(pa.memory_map(str(rows_path))).read_all()
    table = table.select([name for name in table.column_names if table.column(name).null_count < count])
    valid = [table.column(name).is_valid().to_numpy() for name in preferred if name in table.column_names]
    selected = _distinct(hashes_path, key, count, np.any(valid, axis=0) if valid else None)
    chosen = np.flatnonzero(selected)
    counts.remove("repeated", count - len(chosen))
    if max_rows is not None:
        chosen = chosen[np.argsort(shuffle_key(chosen), kind="stable")] if choice == "random" else chosen
        selected[chosen[max_rows:]] = False
        counts.remove("max_pairs", len(chosen[max_rows:]))
    counts.retained = int(np.count_nonzero(selected))
    _write_selected(path, table, selected, counts, rows_per_batch(counts.retained))
    rows_path.unlink()
    hashes_path.unlink()


def _distinct(hashes: Path, key: Any, count: int, preferred: Mask | None = None) -> Mask:
    """Return a mask of the rows that repeat no earlier or preferred one."""
    if key is None or not count:
        return np.ones(count, dtype=np.bool_)
    return first_occurrences(np.memmap(hashes, dtype=np.uint64, mode="r"), preferred)


def _write_selected(path: Path, table: Any, selected: Mask, counts: CleaningCounts, batch_rows: int) -> None:
    import pyarrow as pa

    rows, metadata = np.flatnonzero(selected), {_COUNTS: json.dumps(asdict(counts))}
    with pa.ipc.new_file(str(path), table.schema.with_metadata(metadata)) as writer:
        for start in range(0, len(rows), batch_rows):
            first, last = rows[start], rows[min(start + batch_rows, len(rows)) - 1]
            part = table.slice(first, last + 1 - first).filter(pa.array(selected[first : last + 1]))
            writer.write_table(part.combine_chunks().replace_schema_metadata(metadata))


def read_batches(path: Path) -> list[Any]:
    """Memory-map the record batches of an Arrow file."""
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def read_counts(path: Path) -> CleaningCounts:
    """Read the counts in the metadata of an Arrow file."""
    import pyarrow as pa

    return CleaningCounts(**json.loads(pa.ipc.open_file(pa.memory_map(str(path))).schema.metadata[_COUNTS]))
