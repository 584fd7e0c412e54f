"""Read gettext catalogues (PO and MO): translations are the source side, English messages the target side.

Messages that are untranslated, fuzzy or obsolete are skipped. A message with plural forms yields one pair for the
singular and, if the language has a plural, one for its most frequent plural form.
"""

from __future__ import annotations

import gettext
import io
import re
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import open_file
from hf_xsent.errors import DataError

Message = tuple[int, tuple[str, str]]

_LINE = re.compile(r'\s*(?:#.*|(?:msg[a-z_]+(?:\[\d+\])?\s*)?"(?:[^"\\]|\\.)*"\s*)?')  # a comment, a string, or blank
_MOST_COUNTED = 200  # numbers of things, to find the most frequent plural form


def read_po(path: Path) -> Iterator[Message]:
    """Yield the line of each message, its translation and the message from a PO file."""
    import polib

    with open_file(path) as file, tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "catalog.po"  # polib splits a text, unlike a file, at more than line feeds
        plain.write_bytes(file.read())
        try:
            catalog = polib.pofile(str(plain))
            lines = plain.read_text(catalog.encoding).removeprefix("\ufeff").split("\n")
            for number, text in enumerate(lines, start=1):
                if not _LINE.fullmatch(text):  # polib cuts the first and last character, even if they are no quotes
                    raise OSError(f"line {number}")
        except OSError as error:
            line = re.search(r"line (\d+)", str(error))
            place = f"{path}:{line[1]}" if line else path
            raise DataError(
                f"{place}: not a comment, msgid, msgstr or one quoted string; see msgfmt -c, or rewrite the "
                "file with msgcat"
            ) from error
        except UnicodeError as error:
            raise DataError(
                f"{path}: text is not in its charset ({error}); correct the charset in its header"
            ) from error
    plural_forms = catalog.metadata.get("Plural-Forms", "")
    rule = re.search(r"plural=([^;]+)", plural_forms)
    try:
        plural = gettext.c2py(rule[1]) if rule else _has_plural
    except ValueError as error:
        raise DataError(f"{path}: Plural-Forms {plural_forms!r} is not valid; see msgfmt -c") from error
    for message in catalog:
        if not message.obsolete and not message.fuzzy:
            yield from _pairs(message.linenum, message, plural)


def read_mo(path: Path) -> Iterator[Message]:
    """Yield the number of each message, its translation and the message from a MO file of either byte order."""
    import polib

    with open_file(path) as file:
        data = file.read()
    try:
        translations: Any = gettext.GNUTranslations(io.BytesIO(data))  # polib reads truncated files
        catalog = polib.mofile(data)
    except (OSError, struct.error, UnicodeError, LookupError, ValueError) as error:
        raise DataError(f"{path}: not a complete MO file ({error}); compile it again with msgfmt") from error
    for number, message in enumerate(catalog, start=1):
        yield from _pairs(number, message, translations.plural)


def _has_plural(number: int) -> int:
    """Return the plural form of a number in a language like English or German."""
    return int(number != 1)


def _pairs(row: int, message: Any, plural: Callable[[int], int]) -> Iterator[Message]:
    if not message.msgid_plural:
        if message.msgstr.strip():
            yield row, (message.msgstr, message.msgid)
        return
    singular = plural(1)
    ((usual_plural, _),) = Counter(map(plural, range(2, _MOST_COUNTED))).most_common(1)
    for form, text in {singular: message.msgid, usual_plural: message.msgid_plural}.items():
        translation = message.msgstr_plural.get(form, "")
        if translation.strip():
            yield row, (translation, text)
