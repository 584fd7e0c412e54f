from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hf_xsent.data.benchmarks.tatoeba import load_tatoeba, tatoeba_groups
from hf_xsent.data.languages import find_language
from hf_xsent.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("deu", "Hallo\n Ja\u2028 \n\n"), ("cmn", "你好\n是\n不\n")):
        (tmp_path / f"tatoeba.{name}-eng.{name}").write_text(text, encoding="utf-8")
        (tmp_path / f"tatoeba.{name}-eng.eng").write_text("Hello\nYes\nNo\n", encoding="utf-8")
    return tmp_path


def test_lines_stay_paired(folder: Path) -> None:
    german = load_tatoeba(folder, ["deu"])[0]
    assert german.language == "deu"
    assert german.sources == ["Hallo", "Ja", ""]
    assert german.targets == ["Hello", "Yes", "No"]


def test_languages_go_by_any_code_in_the_order_asked_for(folder: Path) -> None:
    assert [test_set.language for test_set in load_tatoeba(folder)] == ["cmn", "deu"]
    assert [test_set.language for test_set in load_tatoeba(folder, ["de", "zh"])] == ["deu", "cmn"]
    with pytest.raises(DataError, match="has no 'fra', only cmn, deu"):
        load_tatoeba(folder, ["fra"])
    with pytest.raises(DataError, match="unknown language code 'German'; the code of German is 'de'"):
        load_tatoeba(folder, ["German"])


def test_files_may_be_compressed(folder: Path) -> None:
    for path in folder.glob("tatoeba.deu-eng.*"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert load_tatoeba(folder, ["de"])[0].targets == ["Hello", "Yes", "No"]


def test_broken_folders_are_explained(folder: Path, tmp_path: Path) -> None:
    (folder / "tatoeba.deu-eng.eng").write_text("Hello\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"deu-eng\.deu has 3 lines but .*deu-eng\.eng has 1"):
        load_tatoeba(folder, ["de"])
    (folder / "tatoeba.cmn-eng.cmn").unlink()
    with pytest.raises(DataError, match=r"no such file: .*cmn-eng\.cmn"):
        load_tatoeba(folder, ["zh"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no files such as tatoeba.deu-eng.deu"):
        load_tatoeba(tmp_path / "empty")
    with pytest.raises(DataError, match=r"cmn-eng\.eng is a file: give a folder of files such as tatoeba.deu"):
        load_tatoeba(folder / "tatoeba.cmn-eng.eng")
    with pytest.raises(DataError, match="no such file or folder: /nowhere/at/all"):
        load_tatoeba("/nowhere/at/all")


def test_empty_files_are_named(folder: Path) -> None:
    for path in folder.glob("tatoeba.deu-eng.*"):
        path.write_text("")
    with pytest.raises(DataError, match=r"tatoeba\.deu-eng\.deu and tatoeba\.deu-eng\.eng are empty: download both"):
        load_tatoeba(folder)


def test_the_hub_gives_the_same_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"sentence1": ["Hallo", "Ja\u2028", ""], "sentence2": ["Hello", "Yes", "No"]}
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda repo: ["cmn-eng", "deu-eng", "other"])
    monkeypatch.setattr(datasets, "load_dataset", lambda repo, config, split, **_: rows)
    assert load_tatoeba("owner/tatoeba", ["de"]) == load_tatoeba(folder, ["de"])
    with pytest.raises(DataError, match="owner/tatoeba has no 'fr', only cmn, deu"):
        load_tatoeba("owner/tatoeba", ["fr"])
    rows["sentence2"] = ["Hello", None, "No"]
    with pytest.raises(DataError, match="owner/tatoeba:deu-eng, sentence2: sentence 2 is not text but None"):
        load_tatoeba("owner/tatoeba", ["de"])


def test_groups_hold_what_their_names_say() -> None:
    groups = tatoeba_groups()
    for name, languages in groups.items():
        assert len(set(languages)) == len(languages) == (int(name) if name != "41" else 0)
        assert set(languages) <= set(groups["112"])
        for language in languages:
            find_language(language)
    assert set(groups["28"]) < set(groups["36"])


def test_the_real_folder_has_all_languages(assets: Path) -> None:
    sets = load_tatoeba(assets / "data" / "tatoeba")
    assert [test_set.language for test_set in sets] == tatoeba_groups()["112"]
    chosen = load_tatoeba(assets / "data" / "tatoeba", ["5", "de", "4"])
    assert [test_set.language for test_set in chosen] == [*tatoeba_groups()["5"], "deu"]
    full = {test_set.language for test_set in sets if len(test_set.sources) == 1000}
    assert set(tatoeba_groups()["36"]) & full == set(tatoeba_groups()["28"])
