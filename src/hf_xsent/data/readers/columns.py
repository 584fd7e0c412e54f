"""Recognise a table's header row and choose its columns; refuse columns without letters, and tables read as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hf_xsent.data.languages import find_language, known_languages, language_of_tag, matching_tags
from hf_xsent.errors import DataError, RecipeError, did_you_mean

Columns = tuple["int | str", "int | str"]

_SOURCE = {"source", "src"}
_TARGET = {"target", "tgt", "trg", "translation"}
_TEXT = {"text", "sentence", "segment", "string", "side"}
_OTHER = {
    "score", "cosine", "similarity", "margin", "rank", "line", "row", "id", "index", "key", "links", "label",
    "language", "lang", "code", "negative", "negatives", "original", "url", "domain", "corpus", "comment",
    "sentence1", "sentence2", "text1", "text2",
}  # fmt: skip
_FIRST, _SECOND = {"sentence1", "text1", "original"}, {"sentence2", "text2"}
_SIDES = _SOURCE | _TARGET | _TEXT
_KNOWN = _SIDES | _OTHER
_PUNCTUATION = re.compile(r"[.,;:!?…。，；：！？](\s|$)")
_LONGEST_NAME = 40
_ROWS_WITH_LETTERS, _MIN_PAIRS = 100, 6  # to decide that a column has no letters
_EXAMPLES = 3
_LINES_OF_A_TABLE = 20  # which all have a tab

Row = TypeVar("Row")


class _Name(NamedTuple):
    """A column's name: a language code, empty if it has none, and usual words such as text or score."""

    tag: str
    words: frozenset[str]


_NO_NAME = _Name("", frozenset())


def is_header(cells: Sequence[str], language: str, target_language: str) -> bool:
    """Return whether a row has the cells source and target, or only names of columns, such as score, de or text_en.

    Names differ and have no punctuation. If they have languages, one is the source's or the target's, or another name
    is that of a side.

    >>> is_header(["score", "zh_CN", "English"], "zh", "en"), is_header(["No.", "No."], "no", "en")
    (True, False)
    >>> is_header(["fr", "es"], "de", "en"), is_header(["source", "es"], "de", "en")
    (False, True)
    """
    if {"source", "target"} <= {cell.strip().lower() for cell in cells}:
        return True
    names = [_parse_name(cell) for cell in cells]
    if _NO_NAME in names or len(set(names)) == 1 or any(map(_PUNCTUATION.search, cells)):
        return False
    named = {find_language(name.tag).code for name in names if name.tag and name.tag not in _OTHER}
    wanted = {find_language(code).code for code in (language, target_language)}
    sides = any(name.words and name.words <= _SIDES for name in names)
    return not named or sides or "und" in wanted or bool(named & wanted)


def guess_columns(names: Sequence[str], language: str, target_language: str) -> tuple[int | None, int | None]:
    """Find source and target column in a header by usual names; None for a column that is missing or ambiguous.

    >>> guess_columns(["id", "text_de", "text_en"], "de", "en")
    (1, 2)
    """
    if (plain := source_and_target(names)) is not None:
        return plain
    parsed = [_parse_name(name) for name in names]
    tags = [name.tag for name in parsed]
    source_tags, target_tags = ({*matching_tags(tags, code)} for code in (language, target_language))
    if language == "und" and _place(parsed, set(), _SOURCE) is None:
        target = find_language(target_language).code
        source_tags = {tag for tag in tags if tag and find_language(tag).code != target} - _OTHER
    return _place(parsed, source_tags, _SOURCE, _FIRST), _place(parsed, target_tags, _TARGET, _SECOND)


def names_other_language(name: str, language: str) -> bool:
    """Return whether a column's name is of a language, but not of this one.

    >>> [names_other_language(name, "en") for name in ("text_fr", "English", "text")]
    [True, False, False]
    """
    tag = _parse_name(name).tag
    return bool(tag) and language != "und" and not matching_tags([tag], language)


