from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hf_xsent.data.benchmarks.inference import InferencePair, check_parallel, load_inference, load_xnli
from hf_xsent.errors import DataError

PAIRS = [InferencePair("A dog runs.", "An animal moves.", 0), InferencePair("A dog runs.", "A cat sleeps.", 2)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.tsv", "A dog runs.\tAn animal moves.\tentailment\nA dog runs.\tA cat sleeps.\tcontradiction\n"),
        ("mt.tsv", "premise\thypo\tlabel\nA dog runs.\tAn animal moves.\tentailment\n"
                   "A dog runs.\tA cat sleeps.\tcontradictory\n"),
        ("xnli.tsv", "language\tgold_label\tsentence1\tsentence2\nen\tentailment\tA dog runs.\tAn animal moves.\n"
                     "en\tcontradiction\tA dog runs.\tA cat sleeps.\n"),
        ("sick.txt", "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
                     "1\tA dog runs.\tAn animal moves.\t4.1\tENTAILMENT\n"
                     "2\tA dog runs.\tA cat sleeps.\t2\tCONTRADICTION\n"),
        ("multinli.jsonl",
         '{"sentence1": "A dog runs.", "sentence2": "An animal moves.", "gold_label": "entailment"}\n'
         '{"sentence1": "A", "sentence2": "B", "gold_label": "-"}\n'
         '{"sentence1": "A dog runs.", "sentence2": "A cat sleeps.", "gold_label": "contradiction"}\n'),
    ],
)  # fmt: skip
def test_every_layout_gives_the_same_pairs(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert load_inference(tmp_path / name) == load_inference(tmp_path / f"{name}.gz") == PAIRS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\tentailed\n", r"bad.tsv:1: unknown label 'entailed'.*did you mean 'entailment'"),
        ("a\tb\tneutral\na\tb\t3\n", "bad.tsv:2: unknown label '3'; use entailment, neutral, contradiction"),
        ("a\tb\n", "bad.tsv:1: 2 columns instead of 3"),
        ("\tb\tneutral\n", "bad.tsv:1: the premise is empty"),
        ("", "bad.tsv has no pairs"),
    ],
)
def test_a_bad_record_is_named_by_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        load_inference(tmp_path / "bad.tsv")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("side", ["premise", "hypothesis"])
def test_a_text_that_is_null_is_not_the_word_none(tmp_path: Path, side: str) -> None:
    record = {"premise": "a", "hypothesis": "b", "label": 1} | {side: None}
    (tmp_path / "bad.jsonl").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DataError, match=f"bad.jsonl:1: the {side} is empty or not text"):
        load_inference(tmp_path / "bad.jsonl")


def test_a_bad_json_line_and_missing_columns_raise(tmp_path: Path) -> None:
    for text, message in (("{", "bad.jsonl:1: not JSON"), ('{"premise": "a"}', "bad.jsonl:1: no columns premise")):
        (tmp_path / "bad.jsonl").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            load_inference(tmp_path / "bad.jsonl")


@pytest.mark.parametrize("others", [PAIRS[:1], PAIRS[::-1]])
def test_files_with_other_labels_are_not_parallel(others: list[InferencePair]) -> None:
    with pytest.raises(DataError, match=r"the labels of en.tsv \(2 pairs\) and de.tsv \(\d\) differ"):
        check_parallel("en.tsv", PAIRS, "de.tsv", others)


XNLI = (
    "language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2\tpairID\n"
    "de\tentailment\t\tEin Hund läuft.\tEin Tier bewegt sich.\t1\n"
    "en\tentailment\t\tA dog runs.\tAn animal moves.\t1\n"
    "en\tcontradiction\t\tA dog runs.\tA cat sleeps.\t2\n"
)


def test_xnli_as_published_is_split_by_its_language_column(tmp_path: Path) -> None:
    (tmp_path / "xnli.test.tsv").write_text(XNLI, encoding="utf-8")
    german = [InferencePair("Ein Hund läuft.", "Ein Tier bewegt sich.", 0)]
    assert load_xnli(tmp_path) == {"de": german, "en": PAIRS}
    assert load_xnli(tmp_path, ["en"]) == {"en": PAIRS}
    with pytest.raises(DataError, match="has no 'fr', only de, en"):
        load_xnli(tmp_path, ["fr"])


@pytest.mark.parametrize("name", ["xnli.test.tsv", "xnli.test.jsonl"])
def test_of_a_file_in_several_languages_the_one_asked_for_is_taken(tmp_path: Path, name: str) -> None:
    path, text = tmp_path / name, XNLI
    if name.endswith(".jsonl"):
        header, *rows = (line.split("\t") for line in XNLI.splitlines())
        text = "".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    assert load_inference(path, "en") == PAIRS
    with pytest.raises(DataError, match=f"{name} has no 'fr', only de, en"):
        load_inference(path, "fr")
    with pytest.raises(DataError, match=f"{name} has several languages, de, en"):
        load_inference(path)


def test_what_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder: .*nothing.tsv"):
        load_inference(tmp_path / "nothing.tsv")
    with pytest.raises(DataError, match="no files such as xnli.test.tsv or test-de.tsv"):
        load_xnli(tmp_path)
    (tmp_path / "test-de.tsv").write_text("a\tb\tneutral\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no 'fr', only de"):
        load_xnli(tmp_path, ["fr"])


def test_the_real_xnli_and_sick_are_read(assets: Path) -> None:
    found = load_xnli(assets / "data/xnli", ["de", "th"])
    assert {name: len(pairs) for name, pairs in found.items()} == {"de": 5010, "th": 5010}
    check_parallel("de", found["de"], "th", found["th"])
    counts = [sum(pair.label == label for pair in found["de"]) for label in range(3)]
    assert counts == [1670] * 3
    assert len(load_inference(assets / "data/sick/SICK_train.txt")) == 4500
