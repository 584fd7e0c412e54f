"""Read Translation Memory eXchange (TMX) files as a stream of XML events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from hf_xsent.data.languages import find_language, matching_tags
from hf_xsent.data.readers.compression import LONGEST_LINE, open_file, text_encoding
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError, shortened

_CHUNK_BYTES = 1 << 16
# Elements inside a segment whose content is formatting codes, not words.
_CODE_ELEMENTS = frozenset(("bpt", "ept", "ph", "it", "ut"))


def read_tmx(source: BitextSource) -> Iterator[tuple[int, str, str]]:
    """Yield ``(line, source, target)`` of each translation unit that has both languages."""
    units = _Units(source.language, source.target_language)
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def refuse_entity(*_: object) -> None:
        raise DataError(f"{source.path}:{parser.CurrentLineNumber}: the file declares XML entities, which may expand "
                        "without limit; replace them with their text")  # fmt: skip

    def check_encoding(_: str, encoding: str | None, __: int) -> None:
        if encoding is not None and text_encoding(encoding) is None:
            raise ValueError(f"{shortened(encoding)} is not a text encoding")

    parser.EntityDeclHandler = refuse_entity
    parser.XmlDeclHandler = check_encoding
    parser.StartElementHandler = lambda tag, attributes: units.start(tag, attributes, parser.CurrentLineNumber)
    parser.EndElementHandler = units.end
    parser.CharacterDataHandler = units.text
    size = 0
    with open_file(Path(source.path)) as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                parser.Parse(chunk, False)
                yield from units.pop_completed()
                size += len(chunk)
                if max(size - parser.CurrentByteIndex, units.size) > LONGEST_LINE:
                    raise DataError(f"{source.path}:{parser.CurrentLineNumber}: a tag or translation unit is longer "
                                    f"than {LONGEST_LINE >> 20} MiB; is the file complete?")  # fmt: skip
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            place = f"{source.path}:{error.lineno}"
            raise DataError(f"{place}: not well-formed XML ({expat.ErrorString(error.code)}); fix the file") from error
        except (LookupError, ValueError) as error:  # of Python's codecs
            raise DataError(f"{source.path}:1: the encoding that the file declares is not supported ({error}); convert "
                            "the file to UTF-8 and declare that") from error  # fmt: skip
    yield from units.pop_completed()


class _Units:
    """Collect the segments of each translation unit."""

    def __init__(self, language: str, target_language: str) -> None:
        self.language, self.target_language = language, target_language
        self.complete: list[tuple[int, str, str]] = []
        self.segments: dict[str, str] = {}
        self.line = 0
        self.size = 0  # characters of the unit
        self.variant = ""
        self.segment: list[str] | None = None
        self.code_depth = 0

    def pop_completed(self) -> list[tuple[int, str, str]]:
        """Return the units completed since the last call."""
        units, self.complete = self.complete, []
        return units

    def start(self, tag: str, attributes: dict[str, str], line: int) -> None:
        if tag == "tu":
            self.segments, self.line, self.size = {}, line, 0
        elif tag == "tuv":
            self.variant = attributes.get("xml:lang") or attributes.get("lang") or ""
            self.size += len(self.variant)
        elif tag == "seg":
            self.segment = []
        elif tag in _CODE_ELEMENTS:
            self.code_depth += 1

    def text(self, data: str) -> None:
        if self.segment is not None and not self.code_depth:
            self.segment.append(data)
            self.size += len(data)

    def end(self, tag: str) -> None:
        if tag == "seg" and self.segment is not None:
            self.segments.setdefault(self.variant, "".join(self.segment))
            self.segment = None
        elif tag in _CODE_ELEMENTS:
            self.code_depth -= 1
        elif tag == "tu":
            target = self._find(self.target_language)
            source = self._find(self.language, other_than=target)
            if source is not None and target is not None:
                self.complete.append((self.line, self.segments[source], self.segments[target]))

    def _find(self, language: str, other_than: str | None = None) -> str | None:
        """Return the tag of a language's segment, None if the unit has none.

        Of several tags that match the language equally (`matching_tags`), it is the first. ``und`` matches any tag but
        ``other_than``.
        """
        variants = [variant for variant in self.segments if variant != other_than]
        undetermined = find_language(language).code == "und"
        return next(iter(matching_tags(variants, language) or (variants if undetermined else ())), None)
