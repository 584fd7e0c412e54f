from __future__ import annotations

import os
import pickle
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Split

from hf_xsent.data import arrow, cache
from hf_xsent.data.bitext import Bitext, load_bitext
from hf_xsent.data.cleaning import repeats
from hf_xsent.data.cleaning.repeats import normalise
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.readers.fields import NEGATIVES
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError, OutputError, RecipeError


def _write(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def _sentences(language: str, count: int, start: int = 0) -> list[tuple[str, str]]:
    return [(f"{language} Satz {number}", f"sentence {number}") for number in range(start, start + count)]


@pytest.fixture
def bitext(tmp_path: Path) -> Bitext:
    _write(tmp_path / "de.tsv", _sentences("de", 25_000))
    _write(tmp_path / "fr.tsv", _sentences("fr", 300, start=100))
    return load_bitext(str(tmp_path / "{language}.tsv"), cache_dir=tmp_path / "cache")


def test_the_cache_may_be_in_the_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bitext = load_bitext({"de": _sentences("de", 3)}, cache_dir="~/cache")
    assert len(bitext) == 3 and bitext.files["de"].is_relative_to(tmp_path / "cache")


def test_pairs_of_all_languages_are_one_sequence(bitext: Bitext) -> None:
    assert len(bitext) == 25_300
    assert bitext.languages == {"de": 25_000, "fr": 300}
    assert bitext.ranges == {"de": range(25_000), "fr": range(25_000, 25_300)}
    assert bitext[12_345] == {"source": "de Satz 12345", "target": "sentence 12345", "language": "de"}
    assert bitext[-1] == {"source": "fr Satz 399", "target": "sentence 399", "language": "fr"}
    assert bitext.__getitems__([25_000, 3, 19_999]) == [bitext[25_000], bitext[3], bitext[19_999]]
    assert bitext.pairs("fr") == tuple(map(list, zip(*_sentences("fr", 300, 100), strict=True)))
    with pytest.raises(DataError, match="has no language 'tr', but "):
        bitext.pairs("tr")
    with pytest.raises(DataError, match=r"pairs\('fr'\) returns the pairs of a language"):
        bitext["fr"]
    with pytest.raises(IndexError):
        bitext[25_300]
    assert (bitext[:7].languages, bitext[-7:].languages) == ({"de": 7}, {"fr": 7}), "no language without pairs"


def test_it_travels_to_data_loader_workers(bitext: Bitext) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    train, dev = pickle.loads(pickle.dumps(bitext.train_dev_split(10, seed=-1)))
    assert len(dev) == 20
    loader = torch_data.DataLoader(train, batch_size=8, num_workers=1, collate_fn=list)
    assert next(iter(loader)) == [train[number] for number in range(8)]


def test_no_held_out_sentence_is_left_in_any_language(bitext: Bitext) -> None:
    train, dev = bitext.train_dev_split(50, seed=4)
    assert dev.languages == {"de": 50, "fr": 50}
    held_out = {normalise(pair[side]) for pair in dev for side in ("source", "target")}
    rest = [pair for pair in bitext if not held_out & {normalise(pair["source"]), normalise(pair["target"])}]
    assert train.__getitems__(range(len(train))) == rest
    assert train.languages == {name: sum(pair["language"] == name for pair in rest) for name in ("de", "fr")}
    assert train.pairs("fr")[0] == [pair["source"] for pair in rest if pair["language"] == "fr"]
    assert [pair["source"] for pair in dev] != [pair["source"] for pair in bitext.train_dev_split(50, seed=5)[1]]


def test_languages_with_the_same_targets_hold_the_same_ones_out(tmp_path: Path) -> None:
    for language in ("de", "fr", "it"):
        _write(tmp_path / f"{language}.tsv", _sentences(language, 200))
    bitext = load_bitext(str(tmp_path / "{language}.tsv"), cache_dir=tmp_path / "cache")
    train, dev = bitext.train_dev_split(30)
    assert train.languages == {"de": 170, "fr": 170, "it": 170}
    counts = train.report.languages["de"]
    assert (counts.read, counts.retained, counts.removed) == (200, 170, {"held_out": 30})
    assert dev.report.languages["de"].removed == {"training": 170} and dev.report.total.retained == 90
    assert bitext.report.languages["de"].retained == 200
    first = bitext[:50][:40].report.languages["de"]
    assert (first.read, first.retained, first.removed) == (200, 40, {"slice": 160})
    assert train[:90].report.languages["de"].removed == {"held_out": 30, "slice": 80}
    assert dev.pairs("de")[1] == dev.pairs("fr")[1] == dev.pairs("it")[1]


def test_a_split_that_leaves_nothing_is_refused(bitext: Bitext) -> None:
    with pytest.raises(
        DataError,
        match="fr has 300 different targets after cleaning, too few to hold out 300:",
    ):
        bitext.train_dev_split(300)


def test_repeated_pairs_go_across_files_and_batches(tmp_path: Path) -> None:
    first = _write(tmp_path / "a.tsv", [*_sentences("de", 12_000), ("DE  Satz 5", "Sentence 5")])
    second = _write(tmp_path / "b.tsv", [*_sentences("de", 12_000, start=6_000), ("de Satz 1", "another")])
    bitext = load_bitext({"de": [first, second]}, cache_dir=tmp_path / "cache")
    pairs = list(zip(*bitext.pairs("de"), strict=True))
    assert pairs == [*_sentences("de", 18_000), ("de Satz 1", "another")]
    assert bitext.report.total.removed == {"repeated": 6_001}
    everything = load_bitext({"de": [first, second]}, cache_dir=tmp_path / "cache", cleaning=None)
    assert len(everything) == 24_002


def test_of_equal_pairs_the_first_with_links_or_negatives_stays(tmp_path: Path) -> None:
    pairs = [{"source": source, "target": target} for source, target in _sentences("de", 4)]
    more = [*pairs, pairs[2] | {"origin": "web"}, pairs[1] | {"target_negatives": ["x"]}, pairs[1] | {"links": "0-0"}]
    bitext = load_bitext({"de": more}, cache_dir=tmp_path)
    rows = [pairs[0], pairs[2], pairs[3], more[5]]
    assert list(bitext) == [row | {"language": "de"} for row in rows]
    assert bitext.report.total.removed == {"repeated": 3}


@pytest.mark.parametrize("repeats", [1, 7])
def test_max_pairs_are_the_first_retained_ones(tmp_path: Path, repeats: int) -> None:
    path = _write(tmp_path / "a.tsv", [pair for pair in _sentences("de", 3000) for _ in range(repeats)])
    bitext = load_bitext({"de": path}, cache_dir=tmp_path / "cache", max_pairs=1000)
    assert list(zip(*bitext.pairs("de"), strict=True)) == _sentences("de", 1000)
    counts = bitext.report.total
    assert counts.read == counts.retained + sum(counts.removed.values()) < 2 * 1000 * repeats


@pytest.mark.parametrize("repeated", [True, False])
def test_a_random_cap_takes_pairs_from_the_whole_file(tmp_path: Path, repeated: bool) -> None:
    pairs = _sentences("de", 20_000)
    _write(tmp_path / "de.tsv", [*pairs, *pairs[:5000]])
    rules = CleaningRules(repeated=repeated)
    options = {"cache_dir": tmp_path / "cache", "cleaning": rules, "max_pairs": 1000}
    chosen = load_bitext({"de": str(tmp_path / "de.tsv")}, max_pairs_choice="random", **options)
    rows = [int(pair["target"].split()[1]) for pair in chosen]
    assert len(chosen) == 1000
    assert 8000 < sum(rows) / 1000 < 12_000
    assert sum(row < 1000 for row in rows) < 130
    assert rows == sorted(rows) or not repeated
    assert len(set(rows)) == 1000 or not repeated
    counts = chosen.report.languages["de"]
    assert counts.read == 25_000 == counts.retained + sum(counts.removed.values())
    again = load_bitext(
        {"de": str(tmp_path / "de.tsv")}, max_pairs_choice="random", **options | {"cache_dir": tmp_path / "b"}
    )
    assert list(again) == list(chosen), "the choice is the same in every run"
    first = load_bitext({"de": str(tmp_path / "de.tsv")}, **options)
    assert [int(pair["target"].split()[1]) for pair in first] == list(range(1000))


def test_an_unknown_cap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="max_pairs_choice must be 'first' or 'random', not 'last'"):
        load_bitext({"de": str(_write(tmp_path / "de.tsv", _sentences("de", 9)))}, max_pairs_choice="last")


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"de": [("a", "b")]}, {"target_language": None}, "target_language takes text, not None"),
        ({"de": [("a", "b")]}, {"max_pairs": 2.5}, "max_pairs takes a whole number, not 2.5"),
        ({3: [("a", "b")]}, {}, "unknown language code '3'"),
    ],
)
def test_arguments_of_other_types_are_named(data: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((DataError, RecipeError), match=message):
        load_bitext(data, cache_dir=tmp_path, **options)


def test_rules_may_be_a_mapping_of_those_that_change(tmp_path: Path) -> None:
    pairs = [*_sentences("de", 12), *_sentences("de", 1), ("gleich", "gleich")]
    options: Any = {"data": {"de": pairs}, "cache_dir": tmp_path}
    bitext = load_bitext(cleaning={"max_characters": 10, "repeated": False}, **options)
    assert bitext.report.languages["de"].removed == {"max_characters": 2, "identical": 1} and len(bitext) == 11
    with pytest.raises(RecipeError, match="cleaning: unknown key 'max_character'; did you mean 'max_characters'"):
        load_bitext(cleaning={"max_character": 10}, **options)
    with pytest.raises(DataError, match="cleaning takes rules, such as .*, or None, not False"):
        load_bitext(cleaning=False, **options)  # type: ignore[arg-type]


def test_small_languages_hold_out_a_share_of_their_pairs(tmp_path: Path) -> None:
    """WACSE's table 1: 10,000 dev pairs of a language, but 2,021 of the 20,211 of Kazakh."""
    _write(tmp_path / "de.tsv", _sentences("de", 1000))
    _write(tmp_path / "kk.tsv", _sentences("kk", 199, start=5000))
    bitext = load_bitext(str(tmp_path / "{language}.tsv"), cache_dir=tmp_path / "cache", cleaning=None)
    train, dev = bitext.train_dev_split(40, share=0.1)
    assert dev.languages == {"de": 40, "kk": 19}
    assert train.languages == {"de": 960, "kk": 180}


def test_sentences_of_test_sets_are_excluded_and_counted(tmp_path: Path) -> None:
    _write(tmp_path / "de.tsv", _sentences("de", 50))
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "tatoeba.deu-eng.deu").write_text("DE  Satz 7\nnirgends\n", encoding="utf-8")
    (tests / "de-en.test.en").write_text("en-01\tsentence 8\n", encoding="utf-8")
    rules = CleaningRules.parse([f"exclude={tests}/*.deu", f"exclude={tests}/*.en"], clean=False)
    assert CleaningRules(exclude=tests).exclude == CleaningRules(exclude=[tests]).exclude == [str(tests)]  # type: ignore
    options = {"cache_dir": tmp_path / "cache", "cleaning": rules}
    found = load_bitext({"de": str(tmp_path / "de.tsv")}, **options)
    assert [pair["target"] for pair in found if pair["target"] in ("sentence 7", "sentence 8")] == []
    assert found.report.languages["de"].removed == {"exclude": 2}
    (tests / "de-en.test.en").write_text("en-01\tsentence 8\nen-02\tsentence 9\n", encoding="utf-8")
    assert len(load_bitext({"de": str(tmp_path / "de.tsv")}, **options)) == 47, "a changed test set is read again"


