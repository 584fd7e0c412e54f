"""Answer retrieval and retention against slow counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hf_xsent import evaluate
from hf_xsent.data.benchmarks.answers import AnswerSet, load_answers
from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.errors import DataError
from hf_xsent.evaluation.answer_retrieval import AnswerRetrievalTask
from hf_xsent.evaluation.report import Report
from hf_xsent.evaluation.retention import RetentionTask
from hf_xsent.evaluation.similarity import rank_correlation
from hf_xsent.evaluation.task import Start
from hf_xsent.evaluation.translation_retrieval import unit

QUESTIONS, CODES = 5, ("de", "en", "fr")


def _sets() -> list[AnswerSet]:
    """Three languages with 7, 8 and 9 sentences each, of which five are answers."""
    sets = []
    for number, code in enumerate(CODES):
        names = [str(place) for place in range(QUESTIONS)]
        answers = [(place + number) % (7 + number) for place in range(QUESTIONS)]
        sentences = [f"{code} sentence {place}" for place in range(7 + number)]
        sets.append(AnswerSet(code, names, [f"{code} question {name}" for name in names], answers, sentences))
    return sets


class Random:
    """Embed texts at random, near to the answers of the questions, and by their prompts."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.roles = seed, set[str]()

    def as_role(self, role: str, texts: list[str]) -> np.ndarray:
        self.roles.add(role)
        rows = []
        for text in texts:
            code = text.split()[0]
            generators = [
                np.random.default_rng([seed, *name.encode()]) for seed, name in ((7, code), (self.seed, text))
            ]
            rows.append(sum(generator.standard_normal(8) for generator in generators))
        return np.array(rows, dtype=np.float32)

    def __call__(self, texts: list[str]) -> np.ndarray:
        return self.as_role("", texts)


def test_figures_are_those_of_the_whole_ranking() -> None:
    task, encode = AnswerRetrievalTask(_sets()), Random()
    scores = task.score(encode)
    assert encode.roles == {"query", "document"}
    pool = [(one.language, place, text) for one in task.sets for place, text in enumerate(one.sentences)]
    vectors = unit(encode([text for *_, text in pool]))
    for test_set in task.sets:
        expected = []
        for number, question in enumerate(unit(encode(test_set.questions))):
            relevant = {(one.language, one.answers[number]) for one in task.sets}
            ranking = [pool[place][:2] for place in np.argsort(-(vectors @ question))]
            ranks = sorted(1 + ranking.index(answer) for answer in relevant)
            precision = np.mean([(place + 1) / rank for place, rank in enumerate(ranks)])
            within = [place for language, place in ranking if language == test_set.language]
            own = np.mean([language == test_set.language for language, _ in ranking[:10]])
            first = next(language for language, place in ranking if (language, place) in relevant)
            reciprocal = 1 / (1 + within.index(test_set.answers[number]))
            expected.append([precision, reciprocal, own, first == test_set.language])
        figures = scores.languages[test_set.language]
        np.testing.assert_allclose(scores.outcomes.rows[test_set.language], expected)
        names = ("map", "mrr", "own", "preference")
        assert [figures[name] for name in names] == pytest.approx((100 * np.mean(expected, axis=0)).tolist())
        assert figures[f"among {test_set.language}"] == pytest.approx(figures["mrr"])


def test_sentences_as_near_as_an_answer_are_wrong_unless_they_are_its_text() -> None:
    """So that an encoder without differences, such as the first token's input embedding, finds nothing."""
    sets = _sets()
    sts = PairSet("en-en", ["a", "b"], ["b", "a"], [1.0, 2.0])
    constant = AnswerRetrievalTask(sets).score(lambda texts: np.ones((len(texts), 8), dtype=np.float32))
    of_retention = RetentionTask([sts, *sets]).score(lambda texts: np.ones((len(texts), 8), dtype=np.float32))
    for size, one in zip((7, 8, 9), sets, strict=True):
        figures, wrong = constant.languages[one.language], 7 + 8 + 9 - 3
        assert figures["mrr"] == pytest.approx(100 / size)
        assert figures["map"] == pytest.approx(100 * np.mean([right / (right + wrong) for right in (1, 2, 3)]))
        assert of_retention.languages[f"XQuAD-R {one.language}"]["score"] == pytest.approx(100 / size)
    same = [replace(one, sentences=["one text"] * len(one.sentences)) for one in sets]
    assert AnswerRetrievalTask(same).score(Random()).groups["all"]["map"] == 100


