"""Find languages by code, and count the letters of a text by script.

``languages.tsv`` has one language per line: codes, English name and ISO 15924 scripts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files

import regex

from hf_xsent.errors import DataError, did_you_mean

# Codes of writing systems that combine or restrict other scripts.
_SCRIPT_GROUPS = {
    "Hans": ("Hani",), "Hant": ("Hani",), "Jpan": ("Hani", "Hira", "Kana"), "Hrkt": ("Hira", "Kana"),
    "Kore": ("Hang", "Hani"), "Aran": ("Arab",), "Latf": ("Latn",), "Latg": ("Latn",),
}  # fmt: skip
# gettext names scripts by word: sr@latin.
_GETTEXT_SCRIPTS = {"latin": "Latn", "cyrillic": "Cyrl", "arabic": "Arab", "devanagari": "Deva", "tifinagh": "Tfng"}

_OTHER_SCRIPTS = frozenset(
    ["Bopo", "Cher", "Copt", "Goth", "Lepc", "Limb", "Lisu", "Nkoo", "Runr", "Vaii"]
)  # of no language here
CODE = r"[A-Za-z]{2,3}(?:[-_@][A-Za-z0-9]+)*"  # the form of a code in BCP 47 or gettext style
STRICT_CODE = r"[a-z]{2,3}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}|\d{3}))*(?:@[a-z]+)?"  # as usual in names of files
_TARGET_CODE = "(?P<target>[a-z]{2,3}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}))*)"
_TWO_CODES = (
    rf"(?P<before>.*?[-_])?(?P<code>{STRICT_CODE})[-_]{_TARGET_CODE}",
    rf"(?P<before>.*?[-_])?{_TARGET_CODE}[-_](?P<code>{STRICT_CODE})",
)
_WORD = r"[a-z]{3}(?:[-_]\d+)?"
_LONGEST_TAG = 40


@dataclass(frozen=True)
class Language:
    """A language: ISO 639-1 code (else 639-3), ISO 639-3 code, English name and expected scripts."""

    code: str
    iso3: str
    name: str
    scripts: tuple[str, ...]


@cache
def _table() -> dict[str, Language]:
    """Map every known code, in lower case, to its language."""
    table = {"und": Language("und", "und", "Undetermined", ())}
    aliases: dict[str, Language] = {}
    lines = (files("hf_xsent.data") / "languages.tsv").read_text(encoding="utf-8").splitlines()
    for line in lines[1:]:
        code, iso3, name, scripts, others = line.split("\t")
        language = Language(code, iso3, name, tuple(scripts.split()))
        table[code] = table[iso3] = language
        aliases.update((other, language) for other in others.split())
    return {**aliases, **table}


def known_languages() -> list[Language]:
    """Return all languages of the table except ``und``, sorted by code."""
    return sorted({language for language in _table().values() if language.scripts}, key=lambda language: language.code)


@lru_cache(maxsize=4096)
def find_language(code: str) -> Language:
    """Return the language of a code: ISO 639-1 or 639-3, with or without region and script, in BCP 47 or gettext style.

    >>> find_language("deu").code, find_language("pt_BR").code, find_language("sr@latin").scripts
    ('de', 'pt', ('Latn',))
    """
    tag, _, modifier = code.strip().partition("@")
    first, *subtags = re.split(r"[-_]", tag.split(".")[0])
    language = _table().get(first.lower())
    if language is None:
        hint = _nearest_codes(first) or "; use an ISO 639 code such as de or deu"
        raise DataError(f"unknown language code {code!r}{hint}")
    tags = [_GETTEXT_SCRIPTS.get(modifier.lower(), ""), *(tag for tag in subtags if re.fullmatch("[A-Za-z]{4}", tag))]
    script = next((tag.title() for tag in tags if tag), None)
    if script is None:
        return language
    scripts = _SCRIPT_GROUPS.get(script, (script,))
    if not {*scripts} <= _known_scripts():
        raise DataError(f"unknown script {script!r} in language code {code!r}; use an ISO 15924 code such as Latn")
    return replace(language, scripts=scripts)


@cache
def _known_scripts() -> frozenset[str]:
    return frozenset(script for language in known_languages() for script in language.scripts) | _OTHER_SCRIPTS


def subtags_of(code: str) -> tuple[str, ...]:
    """Return the language and the subtags of a code; two codes with equal ones are one language.

    >>> subtags_of("deu"), subtags_of("PT_br"), subtags_of("pt-BR")
    (('de',), ('pt', 'br'), ('pt', 'br'))
    """
    return find_language(code).code, *re.split("[-_@]", code.strip().casefold())[1:]


def language_of_tag(tag: str) -> Language | None:
    """Return the language of a code, None if the text is not a known code.

    >>> language_of_tag("zh_CN").code, language_of_tag("cmn").code, language_of_tag("scores")
    ('zh', 'zh', None)
    """
    try:
        return find_language(tag) if len(tag) <= _LONGEST_TAG and re.fullmatch(CODE, tag) else None
    except DataError:
        return None


def matching_tags(tags: Iterable[str], code: str) -> list[str]:
    """Return the tags that match a language code best.

    The order: an equal tag; the same language and script, preferably of the same region, else without one; the same
    language.

    >>> matching_tags(["en", "pt_PT", "pt_BR"], "pt-BR"), matching_tags(["en", "cmn"], "zh")
    (['pt_BR'], ['cmn'])
    >>> matching_tags(["en", "pt_PT", "pt_BR"], "pt")  # ambiguous
    ['pt_PT', 'pt_BR']
    >>> matching_tags(["eng", "eng-GB"], "en"), matching_tags(["eng", "eng-GB"], "en-GB")
    (['eng'], ['eng-GB'])
    """
    ranks = {tag: rank for tag in tags if (rank := _rank_of_tag(tag, code)) is not None}
    return [tag for tag, rank in ranks.items() if rank == max(ranks.values())]


def code_at_end(name: str, target_language: str) -> str | None:
    """Return the code that a name is, or the other one of two that end it, of which one is the target language's.

    A name of three letters is a word, such as run or max, rather than a code. Two letters of a pair that is after
    another code of two letters may be a region.

    >>> [code_at_end(name, "en") for name in ("de", "talks-en-pt_BR", "deu-eng", "eng_Latn-deu_Latn", "ar-to-en")]
    ['de', 'pt_BR', 'deu', 'deu_Latn', 'ar']
    >>> [code_at_end(name, "en") for name in ("run", "de-fr", "german_to_en", "pt-br-en", "fr-en-ca")]
    [None, None, None, None, None]
    """
    name = re.sub("(?<=[A-Za-z])[-_]to[-_]", "-", name)  # rather a word than Tongan
    pairs = [match for pattern in _TWO_CODES if (match := re.fullmatch(pattern, name))]
    codes = [] if re.fullmatch(_WORD, name) else [name]
    codes += [
        pair["code"]
        for pair in pairs
        if matching_tags([pair["target"]], target_language) and not _may_be_region(pair["code"], pair["before"])
    ]
    known = [code for code in codes if re.fullmatch(STRICT_CODE, code) and language_of_tag(code)]
    return known[0] if len(known) == 1 and not matching_tags(known, target_language) else None


def _may_be_region(code: str, before: str | None) -> bool:
    """Return whether two letters of a pair after another code may be a region, as in pt-br-en and fr-en-ca."""
    word = re.search("(?:^|[-_])([a-z]{2})[-_]$", before or "")
    return word is not None and len(code) == 2 and word[1] != code and language_of_tag(word[1]) is not None


@lru_cache(maxsize=4096)
def _rank_of_tag(tag: str, code: str) -> tuple[bool, ...] | None:
    language, wanted = language_of_tag(tag), find_language(code)
    if language is None or language.code != wanted.code:
        return None
    subtags, wanted_subtags = (re.split("[-_@]", name.casefold()) for name in (tag, code))
    same_region = subtags[1:] == wanted_subtags[1:]
    return subtags == wanted_subtags, language == wanted, same_region, len(subtags) == 1


def _nearest_codes(name: str) -> str:
    """Suggest a code for an unknown code or an English name such as ``german``."""
    by_name = {language.name.lower(): language.code for language in known_languages()}
    if name.lower() in by_name:
        return f"; the code of {name.title()} is {by_name[name.lower()]!r}"
    return did_you_mean(name.lower(), _table())


class _ScriptTable(dict[str, str]):
    """Cache of each character's script, the empty string if it is not a letter or has none."""

    def __missing__(self, character: str) -> str:
        match = _script_pattern().fullmatch(character) if character.isalpha() else None
        script = self[character] = str(match.lastgroup) if match else ""
        return script


@cache
def _script_pattern() -> regex.Pattern[str]:
    scripts = "|".join(rf"(?P<{script}>\p{{Script={script}}})" for script in sorted(_known_scripts()))
    return regex.compile(rf"{scripts}|(?P<Zzzz>[^\p{{Script=Common}}\p{{Script=Inherited}}])")


_SCRIPT_OF = _ScriptTable()
_ASCII_OTHERS = bytes(code for code in range(128) if not chr(code).isalpha())


def scripts_of(text: str) -> dict[str, int]:
    """Count the letters of a text by script (ISO 15924 codes; ``Zzzz`` for scripts that are not listed here).

    >>> scripts_of("Привет, Tom!")
    {'Cyrl': 6, 'Latn': 3}
    """
    if text.isascii():
        letters = len(text.encode().translate(None, _ASCII_OTHERS))
        return {"Latn": letters} if letters else {}
    scripts = Counter(map(_SCRIPT_OF.__getitem__, text))
    scripts.pop("", None)
    return dict(scripts)
