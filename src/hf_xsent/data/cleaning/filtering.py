"""Filter scored pairs by the cleaning rules, and by scores, numbers and near-duplicates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from zlib import crc32

import numpy as np

from hf_xsent.data.cleaning.repeats import hash_texts, normalise
from hf_xsent.data.cleaning.report import CleaningCounts
from hf_xsent.data.cleaning.rules import PairRules
from hf_xsent.settings.declare import setting

_SEPARATOR = re.compile("[.,:'’\u066b\u066c\u00a0\u202f]")
_NUMBER = re.compile(rf"\d+(?:{_SEPARATOR.pattern}\d+)*")
_THOUSANDS = 3  # digits
_SPACED_THOUSANDS = re.compile(r"(?<!\d)(?<!\d[.,])\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+(?!\d)")
_GRAM = 5  # bytes
_HASHES, _BANDS = 64, 16
_PAIRS_REMEMBERED = 1 << 17
_SLOTS = 1 << 18


@dataclass(frozen=True)
class FilterRules(PairRules):
    """Rules that remove scored pairs."""

    min_score: float | None = setting(None, "Minimum score of a pair.")
    min_number_overlap: float | None = setting(
        0.5,
        "Minimum share of the numbers of two or more digits that are on both sides; pairs without such numbers pass.",
        at_least=0,
        at_most=1,
    )
    near_duplicates: float | None = setting(
        0.8,
        "Remove a pair whose byte 5-grams have at least this Jaccard similarity (estimated by MinHash) with those of "
        "one of the last 131,072 retained pairs; 1 removes equal pairs.",
        at_least=0.6,
        at_most=1,
    )


class PairFilter:
    """Filter pair by pair in constant memory, and count what each rule removed."""

    def __init__(self, rules: FilterRules, language: str = "und", target_language: str = "und") -> None:
        self.rules = rules
        self.counts = CleaningCounts()
        self.excluded = rules.excluded_sentences()
        self._removed_by: Callable[[str, str], str | None] = rules.pair_checker(language, target_language)
        self._duplicates = None if rules.near_duplicates is None else NearDuplicates(rules.near_duplicates)

    def accepts(self, source: str, target: str, score: float) -> bool:
        """Return whether a pair passes all rules."""
        self.counts.read += 1
        rule = self._rule(source, target, score)
        if rule is None:
            self.counts.retained += 1
        else:
            self.counts.remove(rule)
        return rule is None

    def _rule(self, source: str, target: str, score: float) -> str | None:
        rules = self.rules
        if rules.min_score is not None and score < rules.min_score:
            return "min_score"
        if (rule := self._removed_by(source, target)) is not None:
            return rule
        if rules.min_number_overlap is not None and number_overlap(source, target) < rules.min_number_overlap:
            return "min_number_overlap"
        if self._duplicates is not None and self._duplicates.seen(source, target):
            return "near_duplicates"
        return None


def number_overlap(source: str, target: str) -> float:
    """Return the share of the numbers of two or more digits that are on both sides; 1 without such numbers.

    >>> number_overlap("Im Jahr 1973 waren es 1.500 Franken.", "En 1973, c'était 1500 francs, et 80 centimes.")
    0.8
    """
    readings = [_readings(text) for text in (source, target)]
    return max(_overlap(first, second) for first, second in product(*readings))


def _overlap(first: Counter[str], second: Counter[str]) -> float:
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


def _readings(text: str) -> list[Counter[str]]:
    """Return the numbers of a text, with spaces as separators of thousands, and as separators of numbers."""
    joined = _SPACED_THOUSANDS.sub(lambda match: "".join(match[0].split()), text)
    return [_numbers(reading) for reading in dict.fromkeys((joined, text))]


def _numbers(text: str) -> Counter[str]:
    numbers = (number for match in _NUMBER.finditer(text) for number in _canonical(match[0]))
    return Counter(number for number in numbers if len(number) > 1)


def _canonical(text: str) -> list[str]:
    """Return the digits of a number without separators and without zeros that do not change its value.

    >>> _canonical("1.500,00"), _canonical("08:30"), _canonical("2,50"), _canonical("05.03.2020")
    (['1500'], ['83'], ['25'], ['5', '3', '2020'])
    """
    first, *parts = ("".join(str(int(digit)) for digit in part) for part in _SEPARATOR.split(text))
    *middle, last = parts or [""]
    if parts and len(last) != _THOUSANDS:
        if any(len(part) != _THOUSANDS for part in middle):  # a date
            return [part.lstrip("0") for part in (first, *parts)]
        last = last.rstrip("0")  # a decimal number or a time
    return ["".join((first.lstrip("0"), *middle, last))]


class NearDuplicates:
    """MinHash signatures of the last pairs, in tables of constant size (48 MiB)."""

    def __init__(self, share: float) -> None:
        self.share = share
        random = np.random.default_rng(0)
        self._factors = random.integers(1, 1 << 63, (_HASHES, 1), np.uint64) * np.uint64(2) + np.uint64(1)
        self._offsets = random.integers(0, 1 << 63, (_HASHES, 1), np.uint64)
        self._signatures = np.zeros((_PAIRS_REMEMBERED, _HASHES), np.uint32)
        self._last = np.full((_BANDS, _SLOTS), -1, np.int32)
        self._bands = np.arange(_BANDS)
        self._multipliers = np.array(range(3, 3 + 2 * (_HASHES // _BANDS), 2), np.uint64)
        self._count = 0

    def seen(self, source: str, target: str) -> bool:
        """Return whether a pair nearly equals an earlier one; store it if not."""
        signature = self._signature(normalise(source) + "\0" + normalise(target))
        mixed = signature.reshape(_BANDS, -1).astype(np.uint64) * self._multipliers
        slots = (mixed.sum(1) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - 18)).astype(np.int64)
        candidates = np.unique(self._last[self._bands, slots])
        candidates = candidates[candidates >= 0]
        if len(candidates) and (self._signatures[candidates] == signature).mean(1).max() >= self.share:
            return True
        place = self._count % _PAIRS_REMEMBERED
        self._signatures[place] = signature
        self._last[self._bands, slots] = place
        self._count += 1
        return False

    def _signature(self, text: str) -> np.ndarray:
        raw = text.encode("utf-8", "surrogatepass")
        starts = range(max(1, len(raw) - _GRAM + 1))
        grams = {hash_texts(text)} if self.share == 1 else {crc32(raw[start : start + _GRAM]) for start in starts}
        hashes = np.fromiter(grams, np.uint64, len(grams))
        return np.asarray(((hashes * self._factors + self._offsets) >> np.uint64(32)).min(1), np.uint32)
