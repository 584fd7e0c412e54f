"""F1 and exact match of extractive answers, with the normalisations of SQuAD's and MLQA's own evaluation scripts."""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from hf_xsent.data.benchmarks.questions import QuestionSet

# MLQA's articles. Of its Arabic rule the first branch can never match; the second takes the letters out anywhere.
_MLQA_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "ar": r"\sال^|ال",
    "hi": None,
    "zh": None,
}
_HAN = re.compile("([\u4e00-\u9fa5])")

Normalize = Callable[[str], list[str]]


@dataclass(frozen=True)
class AnswerScores:
    """Of one test set, in percent."""

    f1: float
    exact_match: float
    questions: int


def squad_words(text: str) -> list[str]:
    """As SQuAD 1.1, and so XQuAD, in every language: ASCII punctuation and English articles go.

    >>> squad_words("The U.S. — an island")
    ['us', '—', 'island']
    """
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def mlqa_words(language: str) -> Normalize:
    """As MLQA, by the language of the context: punctuation of all scripts and the language's articles go.

    >>> mlqa_words("de")("Das „Haus“ am See."), mlqa_words("zh")("2008年 Games")
    (['haus', 'am', 'see'], ['2008', '年', 'games'])
    """
    articles = _MLQA_ARTICLES[language]

    def words(text: str) -> list[str]:
        kept = "".join(character for character in text.lower() if character not in _punctuation())
        if articles is not None:
            kept = re.sub(articles, " ", kept)
        return (_HAN.sub(r" \1 ", kept) if language == "zh" else kept).split()

    return words


def normalization(questions: QuestionSet) -> Normalize:
    """What the official script of this test set does."""
    return mlqa_words(questions.context_language) if questions.benchmark == "mlqa" else squad_words


def score_answers(questions: QuestionSet, answers: Mapping[str, str]) -> AnswerScores:
    """Each answer against the gold one that suits it best; a question without an answer counts as wrong."""
    words, f1, exact = normalization(questions), 0.0, 0.0
    for one in questions.questions:
        given = words(answers.get(one.id, ""))
        golds = [words(text) for _, text in one.answers]
        f1 += max(token_f1(given, gold) for gold in golds) if one.id in answers else 0.0
        exact += given in golds if one.id in answers else 0.0
    count = len(questions.questions)
    return AnswerScores(100 * f1 / count, 100 * exact / count, count)


def token_f1(given: list[str], gold: list[str]) -> float:
    """The harmonic mean of precision and recall of the words, as multisets; 0 where none is shared.

    >>> token_f1(["a", "b"], ["b", "c", "d"])
    0.4
    """
    shared = (Counter(given) & Counter(gold)).total()
    return 2 * shared / (len(given) + len(gold)) if shared else 0.0


@cache
def _punctuation() -> frozenset[str]:
    everything = map(chr, range(sys.maxunicode))
    return frozenset(one for one in everything if unicodedata.category(one).startswith("P")) | {*string.punctuation}
