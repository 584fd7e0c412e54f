"""Recognise a table's header row and choose the two columns of sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from numbers import Integral
from typing import Any, NamedTuple

from hf_xsent.data.languages import code_at_end, find_language, known_languages, language_of_tag, matching_tags
from hf_xsent.errors import DataError, RecipeError, did_you_mean, shortened

Columns = tuple["int | str", "int | str"]

# Usual names of source and target, the first that a table has.
_USUAL_PAIRS = (
    ("source", "target"), ("src", "tgt"), ("src", "trg"), ("sentence1", "sentence2"), ("text1", "text2"),
    ("non_english", "english"), ("anchor", "positive"), ("query", "positive"), ("query", "answer"),
    ("question", "answer"), ("original", "translation"), ("sentence_a", "sentence_b"), ("premise", "hypothesis"),
    ("query", "passage"), ("title", "body"),
)  # fmt: skip
_SOURCE = {"source", "src"}
_TARGET = {"target", "tgt", "trg", "translation"}
_TEXT = {"text", "sentence", "segment", "string", "side"}
_OTHER = {
    "score", "cosine", "similarity", "margin", "rank", "line", "row", "id", "index", "key", "links", "label", "labels",
    "language", "lang", "code", "negative", "negatives", "url", "domain", "corpus", "comment", "licence", "license",
    "origin", "unnamed",
}  # fmt: skip
_NUMBERS = {"id", "no"}  # also codes of Indonesian and Norwegian
LANGUAGE = ("language", "lang")  # columns of the language of each pair
_SIDES = _SOURCE | _TARGET | _TEXT
_KNOWN = _SIDES | _OTHER | {name for pair in _USUAL_PAIRS for name in pair} - {"english"}
_PUNCTUATION = re.compile(r"[.,;:!?…。，；：！？](\s|$)")
_INDEX_OF_PANDAS = re.compile(r"(Unnamed: \d+)?")
_LONGEST_NAME = 40
_MOST_NAMES = 20  # in a message
_OPUS = "translation."
CURE = (
    "state the two that have the sentences as columns, by name or by number from 0 (such as 1 2), or give a file with "
    "the names source and target"
)


class _Name(NamedTuple):
    """A column's name: a language code, empty if it has none, and usual words such as text or score."""

    tag: str
    words: frozenset[str]


_NO_NAME = _Name("", frozenset())


def is_header(cells: Sequence[str], language: str, target_language: str, below: Iterable[Sequence[str]] = ()) -> bool:
    """Return whether a row has usual names of both sides, or only names of columns, such as score, de or text_en.

    Names differ and have no punctuation. If they have languages, one is the source's or the target's, or another name
    is that of a side. Beside names of both languages, others may be unknown; a row ``below`` with these is of columns
    of codes.

    >>> is_header(["score", "zh_CN", "English"], "zh", "en"), is_header(["No.", "No."], "no", "en")
    (True, False)
    >>> rows = [["Ein Hund.", "A dog.", "de", "en"], ["Eine Katze.", "A cat.", "de", "en"]]
    >>> is_header(rows[0], "de", "en", rows[1:])
    False
    >>> is_header(["fr", "es"], "de", "en"), is_header(["source", "es"], "de", "en")
    (False, True)
    """
    if _usual_pair(cells, language) is not None:
        return True
    cells = ["index" if _INDEX_OF_PANDAS.fullmatch(cell) else cell for cell in cells]
    names = [_parse_name(cell) for cell in cells]
    both = [matching_tags([name.tag for name in names], code) for code in (language, target_language)]
    if len(cells) > 2 and all(both):
        tagged = [number for number, name in enumerate(names) if name.tag in (*both[0], *both[1])]
        return not any(all(row[number : number + 1] == [cells[number]] for number in tagged) for row in below)
    if _NO_NAME in names or len(set(names)) == 1 or any(map(_PUNCTUATION.search, cells)):
        return False
    named = {find_language(name.tag).code for name in names if name.tag and name.tag not in _OTHER}
    wanted = {find_language(code).code for code in (language, target_language)}
    sides = any(name.words and name.words <= _SIDES for name in names)
    return not named or sides or "und" in wanted or bool(named & wanted)


