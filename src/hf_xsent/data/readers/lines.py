"""Read the lines of text files, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hf_xsent.data.readers.compression import open_file
from hf_xsent.errors import DataError


def lines_or_errors(path: Path) -> Iterator[tuple[int, str | DataError]]:
    r"""Yield numbered lines without line end and BOM, or a `DataError` for a bad line; only ``\n`` ends a line."""
    with open_file(path) as file:
        for number, raw in enumerate(file, start=1):
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            try:
                yield number, raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                yield number, DataError(f"{path}:{number}: not UTF-8; convert the file with iconv -t UTF-8")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines; raise a `DataError` at a bad one."""
    for number, line in lines_or_errors(path):
        if isinstance(line, DataError):
            raise line
        yield number, line
