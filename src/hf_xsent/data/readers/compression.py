"""Read plain and compressed files, their lines and JSON; raise an error for missing, truncated and damaged ones."""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from hf_xsent.errors import DataError

# A longer line is no sentence, and may be a decompression bomb without line ends.
LONGEST_LINE = 1 << 24  # bytes
_CHUNK_BYTES = 1 << 16
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # as Arrow names them
_SUFFIXES = (*_CODECS, ".xz")
Name = TypeVar("Name", bound=Hashable)


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its suffix says so; a read error becomes a `DataError`."""
    try:
        with _open(path) as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except (OSError, EOFError, MemoryError, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # raised by opening it
            raise DataError(f"{path}: cannot be opened ({error.strerror}); give a file that you may read") from error
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: cannot be read to its end ({reason}); is the file complete?") from error


def _open(path: Path) -> IO[bytes]:
    suffix = path.suffix.lower()
    file = path.open("rb")
    if suffix not in _SUFFIXES:
        return file
    if not path.stat().st_size:
        raise EOFError("the file is empty")
    if suffix == ".xz":
        return io.BufferedReader(_XzFile(file))
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(file, _CODECS[suffix]))


class _XzFile(io.RawIOBase):
    """Read all streams of a .xz file and the padding after them; lzma's reader drops what follows a damaged stream."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._stream = file, lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: D102 - called by io.BufferedReader
        while True:
            data = b""
            if self._stream.eof:
                data = self._stream.unused_data.lstrip(b"\0")
                while not data:
                    if not (block := self._file.read(_CHUNK_BYTES)):
                        return 0
                    data = block.lstrip(b"\0")
                self._stream = lzma.LZMADecompressor()
            elif self._stream.needs_input and not (data := self._file.read(_CHUNK_BYTES)):
                raise EOFError("the file ended within a stream")
            if text := self._stream.decompress(data, len(buffer)):
                buffer[: len(text)] = text
                return len(text)


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes after decompression."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise DataError(f"{path}: more than {limit >> 20} MiB, but it must fit into memory; split the file")
    return data


def lines_or_errors(path: Path) -> Iterator[tuple[int, str | DataError]]:
    r"""Yield numbered lines without line end and BOM, and a `DataError` in place of a line that is not UTF-8 text.

    Only ``\n`` ends a line. Lines over ``LONGEST_LINE`` bytes are errors, so that memory is bounded.
    """
    with open_file(path) as file:
        read_line = partial(file.readline, LONGEST_LINE + 1)
        for number, raw in enumerate(iter(read_line, b""), start=1):
            if number == 1:
                check_line_ends(path, raw)
            yield number, _decoded(f"{path}:{number}", raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw)
            if len(raw) > LONGEST_LINE:
                while raw and not raw.endswith(b"\n"):
                    raw = read_line()


def _decoded(place: str, raw: bytes) -> str | DataError:
    if len(raw) > LONGEST_LINE:
        return DataError(f"{place}: the line is longer than {LONGEST_LINE >> 20} MiB; is the file text?")
    if b"\0" in raw:
        cure = "remove them, or convert UTF-16 with iconv -f UTF-16 -t UTF-8"
        return DataError(f"{place}: NUL characters in the line; {cure}")
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        return DataError(f"{place}: not UTF-8; convert the file with iconv -t UTF-8")


def check_line_ends(path: Path, text: bytes) -> None:
    r"""Raise a `DataError` if a text has carriage returns, the line ends of old Macs, but no ``\n``."""
    if b"\n" not in text and b"\r" in text.rstrip(b"\r"):
        raise DataError(f"{path}:1: carriage returns alone end the lines; convert the file with mac2unix")


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
                yield number, parse_json(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON ({error}); each line must be one object") from error


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise a ValueError if it is damaged or nested too deep, or if its text cannot be encoded."""
    try:
        content = json.loads(text)
        if ("\\u" in text) if isinstance(text, str) else (b"\\u" in text):  # perhaps a lone surrogate
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return content


def strip_compression(name: str) -> str:
    """Remove the compression suffix of a file name."""
    return next((name[: -len(suffix)] for suffix in _SUFFIXES if name.lower().endswith(suffix)), name)


def files_by_name(named: Iterable[tuple[Name, Path]]) -> dict[Name, Path]:
    """Map names to files; raise a `DataError` if two files have the same name, such as ``a.txt`` and ``a.txt.gz``."""
    files: dict[Name, Path] = {}
    for name, path in named:
        if (other := files.setdefault(name, path)) is not path:
            twice = f"{path} is given twice" if path == other else f"{other} and {path} seem to be the same file"
            raise DataError(f"{twice}: give only one, or rename one if they differ")
    return files


def is_jsonl(name: str) -> bool:
    """Return whether the name is that of a JSON Lines file."""
    return strip_compression(name).lower().endswith((".jsonl", ".ndjson", ".json"))