def choose_columns(
    place: str, names: Sequence[str], columns: Columns | None, language: str, target_language: str
) -> tuple[int, int]:
    """Return the numbers of source and target column: of ``columns``, else as the names say."""
    if columns is None:
        first, second = guess_columns(names, language, target_language)
        if first is None or second is None:
            other = language_of_columns(tuple(names), target_language)
            way = f"if {other} is their language, state it ({other}=FILE), else " if other else ""
            listed = ", ".join([*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])])
            if any(name.endswith(".0") for name in names):  # of DataFrame.to_json
                way = 'if it is one object of columns, write records instead (orient="records"), else '
            raise DataError(f"{place}: cannot choose among the columns {listed}; {way}{CURE}")
        return first, second
    numbers = []
    for column in columns:
        if isinstance(column, str) and column not in names:
            ways = "; without a header, give numbers from 0, such as columns 0 1; for one of several files, de=0,1"
            hint = did_you_mean(column, names) or ways
            raise DataError(f"{place}: no column {column!r}, only {shortened(', '.join(names))}{hint}")
        number = names.index(column) if isinstance(column, str) else column
        if number >= len(names):
            known = ", ".join(names)
            raise DataError(f"{place}: column {number} (counted from 0) was requested, but there are only {known}")
        numbers.append(number)
    return numbers[0], numbers[1]


def guess_columns(names: Sequence[str], language: str, target_language: str) -> tuple[int | None, int | None]:
    """Find source and target column by their names; None for a column that is missing or ambiguous.

    In this order: usual names of both; names of the languages or of one side; the only columns that may be sentences.
    A column of another language is not a side, and one column is not both. A column id or no may number the rows, also
    for Indonesian and Norwegian: it is a side if another is named by its language in the same way, or if none is left.

    >>> guess_columns(["id", "text_de", "text_en"], "de", "en"), guess_columns(["title", "body", "score"], "de", "en")
    ((1, 2), (0, 1))
    """
    if (usual := _usual_pair(names, language)) is not None:
        return usual
    sides = _guess([*_without_numbers(names)], language, target_language)
    return _guess(names, language, target_language) if None in sides else sides


def _without_numbers(names: Sequence[str]) -> Iterator[str]:
    """Yield the names; empty in place of id, no or text_id if no other name, such as text_en, is its counterpart."""
    parsed = [_parse_name(name) for name in names]
    for name, (tag, words) in zip(names, parsed, strict=True):
        is_number = _NUMBERS.intersection(map(str.lower, _words(name)))
        is_side = not is_number or any(other.tag not in ("", tag) and other.words == words for other in parsed)
        yield name if is_side else ""


def has_side(names: Sequence[str], language: str, target_language: str) -> bool:
    """Return whether a name is that of a side: a usual one, or that of its language."""
    is_usual = _usual_pair(names, language) is not None
    return is_usual or any(side is not None for side in _named_sides(names, language, target_language))


def _named_sides(names: Sequence[str], *languages: str) -> list[int | None]:
    parsed = [_parse_name(name) for name in names]
    return [_named_side(parsed, code, words) for code, words in zip(languages, (_SOURCE, _TARGET), strict=True)]


def _guess(names: Sequence[str], language: str, target_language: str) -> tuple[int | None, int | None]:
    parsed = [_parse_name(name) for name in names]
    languages = language, target_language
    sides = _named_sides(names, *languages)
    if sides[0] is not None and sides[0] == sides[1]:  # both sides are of one language, as only one column is
        return None, None
    missing = [side for side in range(2) if sides[side] is None]
    rest = [
        number
        for number, name in enumerate(names)
        if number not in sides and name and not _OTHER.intersection(map(str.lower, _words(name)))
        and not any(_is_of_another_language(parsed[number].tag, languages[side]) for side in missing)
    ]  # fmt: skip
    if len(rest) == len(missing):
        for side, number in zip(missing, rest, strict=True):
            sides[side] = number
    return sides[0], sides[1]


def _usual_pair(names: Sequence[str], language: str) -> tuple[int, int] | None:
    plain = [name.strip().lower().replace("-", "_") for name in names]
    for pair in _USUAL_PAIRS:
        if plain.count(pair[0]) == plain.count(pair[1]) == 1:
            first, second = map(plain.index, pair)
            return (second, first) if pair[1] == "english" and language.startswith("en") else (first, second)
    return None


def _named_side(names: Sequence[_Name], language: str, words: set[str]) -> int | None:
    """Return the only column with a tag of the language, else the only one with one of the words.

    Names without further words, such as de, take precedence over those with some, such as text_de.
    """
    tags = {*matching_tags([name.tag for name in names], language)}
    tagged = [(number, name.words) for number, name in enumerate(names) if name.tag in tags]
    usual = [(number, name.words) for number, name in enumerate(names) if not name.tag and name.words & words]
    for named, allowed in ((tagged, set[str]()), (tagged, _SIDES), (usual, words), (usual, words | _TEXT)):
        numbers = [number for number, of_name in named if of_name <= allowed]
        if len(numbers) == 1:
            return numbers[0]
    return None


def _is_of_another_language(tag: str, language: str) -> bool:
    return bool(tag) and language != "und" and not matching_tags([tag], language)


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name) if len(name) <= _LONGEST_NAME else []


