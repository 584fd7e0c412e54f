from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.formats import read_linked_pairs, read_pairs
from hf_xsent.data.readers.hub import hub_commit
from hf_xsent.data.readers.resolving import language_of_name, resolve_sources
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError, RecipeError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("de-en.tsv", "fr-en.tsv", "zh-Hans-en.tsv", "more-de.tsv", "README.tsv"):
        (tmp_path / name).write_text("a\tb\n", encoding="utf-8")
    (tmp_path / "opus-pt-BR-en.tsv").touch()
    (tmp_path / "OPUS.fr-en.fr").touch()
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "de-en.tsv").write_text("a\tb\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _paths(data: object, **options: str) -> dict[str, list[str]]:
    resolved = resolve_sources(data, **options)
    return {language: [source.path for source in sources] for language, sources in resolved.items()}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("de-en.tsv", {"de": ["de-en.tsv"]}),
        ("[dfz]*-en.tsv", {"de": ["de-en.tsv"], "fr": ["fr-en.tsv"], "zh-Hans": ["zh-Hans-en.tsv"]}),
        (["und=de-en.tsv", "und=fr-en.tsv"], {"und": ["de-en.tsv", "fr-en.tsv"]}),
        ({"und": ["de-en.tsv", "fr-en.tsv"]}, {"und": ["de-en.tsv", "fr-en.tsv"]}),
        ("{language}-en.tsv", {"de": ["de-en.tsv"], "fr": ["fr-en.tsv"], "zh-Hans": ["zh-Hans-en.tsv"]}),
        (
            {"fr": "fr-en.tsv", "de": ["de-en.tsv", "more-*.tsv"]},
            {"fr": ["fr-en.tsv"], "de": ["de-en.tsv", "more-de.tsv"]},
        ),
        ({"de": "{language}-en.tsv"}, {"de": ["de-en.tsv"]}),
        (["de=de-en.tsv", "fr=fr-en.tsv", "de=more-de.tsv"], {"de": ["de-en.tsv", "more-de.tsv"], "fr": ["fr-en.tsv"]}),
        ([BitextSource("fra", "fr-en.tsv")], {"fra": ["fr-en.tsv"]}),
        (Path("README.tsv"), {"und": ["README.tsv"]}),
        ("owner/name:de-en@main", {"de": ["owner/name:de-en@main"]}),
        ("opus*-{language}-en.tsv", {"pt-BR": ["opus-pt-BR-en.tsv"]}),
    ],
)
def test_every_way_to_name_bitext(folder: Path, data: object, expected: dict[str, list[str]]) -> None:
    assert _paths(data) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("xx-*.tsv", r"no file matches xx-\*\.tsv"),
        ("{language}-fr.tsv", "no file matches {language}-fr.tsv, where {language} is a code"),
        ({"de": "dee-en.tsv"}, "no such file or folder: dee-en.tsv; did you mean 'de-en.tsv'"),
        ({"qq": "de-en.tsv"}, "unknown language code 'qq'"),
        (["qq=de-en.tsv"], "unknown language code 'qq'"),
        (["german=de-en.tsv"], "unknown language code 'german'; the code of German is 'de'"),
        ({"de": "de-en.tsv,none.tsv"}, "no such file: none.tsv"),
        ("de-en.tvs", "no such file or folder: de-en.tvs; if .* Hub, write de-en.tvs@main; did you mean 'de-en.tsv'"),
        ("x" * 5000 + ".tsv", "no such file or folder: x+.tsv"),
        ("train/pairs", "no such file or folder: train/pairs; if .* Hub, write train/pairs@main"),
        ("fr=both.de-fr", "both.de-fr; join two files by a comma, such as both.de-fr.de,both.de-fr.fr"),
        ({"de": "a,b,c"}, "no such file: a"),
        ("{language}-tr.tsv", "all-tr.tsv: 'all' is not a language code: rename the file"),
        (["de=de-en.tsv,", "fr-en.tsv"], "de-en.tsv,: two files are joined by a comma without spaces"),
        ([], "no bitext given"),
        (["README.tsv", "more-de.tsv"], "README.tsv and more-de.tsv have no language code in their names, .*und="),
        (["README.tsv", "und=more-de.tsv"], "README.tsv and more-de.tsv have no language code in their names, .*und="),
        ({"de": "pipe"}, "pipe is a pipe or device, and input is read more than once: write it to a file"),
        ({"de": "de-en.tsv,pipe"}, "pipe is a pipe or device"),
        (None, "bitext is a path, language=path, or pairs in memory, not None"),
        (3, "not 3"),
        ({"de": None}, "de has no pairs: give at least one, or drop de"),
        ({"de": ["de-en.tsv", None]}, "bitext is a path, language=path, or pairs in memory, not None"),
        (["de=train/"], r"train .*save_to_disk.*: name files, .*train/{language}-en\.tsv"),
    ],
)
def test_what_cannot_be_found_raises(folder: Path, data: object, message: str) -> None:
    os.mkfifo(folder / "pipe")
    for name in ("both.de-fr.de", "both.de-fr.fr", "all-tr.tsv"):
        (folder / name).touch()
    with pytest.raises(DataError, match=message):
        _paths(data)


