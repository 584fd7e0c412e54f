from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.words.links import check_links, format_links, links_of_units, parse_links, with_links
from hf_xsent.errors import DataError

PAIRS = [("ein Hund rennt", "a dog is running"), ("ja", "yes"), ("Wo ist er ?", "where is he ?")]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_links_are_read_as_they_were_written(links: list[tuple[int, int]]) -> None:
    assert parse_links(format_links(links)) == links


def test_pairs_carry_their_links_through_cleaning_and_splits(tmp_path: Path) -> None:
    links = ["0-0 1-1 2-3", None, "0-0 1-1 2-2"]
    records = [
        {"source": pair[0], "target": pair[1], "links": of_pair} for pair, of_pair in zip(PAIRS, links, strict=True)
    ]
    bitext = load_bitext({"de": records}, cache_dir=tmp_path / "cache")
    assert [pair.get("links") for pair in bitext] == links and bitext.linked_pairs == 2
    train, dev = bitext.train_dev_split(1)
    assert {pair["source"]: pair.get("links") for pair in [*train, *dev]} == {
        source: of_pair for (source, _), of_pair in zip(PAIRS, links, strict=True)
    }


def test_links_of_words_between_spaces_hold_for_all_words_within() -> None:
    assert check_links("0-0 1-1", "x:1", "a-b c", "x (y)", "spaces") == "0-0 1-0 2-0 3-1 3-2 3-3"
    assert check_links("0-0 1-1", "x:1", "a-b c", "x (y)") == "0-0 1-1"


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["0-0", "", "0-9"], ":3: the link 0-9 is outside the target, which has 4 words (script)"),
        (["3-0", "", ""], ":1: the link 3-0 is outside the source, which has 3 words (script)"),
        (["0-0", "0:0", ""], ":2: links must be written like '0-0 1-2', not '0:0'"),
        (["0-0", "0-0-0", ""], ":2: links must be written like '0-0 1-2', not '0-0-0'"),
        (["0-0", ""], " has only 2 lines; give one line of links per pair"),
        (["0-0", "", "", "0-0"], " has more lines than the 3 pairs; give one line of links per pair"),
    ],
)
def test_a_bad_links_file_is_one_sentence_with_its_place(tmp_path: Path, links: list[str], message: str) -> None:
    path = tmp_path / "de.links"
    path.write_text("".join(f"{line}\n" for line in links), encoding="utf-8")
    with pytest.raises(DataError) as error:
        list(with_links(PAIRS, str(path), "script"))
    assert str(error.value).startswith(f"{path}{message}")


def test_links_of_units_lose_cut_words_and_repetitions() -> None:
    assert links_of_units([(1, 0), (0, 0), (2, 1), (3, 2)], ([0, 0, 1, -1], [0, 2, 3])) == [(0, 0), (1, 2)]
