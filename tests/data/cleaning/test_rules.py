from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from hf_xsent import load_bitext
from hf_xsent.data.cleaning.excluded import excluded_files
from hf_xsent.data.cleaning.report import CleaningCounts, CleaningReport
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.errors import DataError, RecipeError

OFF = CleaningRules(
    min_characters=None, max_characters=None, max_length_ratio=None, identical=False, min_source_script_share=None,
    min_target_script_share=None, copied_share=None, repeated=False,
)  # fmt: skip
LONG = "Please wait a moment while the file that you chose is opened, which may take some time."


@pytest.mark.parametrize(
    ("language", "source", "target", "rule"),
    [
        ("de", "Der Hund schläft.", "The dog sleeps.", None),
        ("de", "OpenOffice Calc", "openoffice calc", "identical"),
        ("de", "x" * 1001, "y" * 900, "max_characters"),
        ("de", "Ja.", "It would help me a lot if you could keep the area clear.", "max_length_ratio"),
        ("de", "Ja.", "Yes, of course.", None),
        ("zh", "是", "Yes, it is.", None),
        (
            "zh",
            "刘鹤、杨洁篪、陈希、张春贤、肖捷出席招待会。",
            "Liu He, Yang Jiechi, Chen Xi, Zhang Chunxian and Xiao Jie attended.",
            None,
        ),
        ("ru", "Hello world, my friend", "Hello there, dear friend", "min_source_script_share"),
        ("ru", "Тестирование Wesnoth", "A Wesnoth benchmark", None),
        ("ko", "CHISQDIST의 역을 반환합니다.", "Returns the inverse of CHISQDIST.", None),
        ("sr", "Добар дан", "Good day", None),
        ("sr", "Dobar dan", "Good day", None),
        ("sr@latin", "Добар дан", "Good day", "min_source_script_share"),
        ("ja", "今日は寒いです。", "今日は寒い", "min_target_script_share"),
        ("hi", "12 %", "12 percent", None),
        ("und", "Добар дан", "Good day", None),
        ("und", "请稍候，正在打开文件。", LONG, None),
        ("und", "它。", LONG, "max_length_ratio"),
        ("und", "Nein (不), Hund.", LONG, "max_length_ratio"),
        ("de", "please select the file before opening", "please select the file before closing", "copied_share"),
        ("de", "Tom, Mary and John Smith", "Tom, Mary or John Smith", None),
        ("sv", "Tom och Mary bor i Boston", "Tom and Mary live in Boston", None),
    ],
)
def test_the_rule_that_removes_a_pair(language: str, source: str, target: str, rule: str | None) -> None:
    assert CleaningRules().pair_checker(language)(source, target) == rule
    assert OFF.pair_checker(language)(source, target) is None


def test_short_sides_are_removed_where_asked() -> None:
    assert CleaningRules(min_characters=3).pair_checker("de")("Ja", "Yes") == "min_characters"


def test_reports_add_up_and_render_as_a_table() -> None:
    report = CleaningReport(
        {"de": CleaningCounts(5, 3, 1, {"identical": 1}), "fr": CleaningCounts(1200, 1199, 0, {"repeated": 1})}
    )
    assert report.total == CleaningCounts(1205, 1202, 1, {"identical": 1, "repeated": 1})
    assert report.to_dict()["total"]["removed"] == {"identical": 1, "repeated": 1}
    assert report.table().splitlines() == [
        "language   read  retained  bad  identical  repeated",
        "de            5         3    1          1         0",
        "fr        1,200     1,199    0          0         1",
        "total     1,205     1,202    1          1         1",
    ]


def test_the_error_for_no_pairs_names_the_rules_that_removed_them() -> None:
    with pytest.raises(
        DataError, match="removed all 9 pairs of x.tsv: repeated removed 6, identical removed 2, 1 were"
    ):
        CleaningCounts(9, 0, 1, {"identical": 2, "repeated": 6}).require_pairs("x.tsv")
    with pytest.raises(DataError, match=r"x.tsv has no pairs"):
        CleaningCounts().require_pairs("x.tsv")