def test_sentences_of_test_sets_are_no_negatives(tmp_path: Path) -> None:
    (tmp_path / "gold.txt").write_text("A gold sentence.\n", encoding="utf-8")
    pair = {"source": "Ein Hund.", "target": "A dog.", "target_negatives": ["A  GOLD sentence.", "A cat."]}
    only = {"source": "Ein Haus.", "target": "A house.", "target_negatives": ["A gold sentence."]}
    options: Any = {"cleaning": {"exclude": [tmp_path / "gold.txt"]}, "cache_dir": tmp_path / "cache"}
    found = load_bitext({"de": [pair, only]}, **options)
    assert [row.get("target_negatives") for row in found] == [["A cat."], None]


def test_pairs_are_cleaned_again_when_the_tokenizer_of_a_rule_changes(
    tmp_path: Path, encoder_folders: dict[str, Path]
) -> None:
    _write(tmp_path / "de.tsv", [("Die Katze trinkt Milch.", "She lives in"), ("Die Katze", "The cat")])
    folder = shutil.copytree(encoder_folders["bert"], tmp_path / "tokenizer")
    rules = CleaningRules(min_pieces=3, tokenizer=str(folder))
    options = {"cache_dir": tmp_path / "cache", "cleaning": rules}
    assert len(load_bitext({"de": str(tmp_path / "de.tsv")}, **options)) == 1
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.pre_tokenizer = Split("", "isolated")  # each character is a piece
    tokenizer.save(str(folder / "tokenizer.json"))
    assert len(load_bitext({"de": str(tmp_path / "de.tsv")}, **options)) == 2


