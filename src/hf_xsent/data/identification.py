"""Identify the language of sentences with py3langid, whose model in the package knows 140 languages."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from textwrap import wrap
from typing import Any

from hf_xsent.data.languages import find_language
from hf_xsent.errors import DataError

logger = logging.getLogger(__name__)

_PASSAGE = 100  # characters; of single short sentences, 1 in 10 is identified wrongly
_MAX_CHARACTERS = 20_000
_MIN_CHARACTERS = 100  # to contradict the language that a user gives
_HIGH, _LOW = 0.5, 0.1  # shares of the text
_NO_LANGUAGE = "zxx"
# Varieties that are mistaken for each other; one does not contradict another.
_CLOSE = (
    "ar arq ary arz", "az tr", "bs hr sr", "fa tg", "gl pt", "id ms", "nb nn no", "wuu yue zh", "xh zu",
)  # fmt: skip


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _known() -> frozenset[str]:
    return frozenset(find_language(label).code for label in _identifier().labels if label != _NO_LANGUAGE)


@cache
def _varieties(code: str) -> frozenset[str]:
    """Return the language and those that it is mistaken for; none if it is not known."""
    code = find_language(code).code
    varieties = next((group for group in map(str.split, _CLOSE) if code in group), [code])
    return frozenset(varieties) if _known().intersection(varieties) else frozenset()


def _shares(texts: Iterable[str]) -> Counter[str]:
    """Return the share of the text that is in each language, by passages of about ``_PASSAGE`` characters."""
    shares: Counter[str] = Counter()
    for passage in wrap(" ".join(texts)[:_MAX_CHARACTERS], _PASSAGE):
        code, probability = _identifier().classify(passage)
        if code != _NO_LANGUAGE and any(map(str.isalpha, passage)):
            shares[find_language(code).code] += probability * len(passage)
    total = shares.total()
    return Counter({code: share / total for code, share in shares.items()})


def identify_language(texts: Iterable[str]) -> str | None:
    """Return the language code of most of a text; None if there is none. A single sentence is often not enough.

    >>> identify_language(["Das ist nicht der Hund, den ich auf der Straße gesehen habe, aber er ist auch schön."])
    'de'
    """
    return _majority(_shares(texts))


def _majority(shares: Counter[str]) -> str | None:
    return next((code for code, share in shares.items() if share >= _HIGH), None)


def contradicting_language(texts: Iterable[str], language: str) -> str | None:
    """Return the code of the language of texts that are clearly not in ``language`` or a close variety of it."""
    texts = list(texts)
    if sum(map(len, texts)) < _MIN_CHARACTERS or not (varieties := _varieties(language)):
        return None
    shares = _shares(texts)
    return None if sum(shares[code] for code in varieties) >= _LOW else _majority(shares)


def check_language(texts: Iterable[str], language: str, name: str) -> None:
    """Raise an error if texts are clearly in another language than ``language``."""
    if (code := contradicting_language(texts, language)) is not None:
        raise DataError(
            f"{name} seems to be {find_language(code).name}, not {find_language(language).name}: "
            "check language, target_language and columns"
        )


def check_order(sides: Sequence[Sequence[str]], codes: Sequence[str], name: str, cure: str = "") -> None:
    """Raise an error if source and target are swapped: one is clearly not in its language, and each is in the other's.

    A side need not be in a language that is not known. Log a warning if a side is in a third language. ``cure``: how to
    state the other order, if not by columns that are not stated yet.
    """
    others = [*map(contradicting_language, sides, codes)]
    if not any(others):
        return
    found, swapped = [identify_language(texts) for texts in sides], [_varieties(code) for code in reversed(codes)]
    if all(code in other for code, other in zip(found, swapped, strict=True) if other):
        stated = " and ".join(find_language(code).name for code in codes)
        order = "give --columns in the other order, such as 1 0 or target source"
        cure = cure or f"name them in a first line, such as en and de, or {order}"
        raise DataError(
            f"{name}: source and target, stated as {stated}, seem to be swapped: {cure}, or check language and "
            "target_language"
        )
    for side, code, other in zip(("source", "target"), codes, others, strict=True):
        if other is not None:
            names = find_language(other).name, find_language(code).name
            logger.warning("%s: the %s side seems to be %s, and is stated as %s", name, side, *names)
