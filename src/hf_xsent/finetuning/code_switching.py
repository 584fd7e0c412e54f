"""Code-switching of fine-tuning data with English (PPA, section 2.3).

A pair (a, b) in another language becomes (a in English, b) and (a, b in English), a group that stays in one batch; the
pair itself is left out. It takes the English translation of the data.
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
    """The pairs of each language other than English, switched; ``sources`` says where each language comes from."""
    english = _english(records)
    switched: dict[str, list[tuple[InferencePair, ...]]] = {}
    for language, pairs in records.items():
        if language != "en":
            check_parallel(sources["en"], english, sources[language], pairs)
            switched[language] = [
                (replace(there, premise=here.premise), replace(there, hypothesis=here.hypothesis))
                for here, there in zip(english, pairs, strict=True)
            ]
    return switched


def switch_questions(
    sources: Mapping[str, str], records: Mapping[str, Sequence[Question]]
) -> dict[str, list[tuple[Question, ...]]]:
    """The same for questions (a) and their contexts (b); the answers are those of the context."""
    english = _english(records)
    switched: dict[str, list[tuple[Question, ...]]] = {}
    for language, questions in records.items():
        if language != "en":
            pairs = pair_by_id(sources[language], questions, sources["en"], english)
            switched[language] = [
                (replace(there, question=here.question), replace(here, question=there.question))
                for there, here in pairs
            ]
    return switched


def _english(records: Mapping[str, Sequence[Record]]) -> Sequence[Record]:
    if "en" not in records or len(records) == 1:
        raise RecipeError(
            "code-switching needs the training data in English and in translation: give --train en=… de=… and so on"
        )
    return records["en"]
