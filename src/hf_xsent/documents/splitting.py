"""Split running text into sentences by rules for scripts and abbreviations."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from hf_xsent.data.languages import find_language, scripts_of

_CLOSING = "\"'”“’»›)]}」』】）》〉"
_OPENING = "\"'“‘„‚«‹([{¿¡—–-"
# These always end a sentence; the others only before whitespace.
_FULL_WIDTH = "。！？｡"
_ENDINGS = ".!?…؟۔।॥։።៕။"
_ENDING = re.compile(f"[{_FULL_WIDTH}]+[”’」』】）》〉]*|[{_ENDINGS}]+[{re.escape(_CLOSING)}]*(?: »)?(?=\\s)")
_GREEK_ENDING = re.compile(f"[{_ENDINGS};\u037e]+[{re.escape(_CLOSING)}]*(?=\\s)")
_SPACE = re.compile(r"\s+")
_BLANK_LINE = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_LAST_WORD = re.compile(r"[^\s(\[{«„“\"'’‘]+$")
# Languages that write ordinal numbers with a full stop: "am 3. Mai".
_ORDINAL_LANGUAGES = frozenset(
    ("bs", "cs", "da", "de", "et", "eu", "fi", "hr", "hu", "is", "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr", "tr")
)
_LONGEST_ORDINAL = 2
# Thai, Lao, Khmer and Burmese put spaces between clauses, often without a sentence mark; short clauses are joined.
_CLAUSE_SCRIPTS = {"Thai", "Laoo", "Khmr", "Mymr"}
_SHORTEST_CLAUSE = 30  # characters


@dataclass(frozen=True)
class Document:
    """The sentences of a document, the paragraph number of each, and its line or sentence number from 1."""

    sentences: list[str]
    paragraphs: list[int]
    numbers: list[int]

    def __len__(self) -> int:
        return len(self.sentences)


def split_lines(text: str) -> Document:
    """Split text into lines, one sentence each; empty lines separate paragraphs."""
    sentences: list[str] = []
    paragraphs: list[int] = []
    numbers: list[int] = []
    paragraph, gap = 0, False
    for number, line in enumerate(text.split("\n"), start=1):
        if not (sentence := _SPACE.sub(" ", line).strip()):
            gap = True
            continue
        paragraph += gap and bool(sentences)
        gap = False
        sentences.append(sentence)
        paragraphs.append(paragraph)
        numbers.append(number)
    return Document(sentences, paragraphs, numbers)


def split_text(text: str, language: str = "und") -> Document:
    """Split running text; paragraphs end at empty lines or, if there are none, at the end of each line.

    >>> split_text("Am 3. Mai kam Dr. Maier. Er blieb, z. B. zum Essen! Und dann?", "de").sentences
    ['Am 3. Mai kam Dr. Maier.', 'Er blieb, z. B. zum Essen!', 'Und dann?']
    """
    text = text.strip()
    parts = _BLANK_LINE.split(text) if _BLANK_LINE.search(text) else text.split("\n")
    sentences: list[str] = []
    paragraphs: list[int] = []
    for number, part in enumerate(part for part in parts if part.strip()):
        found = split_paragraph(part, language)
        sentences += found
        paragraphs += [number] * len(found)
    return Document(sentences, paragraphs, list(range(1, len(sentences) + 1)))


def split_paragraph(text: str, language: str = "und") -> list[str]:
    """Split one paragraph; collapse whitespace.

    >>> split_paragraph("今日は寒いです。「本を読みます。」と言った。", "ja")
    ['今日は寒いです。', '「本を読みます。」', 'と言った。']
    """
    text = _SPACE.sub(" ", text).strip()
    code = find_language(language).code
    abbreviations = _abbreviations(code)
    sentences, start = [], 0
    for match in (_GREEK_ENDING if code == "el" else _ENDING).finditer(text):
        before, after = text[start : match.end()], text[match.end() :].lstrip()
        if after and _ends(before, match.group(), after, code, abbreviations):
            sentences.append(before.strip())
            start = match.end()
    if rest := text[start:].strip():
        sentences.append(rest)
    return [clause for sentence in sentences for clause in _clauses(sentence)]


def _ends(before: str, ending: str, after: str, code: str, abbreviations: frozenset[str]) -> bool:
    """Return whether a sentence ends after ``before``, which ends with ``ending``."""
    if ending[0] in _FULL_WIDTH:
        return True
    following = after.lstrip(_OPENING + " ")[:1]
    if following.islower() and not "ა" <= following <= "ჿ":  # Georgian has no capital letters at the start of sentences
        return False
    if ending.rstrip(_CLOSING) != ".":
        return True
    found = _LAST_WORD.search(before[: -len(ending)])
    word = found.group() if found else ""
    if word == before[: -len(ending)].strip() and re.fullmatch(r"\d+|[IVXivx]+|\w", word):
        return False  # the number or letter of a list item or heading
    if word.isdecimal():
        return code not in _ORDINAL_LANGUAGES or len(word) > _LONGEST_ORDINAL
    if len(word) == 1 and word.isupper():
        return False  # an initial
    return word.lower() not in abbreviations and not re.fullmatch(r"(?:\w\.)+\w", word)


def _clauses(sentence: str) -> list[str]:
    """Split text in Thai, Lao, Khmer or Burmese script at its spaces; join short clauses."""
    if sentence.isascii() or not _CLAUSE_SCRIPTS & scripts_of(sentence).keys():
        return [sentence]
    clauses: list[str] = []
    for part in sentence.split(" "):
        if clauses and min(len(clauses[-1]), len(part)) < _SHORTEST_CLAUSE:
            clauses[-1] += f" {part}"
        else:
            clauses.append(part)
    return clauses


@cache
def _abbreviations(code: str) -> frozenset[str]:
    """Return the abbreviations of a language and those shared by all (und), without their last full stop."""
    table = (files("hf_xsent.documents") / "abbreviations.tsv").read_text(encoding="utf-8")
    rows = dict(line.split("\t") for line in table.splitlines()[1:])
    return frozenset((rows["und"] + " " + rows.get(code, "")).split())
