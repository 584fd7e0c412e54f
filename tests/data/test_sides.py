"""Both sides of bitext, paired or shuffled independently, and two unpaired files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.data.bitext import Bitext, load_bitext
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import DataError
from hf_xsent.training.bitext import load_train_and_dev
from hf_xsent.training.settings import DataSettings

Pairs = list[tuple[str, str]]


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def _bitext(folder: Path, pairs: Pairs) -> Bitext:
    for language, some in (("de", pairs[:10]), ("fr", pairs[10:])):
        _write(folder / f"{language}.tsv", ["\t".join(pair) for pair in some])
    files = {language: str(folder / f"{language}.tsv") for language in ("de", "fr")}
    return load_bitext(files, cleaning=None, cache_dir=folder / "cache")


def test_paired_rows_are_those_of_the_bitext(pairs: Pairs, tmp_path: Path) -> None:
    bitext = _bitext(tmp_path, pairs)
    sides = TextSides.from_bitext(bitext)
    assert sides.ranges == bitext.ranges and len(sides) == 16
    assert sides.__getitems__([11, 3, 0]) == bitext.__getitems__([11, 3, 0])


def test_independent_shuffling_retains_every_sentence_and_changes_the_order(pairs: Pairs, tmp_path: Path) -> None:
    bitext = _bitext(tmp_path, pairs)
    shuffled = TextSides.from_bitext(bitext, shuffle_independently=True)
    rows = shuffled.__getitems__(range(16))
    for language, some in (("de", pairs[:10]), ("fr", pairs[10:])):
        of_language = [row for row in rows if row["language"] == language]
        for side, number in (("source", 0), ("target", 1)):
            assert sorted(row[side] for row in of_language) == sorted(pair[number] for pair in some)
    assert sum((row["source"], row["target"]) in pairs for row in rows) < 8
    assert rows == TextSides.from_bitext(bitext, shuffle_independently=True).__getitems__(range(16))


def test_of_two_files_the_longer_sets_the_rows(tmp_path: Path) -> None:
    german, english = [f"Satz {n}" for n in range(7)], [f"sentence {n}" for n in range(3)]
    sides = TextSides.from_files(_write(tmp_path / "de", german), _write(tmp_path / "en", english), tmp_path / "cache")
    rows = sides.__getitems__(range(len(sides)))
    assert sorted(row["source"] for row in rows) == german
    assert {row["target"] for row in rows} == {*english}
    assert sides.report.to_dict()[str(tmp_path / "de")]["retained"] == 7
    assert sides.languages == {"de": 7}  # as the card names it


def test_the_language_of_a_file_without_a_code_is_undetermined(tmp_path: Path) -> None:
    files = (_write(tmp_path / "news.txt", ["Satz"]), _write(tmp_path / "en.txt", ["sentence"]))
    assert [*TextSides.from_files(*files, tmp_path / "cache").languages] == ["und"]


def test_an_empty_file_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="en has no sentences: of 1 lines, 1 are empty"):
        TextSides.from_files(_write(tmp_path / "de", ["Satz"]), _write(tmp_path / "en", [""]), tmp_path / "cache")


@pytest.mark.parametrize("second", ["de", "copy"])
def test_the_same_file_for_both_languages_raises(second: str, tmp_path: Path) -> None:
    lines = [f"Satz {n}" for n in range(5)]
    de = _write(tmp_path / "de", lines)
    with pytest.raises(DataError, match="hold the same sentences; give one file of each language"):
        TextSides.from_files(de, _write(tmp_path / second, lines), tmp_path / "cache")


def test_lines_that_are_not_text_are_skipped_if_asked_for(tmp_path: Path) -> None:
    files = [_write(tmp_path / "de", ["Satz", "zwei"]), _write(tmp_path / "en", ["sentence"])]
    files[0].write_bytes(b"Satz\n\xff\nzwei\n")
    settings = DataSettings(unpaired=list(map(str, files)), on_error="skip", cache_dir=str(tmp_path / "cache"))
    sides, _ = load_train_and_dev(settings)
    assert len(sides) == 2 and sides.report.to_dict()["total"]["bad"] == 1
