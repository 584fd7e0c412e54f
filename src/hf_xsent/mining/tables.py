"""Tables of pairs: tab-separated, a row a pair, with a header."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path


def write_table(output: str | Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Write the table whole or not at all; gives how many rows follow the header."""
    lines = ("\t".join(row) for row in rows)
    return write_lines(output, chain(["\t".join(header)], lines)) - 1


def write_lines(output: str | Path, lines: Iterable[str]) -> int:
    """Write lines whole or not at all; returns how many."""
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(output.name + ".part")
    count = 0
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                file.write(line + "\n")
                count += 1
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    return count


def one_line(text: str) -> str:
    """A text as a cell: tabs and line breaks are spaces."""
    return " ".join(text.split())