@pytest.mark.parametrize(
    ("name", "target", "language"),
    [
        ("de.tsv", "en", "de"),
        ("x/pairs.de-en.tsv.gz", "en", "de"),
        ("pairs.en-de.csv", "en", "de"),
        ("eng_deu.jsonl", "en", "deu"),
        ("x/OPUS.en-zh_TW", "en", "zh_TW"),
        ("sr@latin.po", "en", "sr@latin"),
        ("a.de,a.en", "en", "de"),
        ("de-en.tsv", "de", "en"),
        ("owner/parallel-talks:en-tr@v1.0", "en", "tr"),
        ("owner/en-tr@refs/pr/1", "en", "tr"),
        ("talks.sr@latin-en", "en", "sr@latin"),
        ("en.tsv", "en", None),
        ("de-fr.tsv", "en", None),
        ("news.tsv", "en", None),
        ("talks-en-pt_BR", "en", "pt_BR"),
        ("opus-zh-Hans-en.tsv", "en", "zh-Hans"),
        ("news-de.tsv", "en", None),
        ("de.pairs.tsv", "en", None),
        ("No.tsv", "en", None),
        ("run.tsv", "en", None),
        ("max-001.jsonl", "en", None),
        ("ace_Latn.tsv", "en", "ace_Latn"),
        ("deu-eng.tsv", "en", "deu"),
        ("a.en,a.de", "en", "de"),
        ("a.eng,a.deu", "en", "deu"),
        ("owner/opus-100", "en", None),
    ],
)
def test_the_language_in_a_name(name: str, target: str, language: str | None) -> None:
    assert language_of_name(name, target) == language


PAIRS = [("ein Hund", "a dog"), ("eine Katze", "a cat")]