def test_the_cache_is_used_until_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _write(tmp_path / "a.tsv", _sentences("de", 10))
    read: list[str] = []
    rows = cache.read_linked_pairs
    monkeypatch.setattr(cache, "read_linked_pairs", lambda source: (read.append(source.path), rows(source))[1])

    def load(**options: object) -> int:
        read.clear()
        load_bitext({"de": path}, cache_dir=tmp_path / "cache", **options)  # type: ignore[arg-type]
        return len(read)

    assert load() == 1
    assert load() == 0
    assert load(cleaning=CleaningRules(min_characters=2)) == 1
    assert load(columns=(1, 0)) == 1
    assert load() == 0
    os.utime(path, (1, 1))
    assert load() == 1
    _write(path, _sentences("de", 11))
    assert load() == 1
    assert len(load_bitext({"de": path}, cache_dir=tmp_path / "cache")) == 11


def test_the_identity_is_that_of_the_pairs_not_of_the_files(tmp_path: Path) -> None:
    def load(name: str, pairs: list[tuple[str, str]]) -> Bitext:
        return load_bitext({"de": _write(tmp_path / name, pairs)}, cache_dir=tmp_path / "cache")

    pairs = _sentences("de", 1000)
    first = load("a.tsv", pairs)
    assert load("moved.tsv", pairs).identity == first.identity
    pairs[501] = ("ein anderer Satz", pairs[501][1])
    assert load("edited.tsv", pairs).identity != first.identity
    assert len({first.identity, first[1:].identity, first[:-1].identity}) == 3