def test_word_pieces_are_those_of_the_tokenizer(encoder_folders: dict[str, Path]) -> None:
    """PPA's filter: minimum pieces of each side, maximum of both, without special tokens."""
    rules = CleaningRules(min_pieces=3, max_pair_pieces=8, tokenizer=str(encoder_folders["bert"]))
    first_broken_rule = rules.pair_checker("de")
    assert first_broken_rule("Die Katze trinkt Milch.", "She lives in") is None  # 5 and 3
    assert first_broken_rule("Die Katze trinkt Milch.", "The cat") == "min_pieces"
    assert first_broken_rule("Die Katze", "The cat drinks milk.") == "min_pieces"
    assert first_broken_rule("Die Katze trinkt Milch.", "The cat drinks milk") == "max_pair_pieces"


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [(None, "add the rule tokenizer=FOLDER"), ("/nowhere/at/all", "no tokenizer in /nowhere/at/all")],
)
def test_word_pieces_need_a_tokenizer(tokenizer: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        CleaningRules(min_pieces=3, tokenizer=tokenizer).pair_checker("de")


def test_without_cleaning_only_stated_rules_apply() -> None:
    pair = "Der Hund schläft jetzt .", "Der Hund schläft jetzt ."
    assert CleaningRules.none().pair_checker("de")(*pair) is None
    assert not CleaningRules.parse(None, clean=False).repeated
    stated = CleaningRules.parse(["identical=true"], clean=False)
    assert stated == replace(CleaningRules.none(), identical=True)
    assert stated.pair_checker("de")(*pair) == "identical"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (None, "exclude: no file matches"),
        ("test.tmx.gz", "test.tmx.gz is not plain text, TSV, CSV, JSON or Parquet"),
        ("test.po", "test.po is not plain text, TSV, CSV, JSON or Parquet"),
        ("test.sgm", "test.sgm is not plain text, TSV, CSV, JSON or Parquet"),
        ("test.XML.gz", "test.XML.gz is not plain text, TSV, CSV, JSON or Parquet"),
    ],
)
def test_files_that_cannot_be_excluded_are_an_error(tmp_path: Path, file: str | None, message: str) -> None:
    if file:
        (tmp_path / file).write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        CleaningRules.parse([f"exclude={tmp_path}/{file or 'none'}*"]).files()


def test_a_file_to_exclude_may_have_brackets_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "gold [1].tsv").touch()
    assert excluded_files([f"{tmp_path}/gold [1].tsv"]) == [tmp_path / "gold [1].tsv"]


def test_an_empty_path_to_exclude_is_an_error() -> None:
    with pytest.raises(RecipeError, match="cleaning: exclude needs a value"):
        load_bitext([("Ein Hund.", "A dog.")], cleaning={"exclude": ""})


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "one.json", "a.parquet", "a.tsv", "a.src-tgt"])
def test_test_sets_in_the_formats_of_pairs_are_excluded(tmp_path: Path, name: str) -> None:
    record = {"translation": {"de": 'Der "Hund", schläft.', "en": "The dog sleeps."}, "id": 1}
    if name == "a.csv":
        text = 'de,en\n"Der ""Hund"", schläft.",The dog sleeps.\n'
    else:  # of the TSV as pandas writes it
        texts = {
            "a.tsv": '"Der ""Hund"", schläft."\tThe dog sleeps.\n',
            "a.src-tgt": 'Der "Hund", schläft. ||| The dog sleeps.\n',
            "a.json": f"[{json.dumps(record)}]",
            "one.json": json.dumps({"data": [record]}, indent=2),
        }
        text = texts.get(name, json.dumps(record))
    (tmp_path / name).write_text(text, "utf-8")
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist([record]), tmp_path / name)
    check = CleaningRules(exclude=[str(tmp_path / name)]).pair_checker("de")
    for pair in (('Der "Hund", schläft.', "Another one."), ("Noch einer.", "the dog SLEEPS.")):
        assert check(*pair) == "exclude"


def test_pairs_in_memory_and_data_sets_on_disk_are_excluded_and_hidden_files_are_not_read(tmp_path: Path) -> None:
    gold = Dataset.from_dict({"de": ["Der Hund schläft."], "en": ["The dog sleeps."]})
    gold.save_to_disk(str(tmp_path / "gold"))
    (tmp_path / "gold" / ".git").mkdir()
    (tmp_path / "gold" / ".git" / "objects").write_bytes(b"\0\xff")
    pairs = [("Der Hund schläft.", "The dog."), ("Es ist kalt.", "It is cold."), ("Wert", "Value")]
    folder = tmp_path / "gold"
    test = [("Der Hund schläft.", "The dog sleeps.")]
    for exclude in (gold, test, str(folder), f"{folder}/*", {"de": folder}, {"de": (folder,)}):
        read = load_bitext({"de": pairs}, cleaning={"exclude": exclude}, cache_dir=tmp_path / "cache")
        assert read.pairs("de") == (["Es ist kalt.", "Wert"], ["It is cold.", "Value"])


def test_a_folder_of_test_sets_is_read_with_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "bucc" / "de-en").mkdir(parents=True)
    (tmp_path / "bucc" / "de-en" / "de-en.test.de").write_text("de-000000001\tDer Hund schläft.\n", encoding="utf-8")
    check = CleaningRules(exclude=[str(tmp_path / "bucc")]).pair_checker("de")
    assert check("der hund  SCHLÄFT.", "The dog sleeps.") == "exclude"
    assert check("Die Katze schläft.", "The cat sleeps.") is None
