"""Header rows and columns found by name, in every format that names languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from datasets import Dataset, DatasetDict

from hf_xsent import load_bitext
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError

PAIR = ("ein Satz", "a sentence")


def _table(path: Path, header: str, row: str) -> str:
    path.write_text(f"{header}\n{row}\n", "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("language", "header"),
    [
        ("zh", "score\ten\tzh_CN"),
        ("zh", "score\teng\tcmn"),
        ("zh-TW", "zh_CN\ten\tzh_TW"),
        ("pt", "score\ten\tpt-PT"),
        ("pt-BR", "pt-PT\tEN\tPT_BR"),
        ("pt-BR", "pt-PT\ten\tpt"),
        ("sr@latin", "sr_Cyrl\ten\tsr-Latn"),
        ("es", "score\ten\tes-419"),
        ("id", "score\ten\tid_ID"),
        ("id", "score\ten\tid"),
        ("nb", "id\tEnglish\tNorwegian Bokmål"),
        ("de", "de_id\ttext_en\ttext_de"),
        ("de", "text\ttarget_en\tsource_de"),
        ("de", "score\ttranslation.en\ttranslation.de"),
        ("und", "score\ten\tfr"),
        ("id", "id\ttarget\tsource"),
        ("de", "en\ttext"),
        ("de", "English\tsentence"),
        ("fr", "en\tfr_CA"),
        ("mon", "score\ttext_en\ttext_mon"),  # a code before the name of a language
    ],
)
def test_a_header_names_languages_in_any_style(language: str, header: str, tmp_path: Path) -> None:
    row = [*(["0.9"] * header.count("\t")), PAIR[1], PAIR[0]][-header.count("\t") - 1 :]
    path = _table(tmp_path / "a.tsv", header, "\t".join(row))
    assert list(read_pairs(BitextSource(language, path))) == [PAIR]


@pytest.mark.parametrize(
    ("language", "row"),
    [
        ("no", "No.\tNo."),
        ("no", "No\tNo."),
        ("no", "Nei, nei.\tNo, no."),
        ("de", "Text\ttext"),
        ("de", "Index.\tIndex"),
        ("de", "da\tso"),  # neither is German or English
        ("und", "Es\tIt"),  # a code is in lower or upper case
        ("cs", "Ne\tNo"),
        ("de", "und\ten"),
        ("und", "in der Zukunft\tin the future"),  # the code of Indonesian, but no subtags
        ("es", "es una mujer\tis a woman"),
    ],
)
def test_a_first_pair_that_looks_like_codes_is_a_pair(language: str, row: str, tmp_path: Path) -> None:
    path = _table(tmp_path / "a.tsv", row, "\t".join(PAIR))
    assert list(read_pairs(BitextSource(language, path))) == [tuple(row.split("\t")), PAIR]


@pytest.mark.parametrize(("row", "is_logged"), [("da\tso", True), ("da\ten", False), ("source\ttarget", False)])
def test_a_first_row_that_may_be_a_pair_is_not_dropped_in_silence(
    row: str, is_logged: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _table(tmp_path / "a.tsv", row, "\t".join(PAIR))
    assert list(read_pairs(BitextSource("und", path, "en", (0, 1)))) == [PAIR]
    assert ("a.tsv: da and so are read as names of columns; if they are a pair" in caplog.text) == is_logged


@pytest.mark.parametrize(
    "record",
    [
        {"anchor": PAIR[0], "positive": PAIR[1]},
        {"anchor": PAIR[0], "positive": PAIR[1], "negative": "a", "source": "wikipedia"},
        {"anchor": PAIR[0], "positive": PAIR[1], "negative_1": "a", "negative_2": "b"},
        {"sentence1": PAIR[0], "sentence2": PAIR[1], "score": 0.9},
        {"sentence_A": PAIR[0], "sentence_B": PAIR[1], "label": 1},
        {"premise": PAIR[0], "hypothesis": PAIR[1], "label": 1},
        {"text1": PAIR[0], "text2": PAIR[1]},
        {"english": PAIR[1], "non_english": PAIR[0]},
        {"query": PAIR[0], "answer": PAIR[1]},
        {"query": PAIR[0], "positive": PAIR[1], "negative": "a"},
        {"query": PAIR[0], "passage": PAIR[1], "label": 1.0},
        {"question": PAIR[0], "answer": PAIR[1]},
        {"title": PAIR[0], "body": PAIR[1]},
        {"id": "7", "translation": {"de": PAIR[0], "en": PAIR[1]}},
        {"text": PAIR[0], "translation": PAIR[1]},
        {"lang": "de", "source": PAIR[0], "target": PAIR[1]},
    ],
    ids=str,
)
def test_pairs_have_the_columns_of_sentence_transformers(record: dict[str, Any], tmp_path: Path) -> None:
    for data in (Dataset.from_list([record]), pandas.DataFrame([record]), polars.DataFrame([record]), [record]):
        bitext = load_bitext(data, cache_dir=tmp_path, cleaning=None)
        assert (bitext[0]["source"], bitext[0]["target"]) == PAIR
    if not isinstance(record.get("translation"), dict):
        pandas.DataFrame([record]).to_csv(tmp_path / "a.csv", index=False)
        assert list(read_pairs(BitextSource("und", str(tmp_path / "a.csv")))) == [PAIR]


def test_columns_of_sentence_transformers_that_are_not_read_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = {"anchor": PAIR[0], "positive": PAIR[1], "negative_1": "a", "Label": 0, "labelled": "x"}
    load_bitext([record], cache_dir=tmp_path, cleaning=None)
    assert "not read: negative_1, Label. All rows are translations" in caplog.text
    caplog.clear()
    load_bitext([record | {"x": 1}], cache_dir=tmp_path, cleaning=None, columns=("anchor", "positive"))
    assert "not read" not in caplog.text


def test_a_data_set_of_several_languages_names_them_by_its_keys_or_a_column(tmp_path: Path) -> None:
    pairs = {"english": [PAIR[1]], "non_english": [PAIR[0]]}
    by_key = DatasetDict({"talks-en-de": Dataset.from_dict(pairs), "talks-en-tr": Dataset.from_dict(pairs)})
    assert load_bitext(by_key, cache_dir=tmp_path, cleaning=None).languages == {"de": 1, "tr": 1}
    talks = Dataset.from_dict(pairs)
    talks.info.config_name = "en-fr"
    assert load_bitext(talks, cache_dir=tmp_path, cleaning=None).languages == {"fr": 1}
    frame = pandas.DataFrame({"lang": ["de", "tr"], "text": [PAIR[0], "bir cümle"], "english": [PAIR[1]] * 2})
    assert load_bitext(frame, cache_dir=tmp_path, cleaning=None).languages == {"de": 1, "tr": 1}
    named = frame.replace("de", "German")
    assert load_bitext(named, cache_dir=tmp_path, cleaning=None).languages == {"de": 1, "tr": 1}


@pytest.mark.parametrize(
    "header", ["de\tfr", "fr\tde", "English\tFrench", "text_fr\ttext_en", "source\tfr", "fr\ttarget"]
)
def test_a_column_of_another_language_is_not_guessed(header: str, tmp_path: Path) -> None:
    path = _table(tmp_path / "a.tsv", header, "\t".join(PAIR))
    with pytest.raises(
        DataError,
        match=f"a.tsv: cannot choose among the columns {', '.join(header.split())}; .*state .* by number from 0 .*",
    ):
        list(read_pairs(BitextSource("de", path)))
    assert list(read_pairs(BitextSource("de", path, "en", (0, 1)))) == [PAIR]


def test_without_a_stated_language_the_column_source_is_the_source(tmp_path: Path) -> None:
    path = _table(tmp_path / "a.tsv", "source\tfr", "\t".join(PAIR))
    assert list(read_pairs(BitextSource("und", path, "fr"))) == [PAIR]
    assert list(read_pairs(BitextSource("und", path, "und"))) == [PAIR]
    with pytest.raises(DataError, match="cannot choose among the columns source, fr"):
        list(read_pairs(BitextSource("und", path)))


@pytest.mark.parametrize("names", [("pt-PT", "pt-BR"), ("zho", "cmn")])
def test_two_variants_of_a_language_are_ambiguous(names: tuple[str, str], tmp_path: Path) -> None:
    language = names[0][:2]
    table = _table(tmp_path / "a.tsv", "\t".join(["en", *names]), "a sentence\tein Satz\tnoch ein Satz")
    (tmp_path / "a.jsonl").write_text(json.dumps(dict.fromkeys(["en", *names], "a")), "utf-8")
    for path in (table, str(tmp_path / "a.jsonl")):
        with pytest.raises(DataError, match=f"cannot choose among the columns en, {', '.join(names)}; state the two"):
            list(read_pairs(BitextSource(language, path)))


@pytest.mark.parametrize("tag", ["zh_CN", "cmn", "zh-Hans"])
def test_records_and_tmx_match_languages_as_headers_do(tag: str, tmp_path: Path) -> None:
    record = {"id": "1", "eng": PAIR[1], tag: PAIR[0]}
    (tmp_path / "flat.jsonl").write_text(json.dumps(record), "utf-8")
    (tmp_path / "opus.jsonl").write_text(json.dumps({"translation": record}), "utf-8")
    segments = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in list(record.items())[1:])
    (tmp_path / "a.tmx").write_text(f"<tmx><body><tu>{segments}</tu></body></tmx>", "utf-8")
    for name in ("flat.jsonl", "opus.jsonl", "a.tmx"):
        assert list(read_pairs(BitextSource("zh", str(tmp_path / name)))) == [PAIR], name


@pytest.mark.parametrize(
    ("language", "tags"), [("sr@latin", ("sr-Cyrl-RS", "sr-Latn-RS")), ("pt-BR", ("pt-PT", "PT-BR"))]
)
def test_a_tag_of_tmx_takes_precedence_over_the_order(language: str, tags: tuple[str, str], tmp_path: Path) -> None:
    texts = {tags[0]: "пас", tags[1]: "pas", "en-US": "dog"}
    segments = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in texts.items())
    (tmp_path / "a.tmx").write_text(f"<tmx><body><tu>{segments}</tu></body></tmx>", "utf-8")
    assert list(read_pairs(BitextSource(language, str(tmp_path / "a.tmx")))) == [("pas", "dog")]


@pytest.mark.parametrize(
    ("numbers", "names"),
    [
        ("id", ("translation.id", "translation.en")),
        ("id", ("source", "target")),
        ("id", ("text_id", "text_en")),
        ("ID", ("id_text", "en_text")),
        ("id", ("sentence", "translation")),
        ("text_id", ("sentence", "translation")),
        ("split", ("id", "en")),
        ("score", ("id", "target")),
        ("no", ("text_no", "text_en")),
        ("no", ("sentence", "translation")),
        ("split", ("no", "en")),
    ],
)
def test_numbers_of_records_are_neither_indonesian_nor_norwegian(
    numbers: str, names: tuple[str, str], tmp_path: Path
) -> None:
    record = {numbers: "tat-0"} | dict(zip(names, PAIR, strict=True))
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n", "utf-8")
    language = "no" if "no" in (numbers, names[0]) else "id"
    assert list(read_pairs(BitextSource(language, str(tmp_path / "a.jsonl")))) == [PAIR]


def test_columns_apply_to_all_sources_that_state_none_and_count_all_columns_of_records(tmp_path: Path) -> None:
    rows = [{"n": 1, "de": "Hund", "en": "dog", "fr": "chien"}]
    (tmp_path / "a.tsv").write_text("1\tHund\tdog\n", "utf-8")
    for data in ({"de": rows}, [BitextSource("de", str(tmp_path / "a.tsv"))]):
        bitext = load_bitext(data, columns=(1, 2), cleaning=None, cache_dir=tmp_path / "cache")
        assert (bitext[0]["source"], bitext[0]["target"]) == ("Hund", "dog")