@lru_cache(maxsize=4096)
def _parse_name(cell: str) -> _Name:
    """Split a name such as text_de, zh_CN or English; return ``_NO_NAME`` if it has any other word."""
    words = _words(cell)
    rest = [word for word in words if word.lower() not in _KNOWN and not word.isdecimal()]
    if not _KNOWN & {*words[1:]} and (tag := _tag(words, cell)):  # id_ID, but not de_id
        return _Name(tag, frozenset())
    tag = _tag(rest or [word for word in words if word.lower() in _NUMBERS], cell)  # text_id
    usual = frozenset(word.lower() for word in words if word.lower() in _KNOWN) - {tag.lower()}
    return _NO_NAME if rest and not tag else _Name(tag, usual)


def _tag(words: Sequence[str], cell: str) -> str:
    """Return the code that the words form without a space (not if capitalized), or whose English name they are."""
    tag = "-".join(words)
    if tag != "mon" and (named := _codes_by_name().get(tag.lower())) is not None:  # mon: Mongolian; Mon: a language
        return named
    language = language_of_tag(tag)
    is_code = language is not None and language.code != "und" and (words[0].islower() or words[0].isupper())
    return tag if is_code and tag in re.sub(r"[_@]| \(", "-", cell) else ""  # pt (BR), not in der Zukunft


def language_value(record: Mapping[str, Any]) -> Any:
    """Return what a record has in the column of languages; None without one."""
    column = language_column(record)
    return None if column is None else record[column]


def language_column(names: Iterable[str]) -> str | None:
    """Return the name of the column that has the language of each pair, in lower or upper case; None without one."""
    columns = {name.lower(): name for name in names}
    return next((columns[name] for name in LANGUAGE if name in columns), None)


@lru_cache(maxsize=4096)
def language_in(value: str, target_language: str) -> str:
    """Return the code in a cell of the column ``language``: a code, a name, or two codes; empty if it has none.

    >>> [language_in(value, "en") for value in ("deu", "Swahili", "en-pt_BR", "zh-CN", "und", "news")]
    ['deu', 'sw', 'pt_BR', 'zh-CN', 'und', '']
    """
    code = code_at_end(value, target_language)
    return code or (value if language_of_tag(value) else _parse_name(value).tag)


@cache
def _codes_by_name() -> dict[str, str]:
    return {re.sub(r"[\W_]+", "-", language.name.lower()): language.code for language in known_languages()}


def names_of_sides(names: Sequence[str]) -> list[str]:
    """Return the names without ``translation.``, as OPUS has them, if some have it; others of them are empty.

    >>> names_of_sides(["id", "translation.de", "translation.en"])
    ['', 'de', 'en']
    """
    nested = [name.removeprefix(_OPUS) if name.startswith(_OPUS) else "" for name in names]
    return nested if any(nested) else [*names]


@lru_cache(maxsize=64)
def language_of_columns(names: tuple[str, ...], target_language: str) -> str | None:
    """Return the only language that the names of columns have besides the target's; None without one.

    >>> language_of_columns(("id", "sw_text", "en_text"), "en"), language_of_columns(("source", "sw", "en"), "en")
    ('sw', None)
    """
    tags = [name.tag for name in map(_parse_name, names) if name.words <= _SIDES and name.tag.lower() not in ("", "id")]
    targets = matching_tags(tags, target_language)
    codes = [tag for tag in tags if tag not in targets]
    return codes[0] if len(codes) == len(targets) == 1 and not {"source", "target"}.intersection(names) else None


def parse_columns(values: Sequence[str] | None) -> Columns | Mapping[str, Columns] | None:
    """Read two columns for all files, or ``KEY=SOURCE,TARGET`` for each language or file that the key names.

    >>> parse_columns(["6", "7"]), parse_columns(["fr=source,target"])
    ((6, 7), {'fr': ('source', 'target')})
    """
    if not values:
        return None
    named: dict[str, list[int | str]] = {}
    for key, _, columns in (str(value).rpartition("=") for value in values):
        named.setdefault(key, []).extend(int(name) if name.isdecimal() else name for name in columns.split(","))
    pairs: Any = {key: tuple(columns) for key, columns in named.items()}
    parsed: Columns | Mapping[str, Columns] = pairs[""] if set(pairs) == {""} else pairs
    check_columns(parsed)
    return parsed


def check_columns(columns: Any) -> None:
    """Raise an error unless columns are two names or numbers, or a mapping to them."""
    for two in columns.values() if isinstance(columns, Mapping) else [columns]:
        words = two if isinstance(two, list | tuple) else ()
        if two is not None and not (len(words) == 2 and words[0] != words[1] and all(map(_is_column, words))):
            raise RecipeError(f"columns takes two different names or numbers, source and target, not {two!r}")


def _is_column(name: Any) -> bool:
    return isinstance(name, Integral | str) and name != ""
