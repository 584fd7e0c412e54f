from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_xsent.data.benchmarks.questions import Question, load_mlqa, load_questions, load_xquad, pair_by_id
from hf_xsent.errors import DataError


def write_squad(path: Path, records: list[tuple[str, str, str, list[tuple[int, str]]]]) -> Path:
    """One paragraph a record: id, question, context, answers."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {"id": name, "question": question, "answers": [{"answer_start": a, "text": b} for a, b in answers]}
            ],
        }
        for name, question, context, answers in records
    ]
    path.write_text(json.dumps({"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
    return path


def test_questions_come_with_context_and_answers(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "a.json", [("1", "Who?", "Ada wrote it.", [(0, "Ada"), (0, "Ada wrote")])])
    assert load_questions(path) == [Question("1", "Who?", "Ada wrote it.", ((0, "Ada"), (0, "Ada wrote")))]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (("7", "Who?", "Ada wrote it.", [(1, "Ada")]), "question '7': the answer 'Ada' is not at character 1"),
        (("7", "Who?", "Ada wrote it.", [(0, "Eva")]), "question '7': the answer 'Eva' is not at character 0"),
        (("7", "Who?", "Ada wrote it.", [(-4, "it.")]), "is not at character -4"),
        (("7", "Who?", "Ada wrote it.", [(0, None)]), "question '7': the answer None is not at character 0"),
        (("7", "Who?", "It was 1843.", [(7, 1843)]), "question '7': the answer 1843 is not at character 7"),
        (("7", "Who?", "Ada wrote it.", [("0", "Ada")]), "question '7': the answer 'Ada' is not at character 0"),
        (("7", "Who?", "Ada wrote it.", []), "question '7' has no answer"),
        (("7", " ", "Ada wrote it.", [(0, "Ada")]), "question '7' is empty"),
        (("7", None, "Ada wrote it.", [(0, "Ada")]), "question '7' is empty or not text"),
    ],
)
def test_the_error_of_a_bad_question_has_file_and_id(tmp_path: Path, record: Any, message: str) -> None:
    path = write_squad(tmp_path / "bad.json", [record])
    with pytest.raises(DataError, match=f"bad.json: {message}" if message.startswith("question") else message) as error:
        load_questions(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"data": [{"paragraphs": [{"context": "a"}]}]}', '{"data": 1}'])
def test_what_is_not_in_squads_format_raises(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="bad.json: not in SQuAD's format"):
        load_questions(tmp_path / "bad.json")


def test_folders_of_mlqa_and_xquad_are_read_by_their_names(tmp_path: Path) -> None:
    record = ("1", "Who?", "Ada wrote it.", [(0, "Ada")])
    for name in ("dev-context-de-question-de", "dev-context-de-question-en", "test-context-es-question-es", "xquad.th"):
        write_squad(tmp_path / f"{name}.json", [record])
    assert [test_set.name for test_set in load_mlqa(tmp_path, "dev")] == ["de"]
    assert [test_set.name for test_set in load_mlqa(tmp_path, "dev", generalized=True)] == ["de", "de-en"]
    assert [test_set.name for test_set in load_mlqa(tmp_path)] == ["es"]
    assert [test_set.name for test_set in load_xquad(tmp_path)] == ["th"]
    with pytest.raises(DataError, match="no files such as train-context-de-question-en.json"):
        load_mlqa(tmp_path, "train")


def test_a_record_of_the_hub_with_more_starts_than_texts_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"answer_start": [0, 4], "text": ["Ada"]}
    record = {"id": "1", "question": "Who?", "context": "Ada wrote it.", "answers": answers}
    monkeypatch.setattr("hf_xsent.data.benchmarks.questions.hub_rows", lambda source, split: [record])
    with pytest.raises(DataError, match="^org/squad: not in SQuAD's format .*as many texts as starts$"):
        load_questions("org/squad")


def test_translations_are_found_by_id() -> None:
    one, other = Question("1", "Who?", "Ada.", ((0, "Ada"),)), Question("1", "Wer?", "Ada.", ((0, "Ada"),))
    assert pair_by_id("de", [other], "en", [Question("0", "?", "x", ((0, "x"),)), one]) == [(other, one)]
    with pytest.raises(DataError, match=r"question '1' of de.json has no translation in en.json"):
        pair_by_id("de.json", [other], "en.json", [])
    with pytest.raises(DataError, match=rf"en\.json has several questions with the id {other.id!r}"):
        pair_by_id("de.json", [other], "en.json", [one, one])
