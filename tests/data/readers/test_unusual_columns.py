"""Columns and records that look like something else: ids named like a language, headers of which one name is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from hf_xsent import load_bitext
from hf_xsent.data.bitext import BitextSource

GERMAN, ENGLISH = "Ein Hund Nummer {} schläft hier.", "A dog number {} sleeps here."


def _first(data: Any, tmp_path: Path, **options: Any) -> tuple[str, str]:
    pair = load_bitext(data, cleaning=None, cache_dir=tmp_path / "cache", **options)[0]
    return pair["source"], pair["target"]


def _table(path: Path, header: str, *columns: str) -> str:
    rows = ("\t".join(column.format(number) for column in columns) for number in range(12))
    path.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return str(path)


@pytest.mark.parametrize("number", ["news-{}", "{}"])
def test_a_column_of_ids_is_not_indonesian(number: str, tmp_path: Path) -> None:
    path = _table(tmp_path / "a.tsv", "id\tsource\ttarget", number, GERMAN, ENGLISH)
    assert _first(path, tmp_path) == (GERMAN.format(0), ENGLISH.format(0))


@pytest.mark.parametrize("nested", [False, True])
def test_ids_of_records_are_not_indonesian(nested: bool, tmp_path: Path) -> None:
    pair = {"id": "anjing", "en": "dog"} if nested else {"source": "anjing", "target": "dog"}
    record = {"id": "tat-0"} | ({"translation": pair} if nested else pair)
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(record) + "\n", "utf-8")
    assert _first({"id": str(path)}, tmp_path) == ("anjing", "dog")


@pytest.mark.parametrize(("header", "language"), [("en\ttext", "de"), ("English\tsentence", "de"), ("en\tfr_CA", "fr")])
def test_a_known_target_in_the_first_of_two_columns_is_the_target(header: str, language: str, tmp_path: Path) -> None:
    path = _table(tmp_path / "a.tsv", header, ENGLISH, GERMAN)
    assert _first({language: path}, tmp_path) == (GERMAN.format(0), ENGLISH.format(0))


@pytest.mark.parametrize("kind", ["list", "dataset"])
def test_numbers_of_columns_count_all_columns_of_records(kind: str, tmp_path: Path) -> None:
    rows = [{"n": number, "de": "Hund", "en": "dog", "fr": "chien"} for number in range(3)]
    data = rows if kind == "list" else Dataset.from_list(rows)
    assert _first({"de": data}, tmp_path, columns=(1, 2)) == ("Hund", "dog")


def test_negatives_of_records_are_stored_and_a_record_without_text_is_a_bad_row(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"source": f"Hund {number}", "target": f"dog {number}", "target_negatives": ["cat"]} for number in range(3)
    ]
    bitext = load_bitext({"de": rows}, cache_dir=tmp_path)
    assert bitext.pairs_with_negatives == 3 and bitext[0]["target_negatives"] == ["cat"]
    rows = [{"de": None if number == 1 else f"Hund {number}", "en": f"dog {number}"} for number in range(4)]
    assert len(load_bitext(rows, on_error="skip", cleaning=None, cache_dir=tmp_path)) == 3


def test_columns_apply_to_sources_that_state_none(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("dog\tHund\n", "utf-8")
    assert _first([BitextSource("de", str(path))], tmp_path, columns=(1, 0)) == ("Hund", "dog")


def test_each_source_is_cleaned_by_its_target_language(tmp_path: Path) -> None:
    for name, target in (("en", "A dog sleeps here."), ("ru", "Собака спит здесь.")):
        lines = (f"{GERMAN.format(number)}\t{target} {number}\n" for number in range(4))
        (tmp_path / f"{name}.tsv").write_text("".join(lines), "utf-8")
    sources = [BitextSource("de", str(tmp_path / f"{name}.tsv"), name) for name in ("en", "ru")]
    assert len(load_bitext(sources, cache_dir=tmp_path / "cache")) == 8


def test_dev_pairs_are_held_out_for_any_number_of_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_xsent.data.bitext._ROWS_AT_ONCE", 4)
    for count in range(18, 26):
        rows = [(f"Hund {number}", f"dog {number}") for number in range(count)]
        train, dev = load_bitext({"de": rows}, cleaning=None, cache_dir=tmp_path).train_dev_split(5)
        assert (len(train), len(dev)) == (count - 5, 5)


def test_an_obsolete_fuzzy_message_leaves_the_next_one_valid(tmp_path: Path) -> None:
    path = tmp_path / "de.po"
    entry = 'msgid "{}"\nmsgstr "{}"\n\n'
    obsolete = '#, fuzzy\n#~ msgid "Old"\n#~ msgstr "Alt"\n'
    path.write_text(entry.format("One", "Eins") + obsolete + entry.format("Two", "Zwei"), "utf-8")
    bitext = load_bitext({"de": str(path)}, cleaning=None, cache_dir=tmp_path / "cache")
    assert [pair["source"] for pair in bitext] == ["Eins", "Zwei"]


def test_tags_of_tmx_are_compared_without_case(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    segments = (("pt-PT", "comboio"), ("PT-BR", "trem"), ("en-US", "train"))
    variants = "".join(f'<tuv xml:lang="{tag}"><seg>{text}</seg></tuv>' for tag, text in segments)
    path.write_text(f'<tmx version="1.4"><header/><body><tu>{variants}</tu></body></tmx>', "utf-8")
    assert _first({"pt-BR": str(path)}, tmp_path) == ("trem", "train")
