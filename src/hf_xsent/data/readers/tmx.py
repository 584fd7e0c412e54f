"""Read Translation Memory eXchange (TMX) files as a stream of XML events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from hf_xsent.data.languages import find_language, language_of_tag, matching_tags
from hf_xsent.data.readers.compression import open_file
from hf_xsent.errors import DataError

_CHUNK_BYTES = 1 << 16
# Elements inside a segment whose content is formatting codes, not words.
_CODE_ELEMENTS = frozenset(("bpt", "ept", "ph", "it", "ut"))


def read_tmx(path: Path, language: str, target_language: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the line and the texts of each translation unit that has both languages."""
    units = _Units(path, language, target_language)
    parser = expat.ParserCreate()  # limits the expansion of entities
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: units.start(tag, attributes, parser.CurrentLineNumber)
    parser.EndElementHandler = units.end
    parser.CharacterDataHandler = units.text
    parser.SkippedEntityHandler = lambda name, _: units.refuse_entity(name)  # else the text lacks it
    with open_file(path) as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                parser.Parse(chunk, False)
                yield from units.pop_completed()
            parser.Parse(b"", True)
        except (expat.ExpatError, LookupError, ValueError) as error:  # the latter two of encodings and entities
            line = getattr(error, "lineno", parser.CurrentLineNumber)
            raise DataError(f"{path}:{line}: not well-formed XML ({error}); fix the file") from error
    yield from units.pop_completed()
    if units.found and not units.with_both:
        raise DataError(
            f"{path} has no unit in both {language} and {target_language}, only in {', '.join(units.found)}: state "
            "two of these as language and target language"
        )


class _Units:
    """Collect the segments of each translation unit."""

    def __init__(self, path: Path, language: str, target_language: str) -> None:
        self.path, self.language, self.target_language = path, language, target_language
        self.found: dict[str, None] = {}  # tags of languages
        self.with_both = False
        self.complete: list[tuple[int, tuple[str, str]]] = []
        self.segments: dict[str, str] = {}
        self.line = 0
        self.variant = ""
        self.segment: list[str] | None = None
        self.code_depth = 0

    def pop_completed(self) -> list[tuple[int, tuple[str, str]]]:
        """Return the units completed since the last call."""
        units, self.complete = self.complete, []
        return units

    def refuse_entity(self, name: str) -> None:
        if self.segment is not None:
            raise ValueError(f"undefined entity {name}")

    def start(self, tag: str, attributes: dict[str, str], line: int) -> None:
        if tag == "tu":
            self.segments, self.line = {}, line
        elif tag == "tuv":
            self.variant = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif tag == "seg":
            self.segment = []
        elif tag in _CODE_ELEMENTS:
            self.code_depth += 1

    def text(self, data: str) -> None:
        if self.segment is not None and not self.code_depth:
            self.segment.append(data)

    def end(self, tag: str) -> None:
        if tag == "seg" and self.segment is not None:
            self.segments.setdefault(self.variant, "".join(self.segment))
            self.segment = None
        elif tag in _CODE_ELEMENTS:
            self.code_depth -= 1
        elif tag == "tu":
            if find_language(self.target_language).code == "und":
                source = self._find(self.language)
                target = self._find(self.target_language, other_than=source)
            else:
                target = self._find(self.target_language)
                source = self._find(self.language, other_than=target)
            self.found |= dict.fromkeys(self.segments)
            if source is not None and target is not None:
                self.with_both = True
                self.complete.append((self.line, (self.segments[source], self.segments[target])))

    def _find(self, language: str, other_than: str | None = None) -> str | None:
        """Return the tag of a language's segment, None if the unit has none.

        Of several tags that match the language equally (`matching_tags`), it is the first. ``und`` matches the only
        language besides that of ``other_than``; a `DataError` is raised if there are several.
        """
        variants = [variant for variant in self.segments if variant != other_than]
        if find_language(language).code != "und":
            return next(iter(matching_tags(variants, language)), None)
        languages = {language_of_tag(variant) or variant for variant in variants}
        if other_than is not None and len(languages) > 1:
            raise DataError(
                f"{self.path}:{self.line}: the unit has {' and '.join(variants)} besides {other_than}: state the "
                "language, which is und"
            )
        return next(iter(variants), None)