def test_a_pool_without_the_answers_of_other_languages_is_easier() -> None:
    scores = [AnswerRetrievalTask(sets).score(Random()).languages["en"] for sets in (_sets(), _sets()[1:2])]
    assert scores[1]["map"] == pytest.approx(scores[0]["mrr"])


# Retention


def test_retention_is_similarity_and_retrieval_within_a_language_and_what_stayed_of_the_start() -> None:
    sentences = [f"en {number}" for number in range(12)]
    sts = PairSet("en-en", sentences, sentences[::-1], [float(number % 5) for number in range(12)])
    before, after = Random(), Random(seed=1)
    task = RetentionTask([sts, *_sets()])
    alone = task.score(after)
    assert "cosine" not in alone.languages["STS en"]
    scores = task.beside(Start("before", before)).score(after)
    first, second = (unit(after(side)) for side in (sts.sources, sts.targets))
    assert scores.languages["STS en"]["score"] == pytest.approx(
        rank_correlation((first * second).sum(1), np.array(sts.gold))
    )
    within = AnswerRetrievalTask(_sets()).score(after).languages["de"]["mrr"]
    assert scores.languages["XQuAD-R de"]["score"] == pytest.approx(within)
    old, new = (unit(encode(_sets()[0].questions)) for encode in (before, after))
    assert scores.languages["XQuAD-R de"]["cosine"] == pytest.approx(float((old * new).sum(1).mean()), abs=1e-6)
    assert scores.languages["XQuAD-R de"]["neighbours"] == 100  # of five questions, four are neighbours
    assert {*scores.groups} == {"STS", "XQuAD-R", "all"}
    same = task.beside(Start("after", after)).score(after).groups
    assert (same["all"]["cosine"], same["XQuAD-R"]["neighbours"]) == (pytest.approx(1), 100)
    for name in ("STS en", "STS", "all"):  # only questions are searched
        assert "neighbours" not in (scores.languages | scores.groups)[name]


class Prompted:
    """A model with the methods of SentenceTransformer, which notes what it encodes with which."""

    def __init__(self) -> None:
        self.calls: dict[str, list[str]] = {}

    def _encode(self, method: str, texts: list[str]) -> np.ndarray:
        self.calls.setdefault(method, []).extend(texts)
        return Random()(texts)

    def encode(self, texts: list[str], **_: bool) -> np.ndarray:
        return self._encode("encode", texts)

    def encode_query(self, texts: list[str]) -> np.ndarray:
        return self._encode("encode_query", texts)

    def encode_document(self, texts: list[str]) -> np.ndarray:
        return self._encode("encode_document", texts)


def test_a_model_encodes_questions_and_passages_by_its_methods_for_them() -> None:
    model, task = Prompted(), AnswerRetrievalTask(_sets())
    assert evaluate(model, [task]).reports[0].languages == Report.of(task, {}, task.score(Random())).languages
    assert {*model.calls} == {"encode_query", "encode_document"}
    assert {*model.calls["encode_query"]} == {text for one in task.sets for text in one.questions}


# XQuAD-R


def _write(folder: Path, code: str, breaks: list[list[int]], name: str = "1") -> None:
    answer = {"answer_start": 12, "text": "It"}
    paragraph = {
        "context": "Ada thinks. It runs.",
        "sentence_breaks": breaks,
        "qas": [{"id": name, "question": "What runs?", "answers": [answer]}],
    }
    (folder / f"{code}.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph] * 2}]}), encoding="utf-8")


def test_answers_are_the_sentences_in_which_they_begin(tmp_path: Path) -> None:
    for code in ("de", "en"):
        _write(tmp_path, code, [[0, 11], [12, 20]])
    german, english = load_answers(tmp_path)
    assert (german.language, german.answers) == ("de", [1, 3]) and english.ids == ["1", "1"]
    assert german.sentences == ["Ada thinks.", "It runs."] * 2
    _write(tmp_path, "de", [[0, 11], [12, 20]], name="2")
    with pytest.raises(DataError, match=r"en.json has other questions than .*de.json"):
        load_answers(tmp_path)
    _write(tmp_path, "de", [[0, 11]])
    with pytest.raises(DataError, match=r"de.json: not in the format of XQuAD-R .*each answer begins in one sentence"):
        load_answers(tmp_path, ["de"])


def test_the_real_files_have_the_candidates_of_the_paper(assets: Path) -> None:
    sets = load_answers(assets / "data" / "xquad_r")
    assert len(sets) == 11 and {len(one.questions) for one in sets} == {1190}
    assert sum(len(one.sentences) for one in sets) == 13014
