"""Read plain and compressed files; raise an error for missing, truncated and damaged ones."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hf_xsent.errors import DataError, MissingExtraError

_CHUNK_BYTES = 1 << 16


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its suffix says so; a read error becomes a `DataError`."""
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except (PermissionError, IsADirectoryError) as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}); give a file that you may read") from error
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); is the file complete?") from error


def lines_or_errors(path: Path) -> Iterator[tuple[int, str | DataError]]:
    r"""Yield numbered lines without line end and BOM, and a `DataError` in place of a line that is not UTF-8.

    Only ``\n`` ends a line.
    """
    with open_file(path) as file:
        for number, raw in enumerate(file, start=1):
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            try:
                yield number, raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                yield number, DataError(f"{path}:{number}: not UTF-8; convert the file with iconv -t UTF-8")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines; raise a `DataError` at a line that is not UTF-8."""
    for number, line in lines_or_errors(path):
        if isinstance(line, DataError):
            raise line
        yield number, line


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the numbered records of a JSON Lines file."""
    for number, line in lines(path):
        try:
            if line.strip():
                yield number, json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({error}); each line must be one object") from error


def strip_compression(name: str) -> str:
    """Remove the compression suffix of a file name."""
    return next((name[: -len(suffix)] for suffix in _OPENERS if name.lower().endswith(suffix)), name)


def is_jsonl(name: str) -> bool:
    """Return whether the name is that of a JSON Lines file."""
    return strip_compression(name).lower().endswith((".jsonl", ".ndjson", ".json"))


class _ZstdFile(io.RawIOBase):
    """Read all frames of a .zst file, and raise an error if it is truncated, which zstandard's own reader does not."""

    def __init__(self, path: Path) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingExtraError(f'{path}: reading .zst needs zstandard: pip install "hf-xsent[zst]"') from error
        self._library = zstandard
        self._chunks = self._decompress(path)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: D102 - called by io.BufferedReader
        while not self._rest:
            if (chunk := next(self._chunks, None)) is None:
                return 0
            self._rest = chunk
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def _decompress(self, path: Path) -> Iterator[bytes]:
        frame = self._library.ZstdDecompressor().decompressobj()
        try:
            with path.open("rb") as file:
                while data := file.read(_CHUNK_BYTES):
                    while data:
                        if frame.eof:
                            frame = self._library.ZstdDecompressor().decompressobj()
                        yield frame.decompress(data)
                        data = frame.unused_data if frame.eof else b""
        except self._library.ZstdError as error:
            raise OSError(str(error)) from error
        if not frame.eof:
            raise EOFError("the file ended within a frame")


_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_OPENERS[".zst"] = lambda path, _: io.BufferedReader(_ZstdFile(path))
