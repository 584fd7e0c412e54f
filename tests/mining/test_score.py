from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_words import Words

from hf_xsent import load_bitext, mine_files, score_pairs
from hf_xsent.errors import DataError, ModelError, OutputError, RecipeError
from hf_xsent.mining import score

PAIRS = [("aab", "aab"), ("abc", "fff"), ("de\u00e9", "ddee")]


class Letters:
    """A model whose vector is how often each of the first letters occurs."""

    def encode(self, sentences: list[str]) -> np.ndarray:
        return np.array(
            [[1 + sentence.count(letter) for letter in "abcdef"] for sentence in sentences], dtype=np.float32
        )


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    return tmp_path / "pairs.tsv"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_every_pair_keeps_its_place_and_gets_its_cosine(pairs: Path, tmp_path: Path) -> None:
    scored = score_pairs(pairs, tmp_path / "scored.tsv", Letters())
    assert str(scored) == f"3 scored pairs are in {tmp_path / 'scored.tsv'}"
    rows = _rows(tmp_path / "scored.tsv")
    assert [(row["source"], row["target"]) for row in rows] == PAIRS
    sides = [Letters().encode(list(side)).astype(np.float64) for side in zip(*PAIRS, strict=True)]
    expected = (sides[0] * sides[1]).sum(1) / np.prod([np.linalg.norm(side, axis=1) for side in sides], axis=0)
    np.testing.assert_allclose([float(row["score"]) for row in rows], expected, atol=1e-5)


def test_a_model_given_as_an_object_has_its_device(pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="device applies to a model given by its folder"):
        score_pairs(pairs, tmp_path / "scored.tsv", Letters(), device="cpu")


def test_a_bad_line_raises_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nonly one\n")
    with pytest.raises(DataError, match="pairs.tsv:2"):
        score_pairs(tmp_path / "pairs.tsv", tmp_path / "scored.tsv", Letters())
    assert not list(tmp_path.rglob("*.tsv*/*.arrow")) and not (tmp_path / "scored.tsv").exists()


def test_pairs_whose_languages_are_not_stated_may_be_in_any_order(tmp_path: Path) -> None:
    pair = "It is cold this morning, and we eat bread.", "Heute Morgen ist es kalt, und wir essen Brot."
    assert str(score_pairs([pair] * 10, tmp_path / "scored.tsv", Letters())).startswith("10 scored pairs")
    with pytest.raises(DataError, match="^the de pairs: source and target, .* seem to be swapped"):
        score_pairs([pair] * 10, tmp_path / "scored.tsv", Letters(), language="de")


def test_an_output_in_the_folder_of_pairs_is_refused(tmp_path: Path) -> None:
    score_pairs([("ein Hund", "a dog"), ("eine Katze", "a cat")], tmp_path / "pairs" / "a.parquet", Letters())
    with pytest.raises(OutputError, match="would be read as a part of an input"):
        score_pairs(str(tmp_path / "pairs"), tmp_path / "pairs" / "b.parquet", Letters())


@pytest.mark.parametrize("pairs", [{"de": "p.tsv"}, "de=p.tsv"])
def test_a_language_before_the_pairs_is_refused(tmp_path: Path, pairs: Any) -> None:
    with pytest.raises(RecipeError, match="give 'de' as language, without de="):
        score_pairs(pairs, tmp_path / "scored.tsv", Letters())


def test_pairs_in_memory_of_another_language_are_named_and_not_listed(tmp_path: Path) -> None:
    pair = "Il fait froid ce matin, et nous mangeons du pain.", "It is cold this morning, and we eat bread."
    with pytest.raises(DataError, match="^the source side of the de pairs seems to be French, not German"):
        score_pairs([pair] * 10, tmp_path / "scored.tsv", Letters(), language="de", filter=True)
    (tmp_path / "fr.tsv").write_text("".join(["\t".join(pair) + "\n"] * 10), encoding="utf-8")
    with pytest.raises(DataError, match="seems to be French, not German"):  # as --filter alone
        score_pairs.run(
            [str(tmp_path / "fr.tsv"), "--model=m", f"--output={tmp_path}/o.tsv", "--language=de", "--filter"]
        )


@pytest.mark.parametrize("language", ["ru", "en-ru"])
def test_the_filter_knows_the_language_that_two_codes_name(tmp_path: Path, language: str) -> None:
    pairs = [("Собака бежит.", "The dog runs."), ("Кошка спит.", "The cat sleeps.")]
    rules = ["near_duplicates=null", "min_score=-1"]
    scored = score_pairs(pairs, tmp_path / "scored.tsv", Letters(), language=language, filter=rules)
    assert scored is not None and scored.report is not None and scored.pairs == 2
    assert [*scored.report.languages] == ["ru"]


def test_a_bitext_is_cleaned_in_its_target_language(tmp_path: Path) -> None:
    pair = "Es ist kalt.", "Сегодня холодно."
    russian = load_bitext({"de": [pair]}, target_language="ru", cleaning=None, cache_dir=tmp_path)
    scored = score_pairs(russian, tmp_path / "scored.tsv", Letters(), language="de", filter=["min_score=-1"])
    assert scored.pairs == 1


