"""Read extractive question answering in SQuAD's format: SQuAD, MLQA, XQuAD and TyDiQA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.sets import find_sets
from hf_xsent.data.readers.compression import open_file, parse_json
from hf_xsent.data.readers.hub import hub_rows, require_hub_id
from hf_xsent.errors import DataError

MLQA_LANGUAGES = ("ar", "de", "en", "es", "hi", "vi", "zh")
XQUAD_LANGUAGES = ("ar", "de", "el", "en", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")


@dataclass(frozen=True)
class Question:
    """A question, its context, and its answers, each as (index of its first character in the context, text)."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class QuestionSet:
    """A test set and the languages of its contexts and questions."""

    benchmark: str  # mlqa or xquad
    context_language: str
    question_language: str
    questions: list[Question]

    @property
    def name(self) -> str:
        """Return ``de`` if both are German (XLT), ``de-en`` for English questions on German contexts (G-XLT)."""
        same = self.context_language == self.question_language
        return self.context_language if same else f"{self.context_language}-{self.question_language}"


def load_questions(source: str | PathLike[str], split: str = "train") -> list[Question]:
    """Load a file in SQuAD's format, plain or compressed, or a data set on the Hub (``rajpurkar/squad``).

    A `DataError` is raised for an answer that is not at its character of the context.
    """
    path, place = Path(source), fspath(source)
    if not path.is_file():
        require_hub_id(source, "a file in SQuAD's format")
    try:
        records = _squad_records(path) if path.is_file() else hub_rows(place, split)
        questions = [_question(place, record) for record in records]
    except (ValueError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{place}: not in SQuAD's format ({reason}); each question needs id, question, context, and "
                        "answers with as many texts as starts") from error  # fmt: skip
    if not questions:
        raise DataError(f"{place} has no questions")
    return questions


def load_mlqa(source: str | PathLike[str], split: str = "test", generalized: bool = False) -> list[QuestionSet]:
    """Load MLQA, from a folder of files ``test-context-de-question-en.json`` or from ``facebook/mlqa`` on the Hub.

    Question and context are in the same language (XLT) or, with ``generalized``, in any two languages (G-XLT).
    """
    configs = {(first, second): f"mlqa.{first}.{second}" for first, second in product(MLQA_LANGUAGES, repeat=2)}
    files = rf"{split}-context-(..)-question-(..)\.json"
    places = find_sets(source, files, f"{split}-context-de-question-en.json", configs)
    wanted = [pair for pair in places if generalized or pair[0] == pair[1]]
    hub_split = "validation" if split == "dev" else split
    return [
        QuestionSet("mlqa", first, second, load_questions(places[first, second], hub_split)) for first, second in wanted
    ]


def load_xquad(source: str | PathLike[str]) -> list[QuestionSet]:
    """Load XQuAD, from a folder of files ``xquad.de.json`` or from ``google/xquad`` on the Hub."""
    configs = {language: f"xquad.{language}" for language in XQUAD_LANGUAGES}
    places = find_sets(source, r"xquad\.(..)\.json", "xquad.de.json", configs)
    return [QuestionSet("xquad", code, code, load_questions(place, "validation")) for code, place in places.items()]


def pair_by_id(
    first: str, questions: Sequence[Question], second: str, others: Sequence[Question]
) -> list[tuple[Question, Question]]:
    """Pair each question with its translation: the question of the other file with the same id."""
    known = {question.id: question for question in others}
    for place, of_side in ((first, questions), (second, others)):
        counts = Counter(question.id for question in of_side)
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise DataError(f"{place} has several questions with the id {repeated[0]!r}, which pairs translations: "
                            "make ids unique")  # fmt: skip
    for question in questions:
        if question.id not in known:
            raise DataError(f"question {question.id!r} of {first} has no translation in {second}; code-switching needs "
                            "a question with the same id")  # fmt: skip
    return [(question, known[question.id]) for question in questions]


def _squad_records(path: Path) -> Iterator[dict[str, Any]]:
    with open_file(path) as file:
        articles = parse_json(file.read())["data"]
    for article in articles:
        for paragraph in article["paragraphs"]:
            for record in paragraph["qas"]:
                answers = {key: [answer[key] for answer in record["answers"]] for key in ("answer_start", "text")}
                yield {**record, "context": paragraph["context"], "answers": answers}


def _question(place: str, record: Mapping[str, Any]) -> Question:
    name, context = str(record["id"]), record["context"]
    answers = tuple(zip(record["answers"]["answer_start"], record["answers"]["text"], strict=True))
    if not isinstance(record["question"], str) or not record["question"].strip():
        raise DataError(f"{place}: question {name!r} is empty or not text; fix or remove it")
    if not answers:
        raise DataError(f"{place}: question {name!r} has no answer, as in SQuAD 2; remove such questions")
    for start, text in answers:
        typed = isinstance(start, int) and isinstance(text, str)
        if not typed or not text.strip() or start < 0 or context[start : start + len(text)] != text:
            raise DataError(f"{place}: question {name!r}: the answer {text!r} is not at character {start} of its "
                            "context; fix the file")  # fmt: skip
    return Question(name, record["question"], context, answers)
