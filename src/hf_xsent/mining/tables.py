"""Tables of pairs: tab-separated, a row a pair, with a header."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hf_xsent.files import write_text


def write_table(output: str | Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Write the table; return the number of rows below the header."""
    count = 0

    def lines() -> Iterator[str]:
        nonlocal count
        yield "\t".join(header) + "\n"
        for row in rows:
            yield "\t".join(row) + "\n"
            count += 1

    write_text(output, lines())
    return count


def one_line(text: str) -> str:
    """A text as a cell: tabs and line breaks are spaces."""
    return " ".join(text.split())
