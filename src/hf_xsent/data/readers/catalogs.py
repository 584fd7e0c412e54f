"""Read gettext catalogues (PO and MO): translations are the source side, English messages the target side.

Headers and messages that are untranslated, fuzzy or obsolete are skipped. A message with plural forms yields one pair
for the singular and, if the language has a plural, one for the plural.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hf_xsent.data.readers.compression import LONGEST_LINE, lines_or_errors, read_bytes, text_encoding
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError, shortened

_KEYWORD = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(".*")$')
_LARGEST_MO = 1 << 28  # bytes
_ESCAPE = re.compile(r"(?:\\[0-7]{1,3}|\\x[0-9A-Fa-f]{2})+|\\(.)", re.DOTALL)
_BYTE = re.compile(r"\\x([0-9A-Fa-f]{2})|\\([0-7]{1,3})")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class _Message:
    line: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    fuzzy: bool = False
    size: int = 0  # characters

    def pairs(self) -> Iterator[tuple[int, str, str]]:
        """Yield the pairs of the message if it is translated."""
        forms = [text for key, text in self.texts.items() if key.startswith("msgstr")]
        if self.texts.get("msgid") and not self.fuzzy:
            yield from _pairs(self.line, self.texts["msgid"], self.texts.get("msgid_plural"), forms)


def _pairs(line: int, msgid: str, plural: str | None, forms: list[str]) -> Iterator[tuple[int, str, str]]:
    if forms and forms[0].strip():
        yield line, forms[0], msgid
    if plural and len(forms) > 1 and forms[-1].strip():
        yield line, forms[-1], plural


def read_po(source: BitextSource) -> Iterator[tuple[int, str, str] | DataError]:
    """Yield ``(line, translation, message)`` from a PO file."""
    message = _Message()
    key: str | None = None
    for number, line in lines_or_errors(Path(source.path)):
        if isinstance(line, DataError):
            yield line
            continue
        line = line.strip()
        keyword = _KEYWORD.match(line)
        starts = line.startswith("#") or (keyword and keyword[1] in ("msgctxt", "msgid"))
        if starts and "msgstr" in message.texts:
            yield from message.pairs()
            message, key = _Message(), None
        if line.startswith("#"):
            message.fuzzy |= line.startswith("#,") and "fuzzy" in line
            if line.startswith("#~"):  # flags before an obsolete message belong to it
                message, key = _Message(), None
        elif line:
            text = _quoted(keyword[2] if keyword else line)
            key = keyword[1].replace("[0]", "") if keyword else key
            if text is None or key is None:
                yield DataError(f"{source.path}:{number}: not a comment, msgid, msgstr or quoted string; see msgfmt -c")
                continue
            if keyword:
                message.line = message.line or number
            message.size += len(line)
            if message.size > LONGEST_LINE:
                raise DataError(f"{source.path}:{number}: the message is longer than {LONGEST_LINE >> 20} MiB")
            message.texts[key] = message.texts.get(key, "") + _ESCAPE.sub(_unescaped, text)
    yield from message.pairs()


def _quoted(line: str) -> str | None:
    """Return the text between the quotes that begin and end a line; None if one is missing or a third is between."""
    inside = line[1:-1]
    if len(line) < 2 or line[0] != '"' or line[-1] != '"':
        return None
    bare = re.sub(r"\\.", "", inside) if "\\" in inside else inside
    return None if '"' in bare or "\\" in bare else inside


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1] is not None:
        return _CONTROL.get(escape[1], escape[1])
    codes = bytes(int(byte[1], 16) if byte[1] else int(byte[2], 8) & 255 for byte in _BYTE.finditer(escape[0]))
    return codes.decode("utf-8", errors="replace")


def read_mo(source: BitextSource) -> Iterator[tuple[int, str, str] | DataError]:
    """Yield ``(message number, translation, message)`` from a MO file of either byte order."""
    name = source.path
    data = read_bytes(Path(name), _LARGEST_MO)
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise DataError(f"{name}: not a MO file; compile it from its PO file with msgfmt")
    try:
        _, count, ids, texts = struct.unpack_from(f"{order}4I", data, 4)
        charset = "utf-8"
        for number in range(count):
            raw_id, raw_text = (_string(data, order, table + 8 * number) for table in (ids, texts))
            if not raw_id:
                declared = re.search(rb"charset=([\w.-]+)", raw_text)
                charset = _charset(declared[1].decode(), name) if declared else charset
                continue
            try:
                msgid, text = raw_id.decode(charset), raw_text.decode(charset)
            except UnicodeError:
                yield DataError(f"{name}: message {number} is not {charset}; run msgconv -t UTF-8 on its PO file")
                continue
            msgid, _, plural = msgid.rpartition("\x04")[2].partition("\0")
            yield from _pairs(number, msgid, plural, text.split("\0"))
    except (struct.error, IndexError) as error:
        raise DataError(f"{name}: the MO file is truncated; compile it again with msgfmt") from error


def _charset(declared: str, name: str) -> str:
    charset = text_encoding(declared)
    if charset is None:
        raise DataError(f"{name}: unknown charset {shortened(declared)}; run msgconv -t UTF-8 on its PO file")
    return charset


def _string(data: bytes, order: str, position: int) -> bytes:
    length, offset = struct.unpack_from(f"{order}2I", data, position)
    if offset + length > len(data):
        raise IndexError(position)
    return data[offset : offset + length]
