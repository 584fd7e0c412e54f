"""Identify the language of a text by its scripts and its most frequent words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from hf_xsent.data.languages import find_language, scripts_of

_MARKS = r"\s\d_!-/:-@\[-`{-~«»“”„‘‚‹›…—–।॥。،؛؟۔¿¡"
_WORD = re.compile(rf"[^{_MARKS}]+(?:['’][^{_MARKS}]+)?")
_MAX_CHARACTERS = 1 << 20
_MIN_SHARE = 0.05  # minimum share of a text's words that are frequent words of its language
_MIN_RATIO = 1.15  # minimum ratio of frequent words, best language to second best
_MIN_KANA_SHARE = 0.05
_BY_SCRIPT = {"Thai": "th"}


def identify_language(texts: Iterable[str]) -> str | None:
    """Return the language code of many sentences; None if neither scripts nor frequent words decide.

    Covers English and the 36 languages of the usual Tatoeba benchmark. A single sentence is often not enough.

    >>> identify_language(["Das ist nicht der Hund, den ich auf der Straße gesehen habe, aber er ist auch schön."])
    'de'
    """
    text = _beginning(texts)
    scripts = scripts_of(text)
    if not scripts:
        return None
    script = max(scripts, key=lambda one: scripts[one])
    if script in ("Hani", "Hira", "Kana"):
        kana = scripts.get("Hira", 0) + scripts.get("Kana", 0)
        return "ja" if kana > _MIN_KANA_SHARE * sum(scripts.values()) else "zh"
    if script in _BY_SCRIPT:
        return _BY_SCRIPT[script]
    candidates = {code: words for code, words in _frequent_words().items() if script in find_language(code).scripts}
    if len(candidates) == 1:
        return next(iter(candidates))
    counts = Counter(word.casefold() for word in _WORD.findall(text))
    found = Counter({code: sum(counts[word] for word in words) for code, words in candidates.items()})
    ranked = [*found.most_common(2), ("", 0), ("", 0)]
    (code, most), (_, second) = ranked[:2]
    sure = most >= _MIN_SHARE * counts.total() and most >= _MIN_RATIO * second
    return code if most and sure else None


def has_frequent_words(code: str) -> bool:
    """Return whether the frequent words of a language are known."""
    return code in _frequent_words()


def frequent_word_share(texts: Iterable[str], code: str) -> float:
    """Return the share of words that are frequent words of a language.

    >>> round(frequent_word_share(["The dog is in the garden."], "en"), 2)
    0.67
    """
    words = [word.casefold() for word in _WORD.findall(_beginning(texts))]
    frequent = _frequent_words()[code]
    return sum(word in frequent for word in words) / max(1, len(words))


def _beginning(texts: Iterable[str]) -> str:
    parts, length = [], 0
    for text in texts:
        parts.append(text[: _MAX_CHARACTERS - length])
        length += len(parts[-1])
        if length >= _MAX_CHARACTERS:
            break
    return " ".join(parts)


@cache
def _frequent_words() -> dict[str, frozenset[str]]:
    table = (files("hf_xsent.data") / "function_words.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in table.splitlines()[1:])
    return {code: frozenset(words.split()) for code, words in rows}
