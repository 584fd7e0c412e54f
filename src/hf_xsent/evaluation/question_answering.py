"""Measure F1 and exact match of extractive answers, normalised as in the scripts of SQuAD and MLQA."""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from hf_xsent.data.benchmarks.questions import QuestionSet

# As in MLQA's script. The first alternative of its Arabic pattern never matches because of ^; the second removes the
# article's letters anywhere, even inside words.
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
    """Metrics of one test set, in percent."""

    f1: float
    exact_match: float
    questions: int


def squad_words(text: str) -> list[str]:
    """Split into lower-case words without ASCII punctuation and English articles: SQuAD's rule, in XQuAD too.

    >>> squad_words("The U.S. — an island")
    ['us', '—', 'island']
    """
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def mlqa_words(language: str) -> Normalize:
    """Return MLQA's splitter: words without punctuation of any script and without articles of the language.

    >>> mlqa_words("de")("Das „Haus“ am See."), mlqa_words("zh")("2008年 Games")
    (['haus', 'am', 'see'], ['2008', '年', 'games'])
    """
    articles = _MLQA_ARTICLES[language]

    def words(text: str) -> list[str]:
        text = "".join(character for character in text.lower() if character not in _punctuation())
        if articles is not None:
            text = re.sub(articles, " ", text)
        return (_HAN.sub(r" \1 ", text) if language == "zh" else text).split()

    return words


def score_answers(questions: QuestionSet, answers: Sequence[str | None]) -> AnswerScores:
    """Score the answer of each question; of several gold answers, the one with the highest score counts.

    A question without an answer scores 0.
    """
    words = mlqa_words(questions.context_language) if questions.benchmark == "mlqa" else squad_words
    f1, exact = 0.0, 0.0
    for question, text in zip(questions.questions, answers, strict=True):
        if text is not None:
            answer, golds = words(text), [words(gold) for _, gold in question.answers]
            f1 += max(token_f1(answer, gold) for gold in golds)
            exact += answer in golds
    count = len(questions.questions)
    return AnswerScores(100 * f1 / count, 100 * exact / count, count)


def token_f1(answer: list[str], gold: list[str]) -> float:
    """Return the harmonic mean of precision and recall of the words, as multisets; 0 without a common word.

    >>> token_f1(["a", "b"], ["b", "c", "d"])
    0.4
    """
    shared = (Counter(answer) & Counter(gold)).total()
    return 2 * shared / (len(answer) + len(gold)) if shared else 0.0


@cache
def _punctuation() -> frozenset[str]:
    characters = map(chr, range(sys.maxunicode))
    return frozenset(mark for mark in characters if unicodedata.category(mark).startswith("P")) | {*string.punctuation}