def test_filtered_pairs_have_no_excluded_sentence_among_their_negatives(tmp_path: Path) -> None:
    (tmp_path / "gold.txt").write_text("The dog sleeps.\n", encoding="utf-8")
    left = {"source": "Es ist kalt.", "target": "It is cold."}
    pair = left | {"target_negatives": ["the dog SLEEPS.", "It is warm."], "source_negatives": ["The dog sleeps."]}
    rules = [f"exclude={tmp_path}/gold.txt", "min_score=-1"]
    score_pairs([pair], tmp_path / "scored.jsonl", Letters(), language="de", filter=rules)
    (read,) = load_bitext({"de": str(tmp_path / "scored.jsonl")}, cleaning=None, cache_dir=tmp_path / "cache")
    assert read == left | {"target_negatives": ["It is warm."], "language": "de"}


def test_a_column_of_languages_that_is_not_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [{"source": "Es ist kalt.", "target": "It is cold.", "language": code} for code in ("de", "fr")]
    for language, told in (("und", True), ("de", False)):
        caplog.clear()
        score_pairs(records, tmp_path / "scored.jsonl", Letters(), language=language)
        assert ("its column of languages is not in the output: run once for each language" in caplog.text) == told


@pytest.mark.parametrize("content", ["", "source\ttarget\n"])
def test_a_file_without_pairs_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "pairs.tsv").write_text(content)
    with pytest.raises(DataError, match=r"pairs\.tsv has no pairs; check its format and columns"):
        score_pairs(tmp_path / "pairs.tsv", tmp_path / "scored.tsv", Letters())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "cannot be written"),
        ("pairs.tsv", "pairs.tsv would overwrite an input"),
    ],
)
def test_an_unwritable_output_raises_before_a_model_is_opened(
    pairs: Path, tmp_path: Path, name: str, message: str
) -> None:
    before = pairs.read_bytes()
    with pytest.raises((OutputError, OSError), match=message):
        score_pairs(pairs, tmp_path / name, "no such model")
    assert pairs.read_bytes() == before


def test_an_interrupted_run_scores_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "_PAIRS_PER_PART", 3)
    (tmp_path / "pairs.tsv").write_text("".join(f"a{i}\tb{i}\n" for i in range(10)))
    score_pairs(tmp_path / "pairs.tsv", tmp_path / "whole.tsv", Words())
    with pytest.raises(KeyboardInterrupt):
        score_pairs(tmp_path / "pairs.tsv", tmp_path / "scored.tsv", Words(fail_after=10))
    assert not (tmp_path / "scored.tsv").exists()
    second = Words()
    monkeypatch.setenv("RANK", "1")
    assert score_pairs(tmp_path / "pairs.tsv", tmp_path / "scored.tsv", second) is None, "the first process writes"
    monkeypatch.delenv("RANK")
    score_pairs(tmp_path / "pairs.tsv", tmp_path / "scored.tsv", second)
    assert (tmp_path / "scored.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert set(second.encoded) == {f"{side}{i}" for side in "ab" for i in range(3, 10)}


def test_an_edited_file_of_the_same_size_and_time_is_read_again(pairs: Path, tmp_path: Path) -> None:
    score_pairs(pairs, tmp_path / "scored.tsv", Letters())
    before = pairs.stat()
    pairs.write_text(pairs.read_text("utf-8").replace("aab", "abb"), "utf-8")
    os.utime(pairs, ns=(before.st_atime_ns, before.st_mtime_ns))
    score_pairs(pairs, tmp_path / "scored.tsv", Letters())
    assert _rows(tmp_path / "scored.tsv")[0]["source"] == "abb"


def test_a_line_break_or_nul_in_a_text_breaks_no_row(tmp_path: Path) -> None:
    row = {"source": "aa\nb\u2028c", "target": "a\tb\r\nc", "origin": "x\0y"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    score_pairs(tmp_path / "pairs.jsonl", tmp_path / "scored.tsv", Letters())
    _, line = (tmp_path / "scored.tsv").read_text(encoding="utf-8").splitlines()
    assert line.split("\t")[1:] == ["aa b c", "a b c", "x y"]


@pytest.mark.parametrize("output", ["scored.jsonl", "scored.parquet", "scored.tsv"])
def test_links_and_negatives_stay_or_are_warned_of(
    tmp_path: Path, output: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hf_xsent.data.output._ROWS_PER_GROUP", 1)
    records = [{"source": "a1", "target": "b1"}, {"source": "a2", "target": "b2"}]
    records[1] |= {"links": "0-0", "target_negatives": ["b3", "b4"]}  # type: ignore[dict-item]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    score_pairs(tmp_path / "pairs.jsonl", tmp_path / output, Words())
    assert ("a TSV has no links and target_negatives: name the" in caplog.text) == output.endswith(".tsv")
    if output.endswith(".tsv"):
        return
    bitext = load_bitext({"de": tmp_path / output}, cleaning=None, cache_dir=tmp_path / "cache")
    assert list(bitext) == [record | {"language": "de"} for record in records]


@pytest.mark.parametrize("output", ["scored.tsv", "scored.parquet"])
def test_origin_and_licence_of_mined_pairs_stay(tmp_path: Path, output: str) -> None:
    for side in "ab":
        (tmp_path / f"{side}.txt").write_text("".join(f"{side}{number}\n" for number in range(20)))
    mined = tmp_path / "mined.tsv"
    mine_files(tmp_path / "a.txt", tmp_path / "b.txt", mined, Words(), licence="CC0")
    header, *lines = mined.read_text().splitlines()
    mined.write_text("".join(f"{line}\n" for line in (f"{header}\torigin", f"{lines[0]}\tnews", *lines[1:])))
    score_pairs(mined, tmp_path / output, Words())
    bitext = load_bitext({"de": tmp_path / output}, cleaning=None, cache_dir=tmp_path / "cache")
    assert bitext.ledger == {"origin not stated, CC0": len(lines) - 1, "news, CC0": 1}
