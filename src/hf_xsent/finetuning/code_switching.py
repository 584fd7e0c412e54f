"""Switch fine-tuning data between languages and English (PPA, section 2.3).

Each pair (a, b) in another language becomes two pairs of the same batch: (a in English, b) and (a, b in English).
This needs the same data in English.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from hf_xsent.data.benchmarks.inference import InferencePair, check_parallel
from hf_xsent.data.benchmarks.questions import Question, pair_by_id
from hf_xsent.errors import RecipeError

Record = TypeVar("Record")


def switch_inference(
    sources: Mapping[str, str], records: Mapping[str, Sequence[InferencePair]]
) -> dict[str, list[tuple[InferencePair, ...]]]:
    """Switch the pairs of each language except English; ``sources`` has each language's files, for error messages."""
    english = _english(records)
    switched: dict[str, list[tuple[InferencePair, ...]]] = {}
    for language in [code for code in records if code != "en"]:
        pairs = records[language]
        check_parallel(sources["en"], english, sources[language], pairs)
        switched[language] = [
            (replace(pair, premise=in_english.premise), replace(pair, hypothesis=in_english.hypothesis))
            for in_english, pair in zip(english, pairs, strict=True)
        ]
    return switched


def switch_questions(
    sources: Mapping[str, str], records: Mapping[str, Sequence[Question]]
) -> dict[str, list[tuple[Question, ...]]]:
    """Switch questions (a) and contexts (b); the answers are those of the context."""
    all_english = _english(records)
    switched: dict[str, list[tuple[Question, ...]]] = {}
    for language in [code for code in records if code != "en"]:
        pairs = pair_by_id(sources[language], records[language], sources["en"], all_english)
        switched[language] = [
            (replace(question, question=english.question), replace(english, question=question.question))
            for question, english in pairs
        ]
    return switched


def _english(records: Mapping[str, Sequence[Record]]) -> Sequence[Record]:
    if "en" not in records or len(records) == 1:
        raise RecipeError(
            "code-switching needs the training data in English and in translation: give --train en=… de=… and so on"
        )
    return records["en"]
