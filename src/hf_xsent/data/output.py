"""Write records, such as mined pairs, to a file in the format of its name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import is_jsonl, strip_compression
from hf_xsent.data.readers.fields import arrow_columns
from hf_xsent.errors import OutputError
from hf_xsent.files import check_writable, write_text, writing

Record = Mapping[str, Any]
_ROWS_PER_GROUP = 1 << 16


def check_output(output: str, inputs: Iterable[str | Path] = ()) -> None:
    """Raise an error if an output cannot be written, would replace an input, or has the name of a compressed file."""
    if strip_compression(output) != output:
        suffix = Path(output).suffix
        raise OutputError(f"cannot write {output} as a compressed file: name the output without {suffix}")
    if Path(output).suffix.lower() == ".csv":
        raise OutputError(f"cannot write {output} as CSV: name the output .tsv, .jsonl or .parquet")
    check_writable(output, inputs)


def write_records(output: str | Path, columns: Sequence[str], records: Iterable[Record]) -> int:
    """Write records as JSON Lines or Parquet if the name says so, else as TSV with a header; return their number.

    ``columns`` are the keys that TSV and Parquet have, in this order. A value that JSON has not, such as a date, is its
    text.
    """
    count = 0

    def counted() -> Iterator[Record]:
        nonlocal count
        for record in records:
            count += 1
            yield record

    if Path(output).suffix.lower() == ".parquet":
        _write_parquet(output, columns, counted())
    elif is_jsonl(Path(output).name):
        write_text(output, (f"{json.dumps(record, ensure_ascii=False, default=str)}\n" for record in counted()))
    else:
        write_text(output, _tsv(columns, counted()))
    return count


def _tsv(columns: Sequence[str], records: Iterable[Record]) -> Iterator[str]:
    yield "\t".join(columns) + "\n"
    for record in records:
        yield "\t".join([_cell(record.get(column)) for column in columns]) + "\n"


def _cell(value: Any) -> str:
    """Format a score, a number, a run of numbers (as 4 or 4-6), a text, or None (empty)."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, list):
        return str(value[0]) if len(value) == 1 else f"{value[0]}-{value[-1]}"
    return one_line(value) if isinstance(value, str) else "" if value is None else str(value)


def one_line(text: str) -> str:
    r"""Replace tabs, NUL and line separators by spaces; other whitespace, such as a no-break space, stays.

    >>> one_line("a\u2028b\tc\u00a0d")
    'a b c\xa0d'
    """
    return " ".join(text.splitlines()).replace("\t", " ").replace("\0", " ")


def _write_parquet(output: str | Path, columns: Sequence[str], records: Iterable[Record]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = iter(records)
    groups = iter(lambda: list(islice(rows, _ROWS_PER_GROUP)), [])
    first = pa.Table.from_pylist([{name: row.get(name) for name in columns} for row in next(groups, [])])
    if not first.num_rows:
        first = pa.table({name: pa.nulls(0) for name in columns})
    known = arrow_columns() | dict.fromkeys(("score", "cosine"), pa.float64())  # of fields that the first rows lack
    for name, of_side in {"rank": pa.int64(), "line": pa.int64(), "numbers": pa.list_(pa.int64())}.items():
        known |= {f"source_{name}": of_side, f"target_{name}": of_side}
    fields = [
        field.with_type(known.get(field.name, pa.string())) if pa.types.is_null(field.type) else field
        for field in first.schema
    ]
    with writing(output) as part, pq.ParquetWriter(str(part), pa.schema(fields)) as file:
        file.write_table(first.cast(file.schema))
        for group in groups:
            file.write_table(pa.Table.from_pylist(group, file.schema))