def test_one_bad_language_leaves_the_others_cached_and_nothing_half_written(tmp_path: Path) -> None:
    _write(tmp_path / "de.tsv", _sentences("de", 10))
    (tmp_path / "fr.tsv").write_text("un\tone\ndeux\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"fr\.tsv:2"):
        load_bitext(str(tmp_path / "{language}.tsv"), cache_dir=tmp_path / "cache")
    folders = sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_dir())
    assert len(folders) == 1 and folders[0].startswith("de-") and not folders[0].endswith(".part")
    bitext = load_bitext(str(tmp_path / "{language}.tsv"), cache_dir=tmp_path / "cache", on_error="skip")
    assert bitext.report.languages["fr"].bad == 1


def test_nothing_is_written_before_all_files_exist(tmp_path: Path) -> None:
    path = _write(tmp_path / "de.tsv", _sentences("de", 10))
    with pytest.raises(DataError, match="missing.tsv"):
        load_bitext({"de": path, "fr": tmp_path / "missing.tsv"}, cache_dir=tmp_path / "cache")
    with pytest.raises(OutputError, match=r"de.tsv is a file, not a folder: choose another output, work or cache"):
        load_bitext({"de": path}, cache_dir=path)
    with pytest.raises(DataError, match="max_pairs must be at least 1, not 0"):
        load_bitext({"de": path}, cache_dir=tmp_path / "cache", max_pairs=0)
    assert not (tmp_path / "cache").exists()


