"""Read plain and compressed files, their lines and JSON; raise an error for missing, truncated and damaged ones."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hf_xsent.errors import DataError

_STREAMS: dict[str, Any] = {".xz": lzma.LZMADecompressor, ".bz2": bz2.BZ2Decompressor}
SUFFIXES = (".gz", ".zst", *_STREAMS)
_CHUNK_BYTES = 1 << 16


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, decompressed if its suffix says so; a read error becomes a `DataError`."""
    try:
        with _open(path) as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); is the file complete?") from error


def _open(path: Path) -> IO[bytes]:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return io.BufferedReader(gzip.GzipFile(path))
    file = path.open("rb")
    if suffix in _STREAMS:
        return io.BufferedReader(_Streams(file, _STREAMS[suffix]))
    if suffix != ".zst":
        return file
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(file, "zstd"))


class _Streams(io.RawIOBase):
    """Read all streams of a .xz or .bz2 file and the padding after them.

    The readers of lzma and bz2 drop what follows a damaged stream, and Arrow refuses an empty stream in the middle.
    """

    def __init__(self, file: IO[bytes], decompressor: Any) -> None:
        self._file, self._new, self._stream = file, decompressor, decompressor()

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
                self._stream = self._new()
            elif self._stream.needs_input and not (data := self._file.read(_CHUNK_BYTES)):
                raise EOFError("the file ended within a stream")
            if text := self._stream.decompress(data, len(buffer)):
                buffer[: len(text)] = text
                return len(text)


def lines_or_errors(path: Path) -> Iterator[tuple[int, str | DataError]]:
    r"""Yield numbered lines without line end and BOM, and a `DataError` in place of a line that is not UTF-8 text.

    Only ``\n`` ends a line.
    """
    return ((number, decoded(f"{path}:{number}", raw)) for number, raw in numbered_lines(path))


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of numbered lines, without BOM."""
    with open_file(path) as file:
        for number, raw in enumerate(file, start=1):
            yield number, raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw


def decoded(place: str, raw: bytes) -> str | DataError:
    """Return a line without its end, or an error if it is not UTF-8 text."""
    if b"\0" in raw:
        cure = "remove them, or convert UTF-16 with iconv -f UTF-16 -t UTF-8"
        return DataError(f"{place}: NUL characters in the line; {cure}")
    try:
        return raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        return DataError(f"{place}: not UTF-8; convert the file with iconv -f ENCODING -t UTF-8")


def json_lines_or_errors(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the numbered records of a JSON Lines file, and a `DataError` in place of a line that is not JSON."""
    for number, line in lines_or_errors(path):
        if isinstance(line, DataError):
            yield number, line
        elif line.strip():
            try:
                yield number, parse_json(line)
            except ValueError as error:
                cause = "the file is a list" if line.strip() == "[" or line.startswith("[{") else str(error)
                yield number, DataError(f"{path}:{number}: not JSON Lines ({cause}); each line must be one object")


def _raising(rows: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield numbered rows; raise the first error among them."""
    for number, row in rows:
        if isinstance(row, DataError):
            raise row
        yield number, row


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines; raise a `DataError` at a line that is not UTF-8."""
    return _raising(lines_or_errors(path))


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the numbered records of a JSON Lines file; raise a `DataError` at a line that is not JSON."""
    return _raising(json_lines_or_errors(path))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise a ValueError if it is damaged, or if its text cannot be encoded."""
    content = json.loads(text)
    if ("\\u" in text) if isinstance(text, str) else (b"\\u" in text):  # perhaps a lone surrogate
        json.dumps(content, ensure_ascii=False).encode()
    return content


def strip_compression(name: str) -> str:
    """Remove the compression suffix of a file name."""
    return next((name[: -len(suffix)] for suffix in SUFFIXES if name.lower().endswith(suffix)), name)


def compressed_or_not(path: Path) -> Path:
    """Return the path of a file, or of its compressed form if only that exists."""
    forms = (path.with_name(f"{path.name}{suffix}") for suffix in ("", *SUFFIXES))
    return next((form for form in forms if form.is_file()), path)


def is_jsonl(name: str) -> bool:
    """Return whether the name is that of a JSON Lines file."""
    return strip_compression(name).lower().endswith((".jsonl", ".ndjson", ".json"))