def source_and_target(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns named exactly source and target; None unless there is one of each."""
    plain = [name.strip().lower() for name in names]
    both = plain.count("source") == plain.count("target") == 1
    return (plain.index("source"), plain.index("target")) if both else None


def _place(names: Sequence[_Name], tags: set[str], *kinds: set[str]) -> int | None:
    """Return the only column with one of the tags, else with a usual name of the first kind, and so on.

    Names without further words, such as de, take precedence over those with some, such as text_de.
    """
    numbered = list(enumerate(names))
    tagged = [(place, name.words) for place, name in numbered if name.tag in tags and name.words <= _SIDES]
    for kind in (set[str](), *kinds):
        usual = [(place, name.words) for place, name in numbered if kind & name.words and not name.tag]
        loose = [place for place, words in (usual if kind else tagged) if words <= kind | (_TEXT if kind else _SIDES)]
        exact = [place for place in loose if names[place].words <= kind]
        for places in (exact, loose):
            if len(places) == 1:
                return places[0]
    return None


@lru_cache(maxsize=4096)
def _parse_name(cell: str) -> _Name:
    """Split a name such as text_de, zh_CN or English; return ``_NO_NAME`` if it has any other word."""
    words = re.findall(r"[^\W_]+", cell) if len(cell) <= _LONGEST_NAME else []
    rest = [word for word in words if word.lower() not in _KNOWN and not word.isdecimal()]
    if not _KNOWN & {*words[1:]} and (tag := _tag(words)):  # id_ID, but not de_id
        return _Name(tag, frozenset())
    tag = _tag(rest)
    usual = frozenset(word.lower() for word in words if word.lower() in _KNOWN)
    return _NO_NAME if rest and not tag else _Name(tag, usual)


def _tag(words: Sequence[str]) -> str:
    """Return the language code that the words form (not if capitalized), or whose English name they are."""
    tag = "-".join(words)
    if (named := _codes_by_name().get(tag.lower())) is not None:
        return named
    language = language_of_tag(tag)
    is_code = language is not None and language.code != "und" and (words[0].islower() or words[0].isupper())
    return tag if is_code else ""


@cache
def _codes_by_name() -> dict[str, str]:
    return {re.sub(r"[\W_]+", "-", language.name.lower()): language.code for language in known_languages()}


def choose_columns(
    place: str, names: Sequence[str], requested: Sequence[int | str | None], guesses: Sequence[int | None]
) -> tuple[int, int]:
    """Return the numbers of source and target column: as requested by number or name, else as guessed."""
    numbers = []
    for column, guess in zip(requested, guesses, strict=True):
        if isinstance(column, str) and column not in names:
            raise DataError(f"{place}: no column {column!r}, only {', '.join(names)}{did_you_mean(column, names)}")
        number = guess if column is None else names.index(column) if isinstance(column, str) else column
        if number is None:
            cure = "state the two that have the sentences, for example --columns source target"
            raise DataError(f"{place}: cannot choose among the columns {', '.join(names)}; {cure}")
        numbers.append(number)
    return numbers[0], numbers[1]


def require_letters(rows: Iterator[Row | DataError], path: str) -> Iterator[Row | DataError]:
    """Yield all rows; raise an error if one side of the first pairs has no letters, as in columns of numbers."""
    first = list(islice(rows, _ROWS_WITH_LETTERS))
    pairs: list[Any] = [row for row in first if not isinstance(row, DataError)]
    for place, side in enumerate(("source", "target")):
        texts = [pair[place] for pair in pairs]
        if len(texts) >= _MIN_PAIRS and not any(map(str.isalpha, "".join(texts))):
            raise DataError(
                f"{path}: the {side} column has no letters in the first {len(texts)} pairs "
                f"({', '.join(map(repr, texts[:_EXAMPLES]))}): "
                "state which columns have the sentences, for example --columns source target"
            )
    yield from first
    yield from rows


def refuse_table(path: Path, texts: Iterable[str]) -> None:
    """Raise an error if all of the first lines of a text have a tab, as those of a table have."""
    first = list(islice(filter(None, map(str.strip, texts)), _LINES_OF_A_TABLE))
    if len(first) > 1 and all("\t" in text for text in first):
        raise DataError(
            f"{path} seems to be a table, since all of its first {len(first)} lines have a tab: give a file of one "
            f"sentence per line, such as that of cut -f 1 {path.name}"
        )


def parse_columns(values: Sequence[str] | None) -> Columns | Mapping[str, Columns] | None:
    """Read two columns for all files, or ``KEY=SOURCE,TARGET`` for each language or file that the key names.

    >>> parse_columns(["6", "7"]), parse_columns(["fr=source,target"])
    ((6, 7), {'fr': ('source', 'target')})
    """
    if not values:
        return None
    if not any("=" in str(value) for value in values):
        return _two(list(values), "columns")
    named: dict[str, list[str]] = {}
    for key, _, columns in (str(value).rpartition("=") for value in values):
        named.setdefault(key, []).extend(columns.split(","))
    return {key: _two(columns, f"columns {key}=…") for key, columns in named.items()}


def _two(values: Sequence[str], name: str) -> Columns:
    if len(values) != 2:
        raise RecipeError(f"{name} takes two names or numbers, source and target, not {len(values)}")
    source, target = (int(value) if str(value).isdecimal() else value for value in values)
    return source, target
