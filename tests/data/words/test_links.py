from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.words.links import check_links, format_links, links_of_units, parse_links
from hf_xsent.errors import DataError

PAIRS = [("ein Hund rennt", "a dog is running"), ("ja", "yes"), ("Wo ist er ?", "where is he ?")]
LINKS = ["0-0 1-1 2-3", "", "0-0 1-1 2-2"]


def _write(folder: Path, links: list[str], name: str = "de.links") -> tuple[Path, Path]:
    pairs = folder / "de.tsv"
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    (folder / name).write_text("".join(f"{line}\n" for line in links), encoding="utf-8")
    return pairs, folder / name


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_links_are_read_as_they_were_written(links: list[tuple[int, int]]) -> None:
    assert parse_links(format_links(links)) == links


def test_pairs_carry_their_links_through_cleaning_and_splits(tmp_path: Path) -> None:
    pairs, links = _write(tmp_path, LINKS)
    bitext = load_bitext({"de": pairs}, links={"de": links}, cache_dir=tmp_path / "cache")
    assert [pair.get("links") for pair in bitext] == ["0-0 1-1 2-3", None, "0-0 1-1 2-2"]
    assert bitext.linked_pairs == 2
    train, dev = bitext.train_dev_split(1)
    assert {pair["source"]: pair.get("links") for pair in [*train, *dev]} == {
        "ein Hund rennt": "0-0 1-1 2-3",
        "ja": None,
        "Wo ist er ?": "0-0 1-1 2-2",
    }
    assert "links" not in load_bitext({"de": pairs}, cache_dir=tmp_path / "cache")[0]


def test_other_links_are_not_taken_from_the_cache(tmp_path: Path) -> None:
    pairs, links = _write(tmp_path, LINKS)
    first = load_bitext({"de": pairs}, links={"de": links}, cache_dir=tmp_path / "cache")
    _write(tmp_path, ["0-0", "", ""])
    second = load_bitext({"de": pairs}, links={"de": links}, cache_dir=tmp_path / "cache")
    assert (first[0]["links"], second[0]["links"]) == ("0-0 1-1 2-3", "0-0")


def test_only_some_languages_need_links(tmp_path: Path) -> None:
    _, links = _write(tmp_path, LINKS)
    (tmp_path / "fr.tsv").write_text("oui\tyes\n", encoding="utf-8")
    bitext = load_bitext(str(tmp_path / "{language}.tsv"), links={"de": links}, cache_dir=tmp_path / "cache")
    assert [("links" in pair, pair["language"]) for pair in bitext] == [
        (True, "de"),
        (False, "de"),
        (True, "de"),
        (False, "fr"),
    ]


def test_links_of_words_between_spaces_hold_for_all_words_within() -> None:
    assert check_links("0-0 1-1", "x:1", "a-b c", "x (y)", "spaces") == "0-0 1-0 2-0 3-1 3-2 3-3"
    assert check_links("0-0 1-1", "x:1", "a-b c", "x (y)") == "0-0 1-1"


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["0-0", "", "0-9"], "{links}:3: the link 0-9 is outside the target, which has 4 words (script)"),
        (["3-0", "", ""], "{links}:1: the link 3-0 is outside the source, which has 3 words (script)"),
        (["0-0", "0:0", ""], "{links}:2: links must be written like '0-0 1-2', not '0:0'"),
        (["0-0", "0-0-0", ""], "{links}:2: links must be written like '0-0 1-2', not '0-0-0'"),
        (["0-0", ""], "{links} has only 2 lines, but {pairs} has more pairs"),
        (["0-0", "", "", "0-0"], "{links} has more lines than the 3 pairs of {pairs}"),
    ],
)
def test_a_bad_links_file_is_one_sentence_with_its_place(tmp_path: Path, links: list[str], message: str) -> None:
    pairs, file = _write(tmp_path, links)
    with pytest.raises(DataError) as error:
        load_bitext({"de": pairs}, links={"de": file}, cache_dir=tmp_path / "cache")
    assert message.format(links=file, pairs=pairs) in str(error.value)
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache").glob("*/pairs.arrow"))


def test_a_bad_line_may_be_skipped_but_not_a_wrong_length(tmp_path: Path) -> None:
    pairs, links = _write(tmp_path, ["0-0", "7-7", ""])
    bitext = load_bitext({"de": pairs}, links={"de": links}, on_error="skip", cache_dir=tmp_path / "cache")
    assert [pair["source"] for pair in bitext] == ["ein Hund rennt", "Wo ist er ?"]
    _write(tmp_path, ["0-0", ""])
    with pytest.raises(DataError, match="more pairs"):
        load_bitext({"de": pairs}, links={"de": links}, on_error="skip", cache_dir=tmp_path / "cache")


def test_a_missing_or_superfluous_links_file_raises(tmp_path: Path) -> None:
    pairs, links = _write(tmp_path, LINKS)
    with pytest.raises(DataError, match="no such file: .*de.link; did you mean 'de.links'"):
        load_bitext({"de": pairs}, links={"de": tmp_path / "de.link"}, cache_dir=tmp_path)
    with pytest.raises(DataError, match="^'fr' needs one file of links per file of pairs: got 1 .* for 0"):
        load_bitext({"de": pairs}, links={"fr": links}, cache_dir=tmp_path)
    with pytest.raises(DataError, match="^unknown link_words 'characters': use script or spaces"):
        load_bitext({"de": pairs}, links={"de": links}, link_words="characters", cache_dir=tmp_path)


def test_links_of_units_lose_cut_words_and_repetitions() -> None:
    assert links_of_units([(1, 0), (0, 0), (2, 1), (3, 2)], ([0, 0, 1, -1], [0, 2, 3])) == [(0, 0), (1, 2)]
