"""MLQA's and SQuAD's scores, worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.data.benchmarks.questions import Question, QuestionSet, load_mlqa, load_xquad
from hf_xsent.evaluation.question_answering import mlqa_words, score_answers, squad_words, token_f1


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "The “Old” Bridge, a bridge!", ["old", "bridge", "bridge"]),
        ("es", "El Niño y las niñas: ¿unos?", ["niño", "y", "niñas"]),
        ("de", "Der Große Kurfürst – dem Volke", ["große", "kurfürst", "volke"]),
        ("de", "Indes", ["indes"]),  # the article is a part of a word only
        ("vi", "Những người của làng", ["người", "làng"]),
        ("hi", "दिल्ली, भारत।", ["दिल्ली", "भारत"]),  # the danda is punctuation
        ("ar", "الكتاب والقلم", ["كتاب", "و", "قلم"]),  # wherever the letters stand, as in the script
        ("zh", "1949年10月,《北京》 Radio FM", ["1949", "年", "10", "月", "北", "京", "radio", "fm"]),
        ("zh", "ＡＢＣ", ["ａｂｃ"]),  # wide letters are no Han
        ("zh", "㐀龥龦", ["㐀", "龥", "龦"]),  # of these only U+9FA5 is cut out, which sets the others free
    ],
)
def test_mlqa_normalises_by_language(language: str, text: str, words: list[str]) -> None:
    assert mlqa_words(language)(text) == words


def test_squad_takes_away_ascii_punctuation_and_english_articles_only() -> None:
    assert squad_words("An «Hund», the der!") == ["«hund»", "der"]


def _set(benchmark: str, language: str, gold: dict[str, list[str]]) -> QuestionSet:
    questions = [
        Question(name, "?", " ".join(texts), tuple((0, text) for text in texts)) for name, texts in gold.items()
    ]
    return QuestionSet(benchmark, language, language, questions)


def test_scores_are_means_of_the_best_gold_answer() -> None:
    questions = _set("mlqa", "de", {"a": ["das Haus am See", "See"], "b": ["1871"], "c": ["rot", "blau"]})
    found = score_answers(questions, ["Haus am Meer", "1871.", None])
    # a: {haus, am, meer} against {haus, am, see}: 2 of 3 and 2 of 3; b is right; c is not answered.
    assert found.f1 == pytest.approx(100 * (2 / 3 + 1 + 0) / 3)
    assert found.exact_match == pytest.approx(100 / 3)
    assert found.questions == 3


def test_the_same_answers_score_differently_by_the_two_scripts() -> None:
    gold, answers = {"a": ["北京大学"]}, ["北京"]
    assert score_answers(_set("mlqa", "zh", gold), answers).f1 == pytest.approx(100 * 2 * 1 * 0.5 / 1.5)
    assert score_answers(_set("xquad", "zh", gold), answers).f1 == 0.0


def test_words_count_as_often_as_they_stand() -> None:
    assert token_f1(["a", "a", "b"], ["a", "b", "b"]) == pytest.approx(2 / 3)
    assert token_f1([], ["a"]) == 0.0


def test_an_answer_of_articles_alone_is_no_word() -> None:
    found = score_answers(_set("mlqa", "en", {"a": ["the"]}), ["a"])
    assert (found.f1, found.exact_match) == (0.0, 100.0)  # as the script: equal, but without a common word


def test_the_gold_answers_of_the_real_files_are_right(assets: Path) -> None:
    sets = [*load_mlqa(assets / "data/mlqa", "dev", generalized=True), *load_xquad(assets / "data/xquad")]
    assert {one.name for one in sets if one.benchmark == "mlqa"} >= {"ar", "de", "en", "es", "hi", "vi", "zh", "de-en"}
    assert len([one for one in sets if one.benchmark == "xquad"]) == 12
    for one in sets:
        found = score_answers(one, [question.answers[0][1] for question in one.questions])
        assert found.exact_match == 100.0
        assert found.f1 > 99
        assert score_answers(one, [None] * len(one.questions)).f1 == 0.0
