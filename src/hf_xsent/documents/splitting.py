"""Split running text into sentences by rules for scripts and abbreviations."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from hf_xsent.data.languages import find_language, scripts_of

_CLOSING = "\"'”“’»›)]}」』】）》〉"
_OPENING = "\"'“‘„‚«‹([{¿¡—–-"
# These always end a sentence, except U+FF0E in numbers; the others only before whitespace.
_FULL_WIDTH = "。！？｡．"
_ENDINGS = ".!?…؟۔।॥։።៕။"
_CHINESE_JAPANESE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_ENDING = re.compile(
    rf"(?:(?<!\d)．|．(?!\d)|[。！？｡]+)[”’」』】）》〉)\]]*|[{_ENDINGS}]+[{re.escape(_CLOSING)}]*(?: »)?(?=\s)"
    rf"|[!?]+(?=[{_CHINESE_JAPANESE}])"
)
_GREEK_ENDING = re.compile(f"[{_ENDINGS};\u037e]+[{re.escape(_CLOSING)}]*(?=\\s)")
_SPACE = re.compile(r"\s+")
_BLANK_LINE = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
# A line end between Chinese or Japanese characters or punctuation marks is no space.
_UNSPACED = f"{_CHINESE_JAPANESE}\u3000-\u303f\uff00-\uffef"
_WRAPPED = re.compile(rf"(?<=[{_UNSPACED}])[^\S\n]*\n[^\S\n]*(?=[{_UNSPACED}])")
_LAST_WORD = re.compile(r"[^\s(\[{«„“\"'’‘]+$")
# Languages that write ordinal numbers with a full stop: "am 3. Mai".
_ORDINAL_LANGUAGES = frozenset(
    ("bs", "cs", "da", "de", "et", "eu", "fi", "hr", "hu", "is", "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr", "tr")
)
_LONGEST_ORDINAL = 2
# Thai, Lao, Khmer and Burmese put spaces between clauses, often without a sentence mark; short clauses are joined.
_CLAUSE_SCRIPTS = {"Thai", "Laoo", "Khmr", "Mymr"}
_SHORTEST_CLAUSE = 30  # characters
_SYLLABIC_SCRIPTS = {"Hang", "Hani", "Hira", "Kana"}


@dataclass(frozen=True)
class Document:
    """The sentences of a document; of each, a number that differs between paragraphs, and its place from 1."""

    sentences: list[str]
    paragraphs: list[int]
    numbers: list[int]


def split_lines(text: str) -> Document:
    """Split text into lines, one sentence each; empty lines separate paragraphs."""
    sentences: list[str] = []
    paragraphs: list[int] = []
    numbers: list[int] = []
    empty_lines = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if sentence := _SPACE.sub(" ", line).strip():
            sentences.append(sentence)
            paragraphs.append(empty_lines)
            numbers.append(number)
        else:
            empty_lines += 1
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
        inside = split_paragraph(part, language)
        sentences += inside
        paragraphs += [number] * len(inside)
    return Document(sentences, paragraphs, list(range(1, len(sentences) + 1)))


def split_paragraph(text: str, language: str = "und") -> list[str]:
    """Split one paragraph; collapse whitespace.

    >>> split_paragraph("今日は寒いです。「本を読みます。」と言った。", "ja")
    ['今日は寒いです。', '「本を読みます。」', 'と言った。']
    """
    text = _SPACE.sub(" ", _WRAPPED.sub("", text)).strip()
    code = find_language(language).code
    sentences, start = [], 0
    for match in (_GREEK_ENDING if code == "el" else _ENDING).finditer(text):
        end = match.end()
        if text.startswith('"', end) and match.group()[0] in _FULL_WIDTH and text.count('"', 0, end) % 2:
            end += 1  # the quotation mark closes
        before, after = text[start:end], text[end:].lstrip()
        if after and _ends(before, text[match.start() : end], after, code):
            sentences.append(before.strip())
            start = end
    if rest := text[start:].strip():
        sentences.append(rest)
    return [clause for sentence in sentences for clause in _clauses(sentence)]


def _ends(before: str, ending: str, after: str, code: str) -> bool:
    """Return whether a sentence ends after ``before``, which ends with ``ending``."""
    following = after.lstrip(_OPENING + " ")[:1]
    before = before[: -len(ending)]
    match = _LAST_WORD.search(before)
    word = match.group() if match else ""
    is_item = word == before.strip() and re.fullmatch(r"\d+|[IVXivx]+|\w", word)  # of a list, or a heading
    if ending[0] in _FULL_WIDTH:
        return not (ending[0] == "．" and is_item)
    if following.islower() and not "ა" <= following <= "ჿ":  # Georgian has no capital letters at the start of sentences
        return False
    if ending.rstrip(_CLOSING) != ".":
        return True
    if is_item or _is_initial(word):
        return False
    if word.isdecimal():
        return code not in _ORDINAL_LANGUAGES or len(word) > _LONGEST_ORDINAL
    abbreviations = _abbreviations(code)
    if f"{word.lower()}#" in abbreviations:  # only before a number
        return not following.isdecimal()
    return word.lower() not in abbreviations and not re.fullmatch(r"(?:\w\.)+\w", word)


def _is_initial(word: str) -> bool:
    """Return whether a word is one capital letter or, in scripts without capitals, one letter with its marks.

    Hangul and Chinese characters are syllables or words.
    """
    letters = [character for character in word if not unicodedata.category(character).startswith("M")]
    if len(letters) != 1 or not letters[0].isalpha():
        return False
    return letters[0].isupper() or (not letters[0].islower() and not scripts_of(word).keys() & _SYLLABIC_SCRIPTS)


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
