"""Recognise a table's header row and choose its columns; refuse columns without letters, and tables read as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TypeVar

from hf_xsent.data.languages import find_language, known_languages
from hf_xsent.errors import DataError, RecipeError

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
_LONGEST_NAME = 40
_MAX_ROWS = 1000  # bad rows included
_MIN_PAIRS, _MAX_PAIRS = 6, 100  # to decide that a column has no letters
_EXAMPLES = 3
_LINES_OF_A_TABLE = 20  # which all have a tab

Row = TypeVar("Row")


def is_header(cells: Sequence[str]) -> bool:
    """Return whether a row has the cells source and target, or only usual names such as score, de, text_en or English.

    >>> is_header(["score", "source", "target"]), is_header(["Hallo", "Hello"])
    (True, False)
    """
    if {"source", "target"} <= {cell.strip().lower() for cell in cells}:
        return True
    names = [_words(cell) for cell in cells]
    known = _SOURCE | _TARGET | _TEXT | _OTHER
    known |= _language_names()
    return len(cells) > 1 and all(
        known & {*some} and all(word in known or word.isdecimal() for word in some) for some in names
    )


def guess_columns(names: Sequence[str], language: str, target_language: str) -> tuple[int | None, int | None]:
    """Find source and target column in a header by usual names; None for a column that is missing or ambiguous.

    >>> guess_columns(["id", "text_de", "text_en"], "de", "en")
    (1, 2)
    """
    words = [_words(name) for name in names]
    if (plain := source_and_target(names)) is not None:
        return plain
    ours, theirs = ({one.code, one.iso3, one.name.lower()} for one in map(find_language, (language, target_language)))
    target = _place(words, theirs, _TARGET, _SECOND)
    if language == "und":
        ours = {name for some in words for name in some} & (_language_names() - theirs - _OTHER)
    return _place(words, ours, _SOURCE, _FIRST), target


def source_and_target(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns named exactly source and target; None unless there is one of each."""
    plain = [name.strip().lower() for name in names]
    both = plain.count("source") == plain.count("target") == 1
    return (plain.index("source"), plain.index("target")) if both else None


def _place(names: Sequence[Sequence[str]], *kinds: set[str]) -> int | None:
    """Try each set of names in ``kinds``: return the column if exactly one matches; None if no set has one."""
    for kind in kinds:
        exact = [place for place, words in enumerate(names) if len(words) == 1 and words[0] in kind]
        loose = [place for place, words in enumerate(names) if kind & {*words} and {*words} <= kind | _TEXT]
        for found in (exact, loose):
            if len(found) == 1:
                return found[0]
    return None


def _words(cell: str) -> list[str]:
    return re.findall(r"[^\W_]+", cell.lower()) if len(cell) <= _LONGEST_NAME else []


@cache
def _language_names() -> set[str]:
    return {name for one in known_languages() for name in (one.code, one.iso3, one.name.lower())}


def require_letters(rows: Iterator[Row | DataError], path: str) -> Iterator[Row | DataError]:
    """Yield all rows; raise an error if one side of the first pairs has no letters, as in columns of numbers."""
    first: list[Row | DataError] = []
    pairs: list[tuple[str, str]] = []
    missing = {"source": 0, "target": 1}
    for row in rows:
        first.append(row)
        if not isinstance(row, DataError):
            pairs.append(row[:2])  # type: ignore[index]
            missing = {side: place for side, place in missing.items() if not any(map(str.isalpha, pairs[-1][place]))}
        if not missing or len(pairs) == _MAX_PAIRS or len(first) == _MAX_ROWS:
            break
    if missing and len(pairs) >= _MIN_PAIRS:
        side, place = next(iter(missing.items()))
        examples = ", ".join(repr(pair[place]) for pair in pairs[:_EXAMPLES])
        raise DataError(
            f"{path}: the {side} column has no letters in the first {len(pairs)} pairs ({examples}): "
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
    named = [str(value).rpartition("=") for value in values]
    return {key: _two(columns.split(","), f"columns {key}=…") for key, _, columns in named}


def _two(values: Sequence[str], name: str) -> Columns:
    if len(values) != 2:
        raise RecipeError(f"{name} takes two names or numbers, source and target, not {len(values)}")
    source, target = (int(value) if str(value).isdecimal() else value for value in values)
    return source, target
