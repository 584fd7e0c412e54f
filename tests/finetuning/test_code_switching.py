from __future__ import annotations

import pytest

from hf_xsent.data.benchmarks.inference import InferencePair
from hf_xsent.data.benchmarks.questions import Question
from hf_xsent.errors import DataError, RecipeError
from hf_xsent.finetuning.code_switching import switch_inference, switch_questions


def _pair(language: str, number: int) -> InferencePair:
    return InferencePair(f"premise {number} {language}", f"hypothesis {number} {language}", number % 3)


def test_each_pair_becomes_two_that_are_half_english() -> None:
    records = {language: [_pair(language, number) for number in range(2)] for language in ("en", "de", "sw")}
    switched = switch_inference(dict.fromkeys(records, "file"), records)
    assert switched["de"][0] == (
        InferencePair("premise 0 en", "hypothesis 0 de", 0),
        InferencePair("premise 0 de", "hypothesis 0 en", 0),
    )
    assert {language: len(groups) for language, groups in switched.items()} == {"de": 2, "sw": 2}  # no English pairs
    assert switched["sw"][1][0] == InferencePair("premise 1 en", "hypothesis 1 sw", 1)


def test_questions_keep_the_answers_of_their_context() -> None:
    english = Question("q", "Who wrote it?", "Ada wrote it.", ((0, "Ada"),))
    german = Question("q", "Wer schrieb es?", "Es schrieb Ada.", ((11, "Ada"),))
    switched = switch_questions({"en": "a", "de": "b"}, {"en": [english], "de": [german]})
    both = (
        Question("q", "Who wrote it?", "Es schrieb Ada.", ((11, "Ada"),)),
        Question("q", "Wer schrieb es?", "Ada wrote it.", ((0, "Ada"),)),
    )
    assert switched == {"de": [both]}


@pytest.mark.parametrize("languages", [["en"], ["de"], ["de", "fr"]])
def test_without_parallel_data_it_says_so(languages: list[str]) -> None:
    with pytest.raises(RecipeError, match="code-switching needs the training data in English and in translation"):
        switch_inference(dict.fromkeys(languages, "f"), {language: [_pair(language, 0)] for language in languages})


def test_unequal_files_are_errors() -> None:
    records = {"en": [_pair("en", 0)], "de": [_pair("de", 0), _pair("de", 1)]}
    with pytest.raises(DataError, match="labels of en.tsv .1 pairs. and de.tsv .2. differ"):
        switch_inference({"en": "en.tsv", "de": "de.tsv"}, records)
