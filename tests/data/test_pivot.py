"""Pairs of two languages through a shared target: against a slow search, in constant memory, without leaks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from hf_xsent.data import pivot
from hf_xsent.data.bitext import Bitext, load_bitext
from hf_xsent.data.cleaning import repeats
from hf_xsent.data.pivot import PIVOT, PivotBitext, add_pivot_pairs
from hf_xsent.errors import DataError

COUNTS = {"de": 60, "fr": 40, "sw": 30}


@pytest.fixture
def bitext(tmp_path: Path) -> Bitext:
    """Sentence i of each language translates English i; some languages repeat a target, some sentences are equal."""
    data = {}
    for language, count in COUNTS.items():
        rows = [(f"{language} {i}", f"English {i}") for i in range(count)]
        rows += [(f"{language} again {i}", f"english  {i}") for i in range(0, 20, 5)] + [("OK", "Fine")]
        data[language] = tmp_path / f"{language}.tsv"
        data[language].write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    return load_bitext(data, cleaning=None, cache_dir=tmp_path / "cache")


def _pivot_pair(found: PivotBitext) -> list[dict[str, Any]]:
    return [found[row] for row in found.ranges[PIVOT]]


def test_pairs_share_a_target_and_link_each_sentence_at_most_twice(bitext: Bitext, tmp_path: Path) -> None:
    found = add_pivot_pairs(bitext, tmp_path)
    target = {pair["source"]: " ".join(pair["target"].casefold().split()) for pair in bitext}
    uses: dict[str, int] = {}
    for pair in _pivot_pair(found):
        assert pair["language"] != pair["target_language"] and pair["source"] != pair["target"]
        assert target[pair["source"]] == target[pair["target"]]
        for side, language in (("source", "language"), ("target", "target_language")):
            assert pair[side].startswith(pair[language])
            uses[pair[side]] = uses.get(pair[side], 0) + 1
    assert max(uses.values()) <= 2
    shared = {f"english {number}" for number in range(40)}  # by German and French
    wanted = {source for source, english in target.items() if english in shared}
    assert len(wanted - {*uses}) <= 4  # next to sentences of their own language on both sides of the ring
    assert len(found) == len(bitext) + len(_pivot_pair(found))
    assert [found[row] for row in range(len(bitext))] == [*bitext]
    assert found.__getitems__([len(bitext), 3]) == [found[len(bitext)], bitext[3]]


def test_the_ring_of_a_target_has_as_many_pairs_as_sentences(tmp_path: Path) -> None:
    data = {}
    for language in ("de", "fr", "sw", "tr", "ru"):
        data[language] = tmp_path / f"{language}.tsv"
        data[language].write_text(f"{language}\tHello\n" + (f"{language} 2\tTwo\n" if language in ("de", "fr") else ""))
    pairs = _pivot_pair(add_pivot_pairs(load_bitext(data, cleaning=None, cache_dir=tmp_path / "cache"), tmp_path))
    assert sorted(pair["source"] for pair in pairs if " " not in pair["source"]) == sorted(data)
    assert sum(" " in pair["source"] for pair in pairs) == 1


def test_blocks_change_nothing_and_the_search_is_done_once(
    bitext: Bitext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = _pivot_pair(add_pivot_pairs(bitext, tmp_path / "one"))
    monkeypatch.setattr(repeats, "ROWS_AT_ONCE", 7)
    parts = _pivot_pair(add_pivot_pairs(bitext, tmp_path / "two"))
    assert sorted(parts, key=str) == sorted(once, key=str)
    monkeypatch.setattr(pivot, "_write_pairs", None)
    assert _pivot_pair(add_pivot_pairs(bitext, tmp_path / "two")) == parts
    assert [path.suffix for path in (tmp_path / "two").iterdir()] == [".pairs"]


def test_no_held_out_sentence_is_paired(bitext: Bitext, tmp_path: Path) -> None:
    train, dev = bitext.train_dev_split(5)
    found = add_pivot_pairs(train, tmp_path)
    held_out = {pair["source"] for pair in dev}
    assert not held_out & {pair[side] for pair in _pivot_pair(found) for side in ("source", "target")}
    assert len(_pivot_pair(found)) < len(_pivot_pair(add_pivot_pairs(bitext, tmp_path)))


def test_pickled_pairs_are_the_same(bitext: Bitext, tmp_path: Path) -> None:
    found = add_pivot_pairs(bitext, tmp_path)
    assert _pivot_pair(pickle.loads(pickle.dumps(found))) == _pivot_pair(found)


def test_one_language_has_no_pivot_pairs(tmp_path: Path) -> None:
    (tmp_path / "de.tsv").write_text("Hund\tdog\n")
    (tmp_path / "fr.tsv").write_text("chat\tcat\n")
    for data, reason in (({"de": "de"}, "only de"), ({"de": "de", "fr": "fr"}, "no sentences of two languages")):
        files = {language: tmp_path / f"{name}.tsv" for language, name in data.items()}
        with pytest.raises(DataError, match=reason):
            add_pivot_pairs(load_bitext(files, cleaning=None, cache_dir=tmp_path / "cache"), tmp_path)
