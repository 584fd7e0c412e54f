"""Pairs in memory go wherever bitext goes: data sets of Hugging Face, lists and iterables."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
from datasets import Dataset, DatasetDict

from hf_xsent import load_bitext
from hf_xsent.data.bitext import Bitext
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.readers.fields import NEGATIVES
from hf_xsent.data.readers.in_memory import stored_pairs
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.errors import DataError

Pairs = list[tuple[str, str]]


@pytest.fixture
def load(tmp_path: Path) -> Any:
    return lambda data, **options: load_bitext(data, cache_dir=tmp_path / "cache", **{"cleaning": None, **options})


def _sides(bitext: Bitext) -> Pairs:
    return [(pair["source"], pair["target"]) for pair in bitext]


def test_every_form_of_pairs_in_memory_is_read(load: Any, pairs: Pairs) -> None:
    records = [{"source": source, "target": target} for source, target in pairs]
    columns = {"source": [one for one, _ in pairs], "target": [one for _, one in pairs], "score": [1.0] * len(pairs)}
    named = Dataset.from_dict({"text": columns["source"], "english": columns["target"]})
    forms = {
        **{kind: Dataset.from_dict(columns).with_format(kind) for kind in ("arrow", "pandas", "polars", "numpy")},
        "list": pairs,
        "lists": [list(pair) for pair in pairs],
        "generator": (pair for pair in pairs),
        "records": records,
        "dataset": Dataset.from_dict(columns),
        "iterable": Dataset.from_dict(columns).to_iterable_dataset(),
        "pandas frame": pandas.DataFrame(columns),
        "polars frame": polars.DataFrame(columns),
        "lazy": polars.LazyFrame(columns),
        "table": polars.DataFrame(columns).to_arrow(),
        "splits": DatasetDict(train=Dataset.from_dict(columns), test=named),
    }
    for form, data in forms.items():
        bitext = load(data)
        assert bitext.languages == {"und": len(pairs)}, form
        assert _sides(bitext) == pairs, form
    assert _sides(load({"de": named}, columns=("text", "english"))) == pairs
    assert _sides(load(forms["splits"], split="test", columns=("text", "english"))) == pairs
    with pytest.raises(DataError, match="no split 'dev', only train, test"):
        load(forms["splits"], split="dev")


def test_languages_come_from_the_mapping_or_the_columns(load: Any, pairs: Pairs, tmp_path: Path) -> None:
    (tmp_path / "fr.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs[4:8]), "utf-8")
    mixed = load({"de": pairs[:4], "und": str(tmp_path / "{language}.tsv")})
    assert mixed.languages == {"de": 4, "fr": 4} and _sides(mixed) == pairs[:8]
    opus = Dataset.from_dict({"translation": [{"de": source, "en": target} for source, target in pairs]})
    assert load(opus).languages == {"de": len(pairs)} and _sides(load(opus)) == pairs
    frame = pandas.DataFrame(pairs[:4], columns=["de", "en"])
    several = load({"de": [frame, load({"de": pairs[4:6]}), str(tmp_path / "fr.tsv")]})
    assert _sides(several) == [*pairs[:6], *pairs[4:8]]
    flat = [{"sw": source, "en": target} for source, target in pairs]
    assert load(flat).languages == {"sw": len(pairs)}
    again = load(mixed.to_dataset())
    assert again.languages == mixed.languages and _sides(again) == _sides(mixed)
    assert load(mixed).languages == mixed.languages and _sides(load(mixed)) == _sides(mixed)


def test_keys_of_data_sets_may_end_in_two_codes_also_in_a_recipe(load: Any, pairs: Pairs, tmp_path: Path) -> None:
    rows = Dataset.from_dict({"source": ["Ein Hund."], "target": ["A dog."]})
    splits = DatasetDict({"talks-en-de": rows, "talks-fr-en": rows})
    words = [f"{key}={path}" for key, (path,) in stored_pairs(splits, cache_dir=tmp_path).items()]
    for data in (splits, words):
        assert load(data).languages == {"de": 1, "fr": 1}
    folder = tmp_path / "en-de=1"
    folder.mkdir()
    (folder / "sw.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    assert load(str(folder / "sw.tsv")).languages == {"sw": len(pairs)}


def test_a_bitext_is_read_again_by_the_arguments(load: Any, pairs: Pairs, tmp_path: Path) -> None:
    french = load({"de": pairs}, target_language="fr")
    for data in (french, {"de": french}, {"de": french[:1], "sw": pairs[:2]}):
        assert load(data).target_language == "fr"
        resolved = resolve_sources(data, cache_dir=tmp_path)
        assert {source.target_language for sources in resolved.values() for source in sources} == {"fr"}
    frame = pandas.DataFrame({"de": ["Ja."], "en": ["Yes."], "target_language": ["en"]})
    assert load(frame).target_language == "en"
    with pytest.raises(DataError, match=r"several target languages \(en, fr\)"):
        load({"de": french, "sw": load({"sw": pairs})})
    assert load(french, max_pairs=3).languages == {"de": 3}
    with pytest.raises(DataError, match="cleaning removed all 4 pairs of the de pairs"):
        load(french[:4], cleaning=CleaningRules(max_characters=1))


def test_a_data_set_has_all_fields_of_its_pairs(load: Any, pairs: Pairs) -> None:
    given: list[dict[str, Any]] = [{"source": source, "target": target} for source, target in pairs[:4]]
    given[1] |= {"links": "0-0", "target_negatives": ["a cat"], "source_negatives": []}
    given[2] |= {"origin": "Tatoeba", "license": "CC BY 2.0"}
    given[3] |= {"licence": "CC0"}
    bitext = load({"de": given})
    for part in (bitext, bitext[1:]):
        again = load(part.to_dataset())
        assert list(again) == list(part) and again.count_pairs_with(*NEGATIVES) == again.count_pairs_with("links") == 1
        unnamed = {"not stated": len(part) - 2, "Tatoeba, CC BY 2.0": 1, "origin not stated, CC0": 1}
        assert part.ledger == again.ledger == unnamed
    assert load({"de": pairs}).ledger == {}


def test_the_ledger_counts_each_pair_once(load: Any, pairs: Pairs) -> None:
    nan = float("nan")  # what pandas has for a missing value
    stated: list[dict[str, Any]] = [{"origin": "X"}, {"licence": "X"}, {"origin": "X", "licence": " "}, {"origin": nan}]
    records = [
        {"source": source, "target": target, **stated[number % 4]} for number, (source, target) in enumerate(pairs[:8])
    ]
    bitext = load({"de": records, "fr": pairs[8:10]})
    assert bitext.ledger == {"X, licence not stated": 4, "origin not stated, X": 2, "not stated": 4}
    assert bitext[:2].ledger == {"X, licence not stated": 1, "origin not stated, X": 1}
    train, dev = bitext.train_dev_split(1)
    assert sum(train.ledger.values()) == len(train)


def test_an_origin_may_be_a_number_and_a_missing_licence_hides_no_license(load: Any) -> None:
    record = {"source": "ein Hund", "target": "a dog"}
    assert load([record | {"origin": 0}]).ledger == {"0, licence not stated": 1}
    nothing = load([record | {"licence": float("nan"), "license": "CC0"}])
    assert nothing.ledger == {"origin not stated, CC0": 1}
    assert len(load([record | {"links": float("nan"), "target_negatives": float("nan")}])) == 1


def test_neither_the_ledger_nor_an_index_is_a_side(load: Any) -> None:
    record = {"left": "ein Hund", "right": "a dog", "origin": "web", "licence": "CC0"}
    frame = pandas.DataFrame([{"left": "x"}, {"left": "ein Hund", "right": "a dog"}], index=["x", "y"])[1:]
    for data in ([record], frame, frame.rename_axis("key_of_row")):
        assert _sides(load(data)) == [("ein Hund", "a dog")]


def test_a_language_that_is_no_code_is_named(load: Any) -> None:
    many = [{"source": "a", "target": "b", "lang": f"style {number}"} for number in range(2000)]
    with pytest.raises(DataError, match="^the column lang has no languages, but more than 500 values"):
        load(many)
    with pytest.raises(DataError, match="^the pairs: the language is 5, not a code such as de"):
        load([{"source": "ein Hund", "target": "a dog", "language": 5}])


def test_min_nan_is_a_language(load: Any) -> None:
    assert load([{"source": "Koh chi̍t kù", "target": "Another one", "language": "nan"}]).languages == {"nan": 1}


@pytest.mark.parametrize("missing", [None, "", float("nan")])
def test_a_pair_without_language_beside_others_is_named(load: Any, missing: object) -> None:
    records = [{"source": "ein Hund", "target": "a dog", "language": code} for code in ("de", missing)]
    with pytest.raises(DataError, match="pair 2 has no language: give its code, and und if it is unknown"):
        load(records)
    assert load({"de": records}).languages == {"de": 2}


def test_the_pairs_of_a_stated_language_are_those_of_its_code(load: Any) -> None:
    records = [{"source": f"a{code}", "target": f"b{code}", "language": code} for code in ("de", "fr")]
    assert load({"de": records}).pairs("de") == (["ade"], ["bde"])
    assert load({"und": records}).languages == {"und": 2} and load(records).languages == {"de": 1, "fr": 1}


def test_negatives_may_be_arrays_as_pandas_reads_them(load: Any) -> None:
    record = {"source": "ein Hund", "target": "a dog"}
    read = load([record | {"target_negatives": np.array(["a cat", "a fox"], dtype=object)}])
    assert read[0]["target_negatives"] == ["a cat", "a fox"]
    with pytest.raises(DataError, match="target_negatives is not a list of sentences"):
        load([record | {"target_negatives": {"a cat"}}])


def test_pairs_in_memory_may_have_no_known_language_or_other_columns(load: Any) -> None:
    records = [{"source": f"a{code}", "target": f"b{code}", "language": code} for code in ("und", "de")]
    bitext = load(records)
    assert bitext.languages == {"und": 1, "de": 1} == load(bitext).languages == load(bitext.to_dataset()).languages


def test_a_column_of_languages_may_have_capitals_and_varieties(load: Any) -> None:
    codes = ("pt", "pt_BR", "und")
    frame = pandas.DataFrame([(code, f"a {code}", f"b {code}") for code in codes], columns=["Lang", "Source", "Target"])
    assert {code: load(frame).pairs(code) for code in codes} == {code: ([f"a {code}"], [f"b {code}"]) for code in codes}
    assert load({"pt": frame[:2]}).languages == {"pt": 2}


def test_languages_may_be_class_labels(load: Any) -> None:
    datasets = pytest.importorskip("datasets")
    records = [{"source": f"a{code}", "target": f"b{code}", "language": code} for code in ("de", "fr")]
    labelled = datasets.Dataset.from_list(records).class_encode_column("language")
    for form in (labelled, labelled.to_iterable_dataset(), labelled.with_format("polars")):
        assert load(form).languages == {"de": 1, "fr": 1}
    assert load({"de": labelled}).languages == {"de": 1}


def test_equal_pairs_are_cleaned_and_cached_once(load: Any, pairs: Pairs, tmp_path: Path) -> None:
    for _ in range(2):
        load({"de": pairs}, cleaning=CleaningRules())
    assert len(list((tmp_path / "cache").glob("de-*/pairs.arrow"))) == 1
    assert len(list((tmp_path / "cache" / "in_memory").iterdir())) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([("a", "b"), ("c",)], r"pair 2 is \('c',\): give \(source, target\)"),
        ([1, 2], "pair 1 is 1"),
        ([("a", None)], "^pair 1 of the pairs: the target side is missing"),
        ([("a\0c", "b")], "^pair 1 of the pairs: the source side has NUL characters"),
        ({"de": [(f"{n}", "b") for n in range(9)]}, "^the de pairs: the source column has no letters"),
        ([dict.fromkeys("ace", "b")], "^the pairs: cannot choose among the columns a, c, e; state .* as columns"),
        (
            [{side: {str(row): "a" for row in range(5000)} for side in ("de", "en")}],  # DataFrame.to_json
            r'^the pairs: cannot choose among the columns de.0, .*, …; .* write records instead \(orient="records"\)',
        ),
        ([("a", "b"), (b"Ein Hund", b"A dog")], "pair 2 of the pairs: the source side is not text but .*bytes"),
        ([{"translation": {"de": "Ein Hund", "en": b"A dog"}}], "pair 1 of the de pairs: the target side .*bytes"),
        (
            {"de": [("caf\udce9", "a")]},
            r"^pair 1 of the de pairs: the source side is not text but .*caf<U\+DCE9>'.* fix it",
        ),
        ([{"de": "a", "en": "b", "target_negatives": ["\udce9"]}], "^pair 1 of the de pairs: target_negatives is not"),
        (polars.Series(["Ein Hund."]), r"pair 1 is 'Ein Hund\.': give \(source, target\)"),
        (pandas.Series(["Ein Hund."]), r"pair 1 is 'Ein Hund\.': give \(source, target\)"),
        (iter([]), "hold no pairs"),
        ([{"de": "a", "en": "b", "lang": "de"}, {"de": "a", "en": "b"}], "pair 2 has no lang: give its code"),
        ({"de": [("a", "b")], "fr": []}, "^fr has no pairs: give at least one, or drop fr"),
        ({"de": {"fr": [("a", "b")] * 99}}, r"pairs in memory, not {'fr'.{,99}…$"),
        ("de=", "^the path of the de pairs is empty: give a file, such as de=pairs.tsv"),  # de=$UNSET
        ({"xx": [("a", "b")]}, "xx"),
    ],
)
def test_what_is_not_a_pair_is_named(load: Any, data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(data)


def test_columns_beside_the_sides_need_not_be_text(load: Any, pairs: Pairs) -> None:
    more = {"seen": date(2026, 1, 1), "\udce9": "\udce9"}
    records = [{"source": source, "target": target, **more} for source, target in pairs]
    assert _sides(load(records)) == pairs


def test_a_pair_in_memory_that_is_not_text_is_skipped_and_counted(load: Any) -> None:
    bitext = load({"de": [("caf\udce9", "coffee"), ("ein Hund", "a dog")]}, on_error="skip")
    assert _sides(bitext) == [("ein Hund", "a dog")] and bitext.report.languages["de"].bad == 1


def test_columns_of_a_data_frame_may_have_values_of_several_types(load: Any) -> None:
    frame = pandas.DataFrame(
        {"id": [1, "a2"], "de": ["ein Hund", 1984], "en": ["a dog", "1984"], "origin": ["x", None]}
    )
    bitext = load({"de": frame}, on_error="skip")
    assert [*bitext] == [{"source": "ein Hund", "target": "a dog", "origin": "x", "language": "de"}]
    with pytest.raises(DataError, match="pair 2 .*: the source side is not text but 1984"):
        load({"de": frame})
    frame.columns = ["de", "de", "en", "origin"]
    with pytest.raises(DataError, match="two columns of the data frame are named de: rename one"):
        load({"de": frame})


def test_a_language_may_have_pairs_in_files_and_in_memory(load: Any, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"de": ["ein Hund"], "en": ["a dog"]})
    frame.to_csv(tmp_path / "more.tsv", sep="\t", index=False)
    assert len(load({"de": [str(tmp_path / "more.tsv"), frame]})) == 2


def test_a_bitext_shows_its_content_and_slices(load: Any, pairs: Pairs) -> None:
    bitext = load({"de": pairs[:10], "fr": pairs[10:]})
    assert repr(bitext) == "Bitext(16 pairs: de 10, fr 6)"
    part = bitext[8:13:2]
    assert isinstance(part, Bitext) and repr(part) == "Bitext(3 pairs: de 1, fr 2)"
    assert _sides(part) == pairs[8:13:2] and _sides(part[1:]) == pairs[8:13:2][1:]
    train, dev = bitext.train_dev_split(2)
    assert _sides(train[:2]) == _sides(train)[:2] and len(dev[1:]) == 3
    table = train.to_dataset()
    assert table.column_names == ["source", "target", "language"]
    assert [(row["source"], row["target"]) for row in table] == _sides(train)
    assert len(bitext[3:3].to_dataset()) == 0 and list(bitext[3:3]) == []
    with pytest.raises(DataError, match="positive step"):
        bitext[::-1]
    for rows in ([0, 1], np.array([0, 1]), 1.7, True):
        with pytest.raises(DataError, match="one row number or a slice|rows are whole numbers"):
            bitext[rows]