def test_all_pairs_removed_is_an_error_that_says_why(tmp_path: Path) -> None:
    path = _write(tmp_path / "de.tsv", _sentences("de", 10))
    with pytest.raises(DataError, match="min_source_script_share removed 10"):
        load_bitext({"ru": path}, cache_dir=tmp_path / "cache")
    assert not [entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (arrow, repeats):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 1000)

    def peak(count: int) -> int:
        path = tmp_path / f"{count}.tsv"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(
                f"Satz {number % (count // 2)}\tsentence {number % (count // 2)}\n" for number in range(count)
            )
        tracemalloc.start()
        assert len(load_bitext({"de": path}, cache_dir=tmp_path / "cache")) == count // 2
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return memory

    peak(2_000)  # what is loaded once
    assert peak(12_000) < peak(3_000) + 600_000


@pytest.mark.parametrize("language", ["zh", "tl"])
def test_real_pairs_are_hardly_touched(assets: Path, tmp_path: Path, language: str) -> None:
    path = assets / "data" / "train" / f"{language}-en.tsv.xz"
    counts = load_bitext({language: path}, cache_dir=tmp_path, max_pairs=5000).report.total
    assert counts.retained == 5000
    assert counts.read < 5100


def test_negatives_of_records_are_stored_and_a_record_without_text_is_a_bad_row(tmp_path: Path) -> None:
    rows = [{"source": f"Hund {number}", "target": f"dog {number}", "target_negatives": ["cat"]} for number in range(3)]
    bitext = load_bitext({"de": rows}, cache_dir=tmp_path)
    assert bitext.count_pairs_with(*NEGATIVES) == 3 and bitext[0]["target_negatives"] == ["cat"]
    bad = [{"de": None if number == 1 else f"Hund {number}", "en": f"dog {number}"} for number in range(4)]
    assert len(load_bitext(bad, on_error="skip", cleaning=None, cache_dir=tmp_path)) == 3


def test_each_source_is_cleaned_by_its_target_language(tmp_path: Path) -> None:
    for name, target in (("en", "A dog sleeps here."), ("ru", "Собака спит здесь.")):
        _write(tmp_path / f"{name}.tsv", [(f"Ein Hund Nummer {number}", f"{target} {number}") for number in range(4)])
    sources = [BitextSource("de", str(tmp_path / f"{name}.tsv"), name) for name in ("en", "ru")]
    assert len(load_bitext(sources, cache_dir=tmp_path / "cache")) == 8


def test_dev_pairs_are_held_out_for_any_number_of_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_xsent.data.bitext._ROWS_AT_ONCE", 4)
    for count in range(18, 26):
        rows = [(f"Hund {number}", f"dog {number}") for number in range(count)]
        train, dev = load_bitext({"de": rows}, cleaning=None, cache_dir=tmp_path).train_dev_split(5)
        assert (len(train), len(dev)) == (count - 5, 5)
