"""Extractive question answering in SQuAD's format: SQuAD, MLQA, XQuAD and TyDiQA, all read into the same records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import open_file, strip_compression
from hf_xsent.data.readers.hub import hub_rows
from hf_xsent.errors import DataError
from hf_xsent.files import is_hub_id

MLQA_LANGUAGES = ("ar", "de", "en", "es", "hi", "vi", "zh")
XQUAD_LANGUAGES = ("ar", "de", "el", "en", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")


@dataclass(frozen=True)
class Question:
    """A question, the context that holds its answers, and these with the character at which they start."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class QuestionSet:
    """One test set: the languages of its contexts and questions."""

    benchmark: str  # mlqa or xquad
    context_language: str
    question_language: str
    questions: list[Question]

    @property
    def name(self) -> str:
        """``de`` where both are German (XLT), ``de-en`` for English questions on German contexts (G-XLT)."""
        same = self.context_language == self.question_language
        return self.context_language if same else f"{self.context_language}-{self.question_language}"


def load_questions(source: str | PathLike[str], split: str = "train") -> list[Question]:
    """Load a file in SQuAD's format, plain or compressed, or a data set on the Hub (``rajpurkar/squad``).

    Every answer must stand in its context where it says: a question that breaks this is named.
    """
    source = fspath(source)
    if Path(source).is_file():
        questions = list(_squad_questions(Path(source)))
    elif is_hub_id(source, owner=True):
        questions = list(_hub_questions(source, split))
    else:
        raise DataError(f"no such file: {source}; give a file in SQuAD's format, or a Hub id such as rajpurkar/squad")
    if not questions:
        raise DataError(f"{source} holds no questions")
    return questions


def load_mlqa(source: str | PathLike[str], split: str = "test", generalized: bool = False) -> list[QuestionSet]:
    """Load MLQA, from a folder of files ``test-context-de-question-en.json`` or from ``facebook/mlqa`` on the Hub.

    Question and context are of one language (XLT), or with ``generalized`` of any two that there are (G-XLT).
    """
    pattern = rf"{split}-context-(?P<context>..)-question-(?P<question>..)\.json"
    hub = [(context, question) for context in MLQA_LANGUAGES for question in MLQA_LANGUAGES]
    split = {"dev": "validation"}.get(split, split)
    sets = _load_sets(
        "mlqa",
        source,
        split,
        pattern,
        hub,
        lambda *pair: f"mlqa.{pair[0]}.{pair[1]}",
        lambda a, b: generalized or a == b,
    )
    for language in chain.from_iterable((one.context_language, one.question_language) for one in sets):
        if language not in MLQA_LANGUAGES:
            raise DataError(
                f"{fspath(source)} has files of {language!r}, but MLQA is in {', '.join(MLQA_LANGUAGES)} and knows how "
                "to compare answers in these alone: move such files elsewhere"
            )
    return sets


def load_xquad(source: str | PathLike[str]) -> list[QuestionSet]:
    """Load XQuAD, from a folder of files ``xquad.de.json`` or from ``google/xquad`` on the Hub."""
    pattern = r"xquad\.(?P<context>..)\.json"
    hub = [(language, language) for language in XQUAD_LANGUAGES]
    return _load_sets("xquad", source, "validation", pattern, hub, lambda one, _: f"xquad.{one}", lambda *_: True)


def paired_by_id(
    first: str, questions: Sequence[Question], second: str, others: Sequence[Question]
) -> list[tuple[Question, Question]]:
    """Each question with its translation in the other file, which has its id and may have more questions."""
    known = {one.id: one for one in others}
    for one in questions:
        if one.id not in known:
            raise DataError(
                f"question {one.id!r} of {first} has no translation in {second}: code-switching needs one under its id"
            )
    return [(one, known[one.id]) for one in questions]


def _load_sets(
    benchmark: str,
    source: str | PathLike[str],
    split: str,
    pattern: str,
    hub: Iterable[tuple[str, str]],
    config: Callable[[str, str], str],
    wanted: Callable[[str, str], bool],
) -> list[QuestionSet]:
    """The files of a folder that fit the pattern, or the configs of a data set on the Hub."""
    folder, name = Path(source), fspath(source)
    if folder.is_dir():
        places = {}
        for path in sorted(folder.iterdir()):
            match = re.fullmatch(pattern, strip_compression(path.name))
            if match:
                context = match["context"]
                places[context, match.groupdict().get("question", context)] = str(path)
        if not places:
            raise DataError(f"{folder} has no files of {benchmark} named like {pattern}; name their folder")
    elif is_hub_id(name, owner=True):
        places = {pair: f"{name}:{config(*pair)}" for pair in hub}
    else:
        raise DataError(f"no such folder: {name}; give the folder of the files of {benchmark}, or a Hub id")
    return [
        QuestionSet(benchmark, *pair, load_questions(place, split)) for pair, place in places.items() if wanted(*pair)
    ]


def _squad_questions(path: Path) -> Iterator[Question]:
    try:
        with open_file(path) as file:
            articles = json.load(file)["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for one in paragraph["qas"]:
                    answers = [(answer["answer_start"], answer["text"]) for answer in one["answers"]]
                    yield _question(str(path), one, paragraph["context"], answers)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not in SQuAD's format ({_reason(error)}); it has data, paragraphs, context and qas"
        ) from error


def _hub_questions(source: str, split: str) -> Iterator[Question]:
    for record in hub_rows(source, split):
        try:
            answers = list(zip(record["answers"]["answer_start"], record["answers"]["text"], strict=True))
            yield _question(source, record, record["context"], answers)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{source}: a record is not as SQuAD's ({_reason(error)}); it needs id, question, context and answers, "
                "with as many texts as starts"
            ) from error


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _question(place: str, record: Mapping[str, Any], context: str, answers: list[tuple[Any, Any]]) -> Question:
    name = str(record["id"])
    if not str(record["question"]).strip():
        raise DataError(f"{place}: question {name!r} is empty; mend it or leave it out")
    if not answers:
        raise DataError(f"{place}: question {name!r} has no answer, as SQuAD 2 has: keep those that are answered")
    for start, text in answers:
        typed = isinstance(start, int) and isinstance(text, str)
        if not typed or not text.strip() or start < 0 or context[start : start + len(text)] != text:
            raise DataError(f"{place}: question {name!r}: the answer {text!r} does not stand at character {start} of "
                            "its context; mend the file")  # fmt: skip
    return Question(name, str(record["question"]), context, tuple(answers))
