from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.words.links import check_links, format_links, links_of_units, parse_links

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
    assert [pair.get("links") for pair in bitext] == links and bitext.count_pairs_with("links") == 2
    train, dev = bitext.train_dev_split(1)
    assert {pair["source"]: pair.get("links") for pair in [*train, *dev]} == {
        source: of_pair for (source, _), of_pair in zip(PAIRS, links, strict=True)
    }


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0-9", "x:3: the link 0-9 is outside the target, which has 4 words"),
        ("5-0", "x:3: the link 5-0 is outside the source, which has 4 words"),
        ("0:0", "x:3: links must be written like '0-0 1-2', not '0:0'"),
        ("0-0-0", "x:3: links must be written like '0-0 1-2', not '0-0-0'"),
    ],
)
def test_bad_links_are_one_sentence_with_their_place(links: str, message: str) -> None:
    assert str(check_links(links, "x:3", *PAIRS[2])).startswith(message)


def test_links_of_units_lose_cut_words_and_repetitions() -> None:
    assert links_of_units([(1, 0), (0, 0), (2, 1), (3, 2)], ([0, 0, 1, -1], [0, 2, 3])) == [(0, 0), (1, 2)]


def test_fields_of_removed_pairs_do_not_count(tmp_path: Path) -> None:
    rows = [{"source": "Hund", "target": "dog"}, {"source": "hund", "target": "Dog", "origin": "web"}]
    assert load_bitext({"de": rows}, cache_dir=tmp_path).fields == {"source", "target"}