def _write(path: Path, names: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Write rows under these names in the format of the path."""
    if path.suffix in (".tsv", ".csv"):
        separator = "\t" if path.suffix == ".tsv" else ","
        path.write_text("".join(f"{separator.join(row)}\n" for row in [names, *rows]), "utf-8")
    else:
        table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        else:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()), "utf-8")
    return str(path)


def _read(data: object, **options: object) -> dict[str, list[tuple[str, str]]]:
    resolved = resolve_sources(data, **options)  # type: ignore[arg-type]
    return {code: [pair for source in sources for pair in read_pairs(source)] for code, sources in resolved.items()}


GERMAN = "Der Hund schläft den ganzen Tag unter dem großen Tisch in der Küche, weil es draußen regnet."
ENGLISH = "The dog sleeps under the big kitchen table for the whole day, because it is raining outside."
TETUM = "Asu toba iha meza boot okos iha dapur laran loron tomak, tanba udan monu maka'as iha li'ur."


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("name", ["talks.en-de", "de", "talks.de-en"])
def test_swapped_columns_are_found_by_their_text(tmp_path: Path, name: str, suffix: str) -> None:
    pairs = [(f"{GERMAN} {number}", f"{ENGLISH} {number}") for number in range(3)]
    path = _write(tmp_path / f"{name}.{suffix}", ("source", "target"), [pair[::-1] for pair in pairs])
    with pytest.raises(
        DataError,
        match=rf"{name}.{suffix}: source and target, stated as German and English, seem .* 1 0",
    ):
        _read(path)
    assert _read(path, columns=(1, 0)) == {"de": pairs}
    assert _read(f"und={path}", target_language="und") == {"und": [pair[::-1] for pair in pairs]}
    assert _read(_write(tmp_path / f"{name}.{suffix}", ("source", "target"), pairs)) == {"de": pairs}


def test_swapped_pairs_in_memory_and_of_two_files_are_found(tmp_path: Path) -> None:
    records = [{"source": f"{ENGLISH} {number}", "target": f"{GERMAN} {number}"} for number in range(3)]
    for data in ({"de": records}, {"talks-en-de": Dataset.from_list(records)}):
        with pytest.raises(DataError, match="^the de pairs: source and target, .* seem to be swapped"):
            _read(data)
    (tmp_path / "x.txt").write_text(f"{ENGLISH}\n" * 2)
    (tmp_path / "y.txt").write_text(f"{GERMAN}\n" * 2)
    cure = "seem to be swapped: exchange the names of the two files, or join them in the other order if their names "
    with pytest.raises(DataError, match=f"{cure}have no language codes, or check"):
        _read(f"de={tmp_path / 'x.txt'},{tmp_path / 'y.txt'}")


def test_one_known_language_is_enough_to_find_swapped_columns(tmp_path: Path) -> None:
    for pair, is_swapped in (((TETUM, ENGLISH), False), ((ENGLISH, TETUM), True)):
        path = _write(tmp_path / "tet.tsv", ("source", "target"), [pair] * 3)
        if is_swapped:
            with pytest.raises(DataError, match="stated as Tetum and English, seem to be swapped"):
                _read(f"tet={path}")
        else:
            assert _read(f"tet={path}") == {"tet": [pair] * 3}


@pytest.mark.parametrize("language", ["de", "fr", "en", "und"])
def test_texts_of_another_language_or_of_one_are_not_swapped_but_named(
    tmp_path: Path, language: str, caplog: pytest.LogCaptureFixture
) -> None:
    for pair, target in (((GERMAN, GERMAN), "German"), ((ENGLISH, ENGLISH), "English")):
        caplog.clear()
        assert _read({language: [pair] * 2}) == {language: [pair] * 2}
        is_stated = language != "und"
        target_side = "the target side seems to be German, and is stated as English"
        assert (target_side in caplog.text) == (is_stated and target == "German")
        source = f"the source side seems to be {target}, and is stated as French"
        assert (source in caplog.text) == (language == "fr")


@pytest.mark.parametrize("columns", [["b", "a"], {"de": ["b", "a"]}])
def test_columns_may_be_lists(tmp_path: Path, columns: object) -> None:
    path = _write(tmp_path / "pairs.tsv", ("b", "a"), PAIRS)
    assert _read(f"de={path}", columns=columns) == {"de": PAIRS}


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_origin_and_licence_are_columns_in_any_case(tmp_path: Path, suffix: str) -> None:
    names = ("Source", "Target", "Origin", "License")
    path = _write(tmp_path / f"de.{suffix}", names, [("ein Hund", "a dog", "web", "CC0")])
    ((source,),) = resolve_sources(path).values()
    assert list(read_linked_pairs(source)) == [("ein Hund", "a dog", None, None, None, "web", "CC0")]


@pytest.mark.parametrize("data", ["a.en,a.de", "de=a.en,a.de", {"de": "a.en,a.de"}, "en.txt,de.txt", "a.eng,a.deu"])
def test_joined_files_are_ordered_by_the_codes_in_their_names(folder: Path, data: object) -> None:
    for name in ("a.{}", "{}.txt"):
        for code, other, side in (("de", "deu", 0), ("en", "eng", 1)):
            text = "".join(f"{pair[side]}\n" for pair in PAIRS)
            for spelling in (code, other):
                (folder / name.format(spelling)).write_text(text, "utf-8")
    ((language, pairs),) = _read(data).items()
    assert language == ("deu" if "deu" in str(data) else "de") and pairs == PAIRS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["de=p.tsv", "deu=q.tsv"], "de and deu are codes of one language"),
        ({"pt-BR": "p.tsv", "pt_br": "q.tsv"}, "pt-BR and pt_br are codes of one language"),
    ],
)
def test_two_codes_of_one_language_are_refused(folder: Path, data: object, message: str) -> None:
    for name in ("p.tsv", "q.tsv"):
        (folder / name).write_text("ein Hund\ta dog\n", "utf-8")
    with pytest.raises(DataError, match=message):
        _paths(data)


def test_one_file_may_hold_several_pairs_of_columns_and_varieties_are_languages(folder: Path) -> None:
    (folder / "m.tsv").write_text("ein Hund\tder Hund\ta dog\n", "utf-8")
    first, second = BitextSource("de", "m.tsv", columns=(0, 2)), BitextSource("de", "m.tsv", columns=(1, 2))
    assert len(_read([first, second])["de"]) == 2
    assert list(_paths({"zh_Hans": "m.tsv", "zh_Hant": "de-en.tsv", "zh": "fr-en.tsv"})) == ["zh_Hans", "zh_Hant", "zh"]


def test_a_stated_code_may_name_a_script_as_gettext_does(folder: Path) -> None:
    for code, text in (("sr", "пас"), ("sr@latin", "pas")):
        (folder / f"{code}-en.tsv").write_text(f"{text}\tdog\n", "utf-8")
    expected = {"sr": [("пас", "dog")], "sr@latin": [("pas", "dog")]}
    for data in (["sr=sr-en.tsv", "sr@latin={language}-en.tsv"], dict(expected)):
        assert _read(data) == expected
    assert [*_paths({"talks.sr@latin-en": "sr-en.tsv"})] == ["sr@latin"]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_the_language_of_a_file_without_a_code_in_its_name_is_that_of_its_columns(tmp_path: Path, suffix: str) -> None:
    paths = {
        code: _write(tmp_path / f"{name}.{suffix}", ("id", "en", code), [("1", *pair[::-1]) for pair in PAIRS])
        for name, code in (("news", "de"), ("talks", "fr"))
    }
    assert _read([*paths.values()]) == {"de": PAIRS, "fr": PAIRS}
    assert [*_read(f"und={paths['de']}")] == ["und"] and [*_paths(paths["de"], target_language="de")] == ["en"]
    for first, second in (("de_sentence", "en_sentence"), ("text_de", "text_en"), ("German", "English")):
        path = _write(tmp_path / f"named.{suffix}", ("ID", first, second), [("1", *PAIRS[0])])
        assert _read(path) == {"de": PAIRS[:1]}
    several = _write(tmp_path / f"several.{suffix}", ("en", "de", "fr"), [("a dog", "ein Hund", "un chien")])
    assert [*_paths(several)] == ["und"]


def test_one_column_is_not_both_sides(tmp_path: Path) -> None:
    path = _write(tmp_path / "ende.tsv", ("en", "de"), [("a dog", "ein Hund"), ("a cat", "eine Katze")])
    with pytest.raises(DataError, match=r"cannot choose among the columns en, de; if de is their language, state it"):
        _read(f"en={path}")


@pytest.mark.parametrize(
    ("names", "split", "read"),
    [
        (["a/x.parquet", "de.parquet", "pairs.parquet", ".cache/x.parquet", "more.csv"], "train", 3),
        (["train/0.parquet", "train-1.parquet"], "train", 2),
        (["dev/0.parquet", "x_valid.parquet"], "validation", 2),
        (["0.parquet", "1.parquet"], "validation", 2),
        (["dev.parquet"], "test", 1),
        (["train.parquet", "news.parquet"], "train", "of the split train, .* name .*, such as de=.*/train"),
        (["train.parquet", "x.dev.parquet"], "train", "of the split train and validation"),
        (["train.parquet"], "validation", "of the split train, .* for validation: name those"),
        (["test.parquet", "dev.parquet"], "test", "of the split test and validation"),
        (["test/x.parquet", "x.parquet"], "test", "of the split test"),
    ],
)
def test_a_folder_is_all_its_parquet_files_unless_their_names_are_of_several_splits(
    tmp_path: Path, names: list[str], split: str, read: int | str
) -> None:
    for name in names:
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        _write(tmp_path / "f" / name, ("source", "target"), PAIRS[:1])
    data = {"de": f"{tmp_path}/f/"}
    if isinstance(read, int):
        assert _read(data, split=split) == {"de": PAIRS[:1] * read}
        source = BitextSource("de", data["de"], split=split)
        assert len(load_bitext([source], cleaning=None, cache_dir=tmp_path)) == read
    else:
        with pytest.raises(DataError, match=read):
            _read(data, split=split)


def test_a_stated_column_has_the_language_not_one_that_numbers_the_rows(tmp_path: Path) -> None:
    path = _write(tmp_path / "numbered.tsv", ("no", "text", "en"), [("1", *PAIRS[0]), ("2", *PAIRS[1])])
    assert _read(path, columns=("text", "en")) == {"und": PAIRS}


def test_the_language_of_a_folder_is_in_its_name_or_in_those_of_its_files(folder: Path) -> None:
    for name in ("talks.de-en", "news"):
        (folder / name).mkdir()
        for code in ("fr", "tr"):
            _write(folder / name / f"{code}.parquet", ("source", "target"), PAIRS)
    assert _paths("talks.de-en") == {"de": ["talks.de-en/fr.parquet", "talks.de-en/tr.parquet"]}
    assert _paths("news") == {"fr": ["news/fr.parquet"], "tr": ["news/tr.parquet"]}
    assert _paths("talks.{language}-en") == _paths("talks*") == _paths("talks.de-en")


def test_the_language_of_records_of_opus_is_that_of_their_keys(tmp_path: Path) -> None:
    (tmp_path / "news.jsonl").write_text('{"id": "1", "translation": {"en": "a dog", "de": "ein Hund"}}\n')
    assert _read(str(tmp_path / "news.jsonl")) == {"de": PAIRS[:1]}


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_the_column_language_of_a_file_has_the_language_of_each_pair(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = _write(tmp_path / f"p.{suffix}", ("source", "target", "language"), [(*PAIRS[0], "de"), (*PAIRS[1], "fr")])
    assert _read(path) == {"de": PAIRS[:1], "fr": PAIRS[1:]}
    assert _read(f"fr={path}") == {"fr": PAIRS[1:]} and _read(f"und={path}") == {"und": PAIRS}
    with pytest.raises(DataError, match="has no pairs of sw, but 1 of de, 1 of fr, by its column of languages"):
        _read(f"sw={path}")
    own = _write(tmp_path / f"own.{suffix}", ("lang", "theirs", "ours"), [("de", *PAIRS[0]), ("fr", *PAIRS[1])])
    assert _read(own, columns=("theirs", "ours")) == {"de": PAIRS[:1], "fr": PAIRS[1:]}
    names = [f"Their {suffix}", f"Our {suffix}"]
    own = _write(tmp_path / f"own.{suffix}", ("Lang", *names), [("de-AT", *PAIRS[0]), ("mon", *PAIRS[1])])
    assert _read(own, columns=names) == {"de-AT": PAIRS[:1], "mon": PAIRS[1:]}
    for code, pairs in (("de", PAIRS[:1]), ("mn", PAIRS[1:])):
        assert _read(f"{code}={own}", columns=names) == {code: pairs}
    both = _write(tmp_path / f"both.{suffix}", ("source", "target", "lang"), [(*PAIRS[0], "de-AT"), (*PAIRS[1], "de")])
    assert _read(both) == {"de-AT": PAIRS[:1], "de": PAIRS[1:]} and _read(f"de={both}") == {"de": PAIRS}
    style = _write(tmp_path / f"style.{suffix}", ("source", "target", "lang"), [(*pair, "formal") for pair in PAIRS])
    assert _read(f"de={style}") == {"de": PAIRS}
    assert "pairs whose language is 'formal' are read as de" in caplog.text
    path = _write(tmp_path / f"q.{suffix}", ("source", "target", "Lang"), [(*PAIRS[0], "de"), (*PAIRS[1], "slang")])
    with pytest.raises(DataError, match=rf"q.{suffix}:\d: the language is 'slang', not a code"):
        _read(path)


@pytest.mark.parametrize("name", ["a,b.tsv", "a,b,c.tsv"])
def test_a_file_with_commas_in_its_name_is_one_file(folder: Path, name: str) -> None:
    (folder / name).write_text("a\tb\n", encoding="utf-8")
    (folder / f"de-{name}").write_text("a\tb\n", encoding="utf-8")
    assert list(read_pairs(BitextSource("de", name))) == [("a", "b")]
    assert _paths(f"{{language}}-{name}") == {"de": [f"de-{name}"]}


def test_the_folder_of_joined_files_may_have_a_comma(folder: Path) -> None:
    (folder / "x,y").mkdir()
    for code, text in (("de", "a\n"), ("en", "b\n")):
        (folder / "x,y" / f"p.{code}").write_text(text, encoding="utf-8")
    assert _read("x,y/p.de,x,y/p.en") == {"de": [("a", "b")]}


def test_each_of_two_joined_files_may_be_in_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    for code, text in (("de", "a\n"), ("en", "b\n")):
        (folder / f"p.{code}").write_text(text, encoding="utf-8")
    assert _read("de=~/p.de,~/p.en") == {"de": [("a", "b")]}


def test_one_file_is_not_both_sides(folder: Path) -> None:
    (folder / "p.de").write_text("a\n", encoding="utf-8")
    with pytest.raises(DataError, match="source and target are both p.de: give two files"):
        _paths("de=p.de,./p.de")


@pytest.mark.parametrize("path", ["d [2]/p.en-de.de,d [2]/p.en-de.en", "d [2]/{language}-en.tsv"])
def test_folders_may_have_brackets_in_their_names(folder: Path, path: str) -> None:
    (folder / "d [2]").mkdir()
    for name, text in (("p.en-de.de", "ein Hund"), ("p.en-de.en", "a dog"), ("de-en.tsv", "ein Hund\ta dog")):
        (folder / "d [2]" / name).write_text(f"{text}\n", encoding="utf-8")
    assert _read(path) == _read(f"de={path}") == {"de": PAIRS[:1]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("p/*{language}-en.tsv", {"deu": ["p/opus-deu-en.tsv"], "fr": ["p/ted-fr-en.tsv"]}),
        ("p/*-{language}-*.tsv", {"deu": ["p/opus-deu-en.tsv"], "fr": ["p/ted-fr-en.tsv"]}),
        ("p/q/**/{language}*.tsv", {"sw": ["p/q/sw.tsv", "p/q/r/sw.tsv"]}),
        ("p/q/**/{language}.tsv", {"sw": ["p/q/sw.tsv", "p/q/r/sw.tsv"]}),
    ],
)
def test_a_wildcard_neither_cuts_codes_nor_skips_files(folder: Path, path: str, expected: dict[str, list[str]]) -> None:
    for name in ("opus-deu-en.tsv", "ted-fr-en.tsv", "q/sw.tsv", "q/r/sw.tsv"):
        (folder / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "p" / name).touch()
    paths_of = {language: sorted(paths, key=len) for language, paths in _paths(path).items()}
    assert paths_of == expected


def test_a_language_in_two_joined_paths_says_what_to_do(folder: Path) -> None:
    with pytest.raises(DataError, match="joined paths: name the language, as in de=p"):
        _paths("p.{language},p.en")


def test_a_name_that_is_neither_file_nor_data_set_raises(folder: Path) -> None:
    with pytest.raises(DataError, match=r"owner/none: not a file, and the data set cannot be opened \(.+\)"):
        list(read_pairs(BitextSource("de", "owner/none")))  # the tests run offline
    assert hub_commit("owner/none") == ""  # as one that only the cache of datasets has


def test_columns_are_given_per_language_and_per_file(folder: Path) -> None:
    (folder / "mined.tsv").write_text("0.9\tHund\tdog\n")
    data = {"de": str(folder / "mined.tsv")}
    for key in ("de", "mined.tsv", str(folder / "mined.tsv")):
        columns = parse_columns([f"{key}=1,2"])
        ((source,),) = resolve_sources(data, columns=columns).values()
        assert source.columns == (1, 2)
    (folder / "others.tsv").write_text("dog\tHund\n")
    data["fr"] = str(folder / "others.tsv")
    mined, others = (
        source for (source,) in resolve_sources(data, columns=parse_columns(["1", "0", "de=1,2"])).values()
    )
    assert (mined.columns, others.columns) == ((1, 2), (1, 0))
    with pytest.raises(DataError, match="columns are given for 'sw', which is neither a language nor a file"):
        resolve_sources(data, columns=parse_columns(["sw=1,2"]))
    for words in (["0", "0"], ["de=1"], ["de="], ["1", ""]):
        with pytest.raises(RecipeError, match="two different names or numbers"):
            parse_columns(words)
    with pytest.raises(RecipeError, match="two different names or numbers, source and target, not 1"):
        resolve_sources(data, columns={"de": 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("columns", [(1, 0), {"fr": (1, 0)}, {"fr.po": (1, 0)}])
def test_columns_of_files_without_columns_are_refused(tmp_path: Path, columns: object) -> None:
    (tmp_path / "fr.po").write_text('msgid "dog"\nmsgstr "chien"\n')
    (tmp_path / "fr.tsv").write_text("dog\tchien\n")
    catalogue = f"fr={tmp_path / 'fr.po'}"
    with pytest.raises(DataError, match=r"fr\.po has no columns .*: drop columns, or state the two languages in the"):
        resolve_sources(catalogue, columns=columns)
    if "fr.po" not in columns:
        assert _read([catalogue, f"fr={tmp_path / 'fr.tsv'}"], columns=columns) == {"fr": [("chien", "dog")] * 2}
