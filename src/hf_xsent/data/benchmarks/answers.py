"""Read XQuAD-R: questions, and the sentences that answer them, in several languages (LAReQA, arXiv:2004.05484)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from hf_xsent.data.benchmarks.sets import find_sets
from hf_xsent.data.readers.compression import open_file, parse_json
from hf_xsent.data.readers.hub import select_names
from hf_xsent.errors import DataError


@dataclass(frozen=True)
class AnswerSet:
    """The questions and the candidate sentences of one language; sentence ``answers[i]`` answers question i.

    Question i of every language is the same question.
    """

    language: str
    ids: list[str]
    questions: list[str]
    answers: list[int]
    sentences: list[str]


def load_answers(source: str | PathLike[str], languages: Iterable[str] | None = None) -> list[AnswerSet]:
    """Load some languages, or all, of a folder of files ``xquad_r.de.json`` or ``de.json``: XQuAD with sentences."""
    places = find_sets(source, r"(?:xquad_r\.)?(..)\.json", "xquad_r.de.json", {})
    if not places:
        raise DataError(f"{source}: give a folder of files such as xquad_r.de.json")
    names = select_names(source, places, languages)
    sets = [_read(Path(places[name]), name) for name in names]
    for other in sets[1:]:
        if other.ids != sets[0].ids:
            raise DataError(
                f"{places[other.language]} has other questions than {places[sets[0].language]}: all languages need the "
                "same questions in the same order"
            )
    return sets


def _read(path: Path, language: str) -> AnswerSet:
    ids, questions, answers, sentences = list[str](), list[str](), list[int](), list[str]()
    try:
        with open_file(path) as file:
            articles = parse_json(file.read())["data"]
        for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
            breaks = paragraph["sentence_breaks"]
            for record in paragraph["qas"]:
                start = record["answers"][0]["answer_start"]
                (place,) = (place for place, (begin, end) in enumerate(breaks) if begin <= start < end)
                ids.append(str(record["id"]))
                questions.append(record["question"].strip())
                answers.append(len(sentences) + place)
            sentences += [paragraph["context"][begin:end].strip() for begin, end in breaks]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise DataError(
            f"{path}: not in the format of XQuAD-R ({error}): each paragraph needs context, sentence_breaks and qas, "
            "and each answer begins in one sentence"
        ) from error
    if not questions:
        raise DataError(f"{path} has no questions")
    return AnswerSet(language, ids, questions, answers, sentences)
