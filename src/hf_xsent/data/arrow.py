"""Write rows to an Arrow file, without their repetitions, in constant memory; memory-map the file to read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_xsent.data.cleaning.repeats import first_occurrences

ROWS_AT_ONCE = 10_000
_DETAILS = b"hf_xsent"  # key of the details in the metadata of a file

Row = tuple[Any, ...]


class RowWriter:
    """Collect rows in temporary files of a folder, then write some of them to the Arrow file that stays.

    columns: name and Arrow type of each column.
    key: the hash of a row; rows of equal hashes are repetitions. Without it, all rows are distinct.
    """

    def __init__(self, folder: Path, columns: Mapping[str, Any], key: Callable[[Row], int] | None = None) -> None:
        import pyarrow as pa

        self.count = 0
        self._schema = pa.schema(list(columns.items()))
        self._rows_path, self._hashes_path, self._key = folder / "rows.arrow", folder / "hashes", key
        self._rows = pa.ipc.new_file(str(self._rows_path), self._schema)
        self._hashes = self._hashes_path.open("wb")

    def add(self, rows: Iterator[Row], limit: int | None = None) -> bool:
        """Add at most ``limit`` rows; return whether there are no more."""
        import pyarrow as pa

        stop = None if limit is None else self.count + limit
        while stop is None or self.count < stop:
            batch = list(islice(rows, ROWS_AT_ONCE if stop is None else min(ROWS_AT_ONCE, stop - self.count)))
            if not batch:
                return True
            columns = [
                pa.array(values, kind)
                for values, kind in zip(zip(*batch, strict=True), self._schema.types, strict=True)
            ]
            self._rows.write_batch(pa.record_batch(columns, schema=self._schema))
            if self._key is not None:
                np.fromiter(map(self._key, batch), np.uint64, len(batch)).tofile(self._hashes)
            self.count += len(batch)
        return False

    def distinct(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows added so far without repetitions."""
        if self._key is None or not self.count:
            return np.ones(self.count, dtype=np.bool_)
        self._hashes.flush()
        return first_occurrences(np.memmap(self._hashes_path, dtype=np.uint64, mode="r"))

    def write(self, path: Path, selected: npt.NDArray[np.bool_], details: Any, batch_rows: int = ROWS_AT_ONCE) -> None:
        """Write the selected rows in batches of ``batch_rows``, and ``details`` (JSON) into the file's metadata.

        Columns without any value are omitted.
        """
        import pyarrow as pa

        self.close()
        table = pa.ipc.open_file(pa.memory_map(str(self._rows_path))).read_all()
        table = table.select([name for name in table.column_names if table.column(name).null_count < len(table)])
        schema = table.schema.with_metadata({_DETAILS: json.dumps(details)})
        rows = np.flatnonzero(selected)
        with pa.ipc.new_file(str(path), schema) as writer:
            for start in range(0, len(rows), batch_rows):
                first, last = rows[start], rows[min(start + batch_rows, len(rows)) - 1]
                part = table.slice(first, last + 1 - first).filter(pa.array(selected[first : last + 1]))
                writer.write_table(part.combine_chunks().replace_schema_metadata(schema.metadata))
        self._rows_path.unlink()
        self._hashes_path.unlink()

    def close(self) -> None:
        """Close the temporary files."""
        self._rows.close()
        self._hashes.close()


def read_batches(path: Path) -> list[Any]:
    """Memory-map the record batches of an Arrow file."""
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def read_details(path: Path) -> Any:
    """Read the details in the metadata of an Arrow file."""
    import pyarrow as pa

    return json.loads(pa.ipc.open_file(pa.memory_map(str(path))).schema.metadata[_DETAILS])
