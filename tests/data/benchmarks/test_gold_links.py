from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.data.benchmarks.gold_links import load_gold_links
from hf_xsent.errors import DataError


def _write(folder: Path, texts: str, gold: str) -> Path:
    (folder / "xx.src-tgt").write_text(texts, encoding="utf-8")
    (folder / "xx.gold").write_text(gold, encoding="utf-8")
    return folder / "xx"


def test_words_count_from_one_and_possible_links_include_the_sure_ones(tmp_path: Path) -> None:
    (pair,) = load_gold_links(_write(tmp_path, "a b   ||| x y z  \n", "1-1 2p3 2-2\n"))
    assert (pair.source.strings, pair.target.strings) == (["a", "b"], ["x", "y", "z"])
    assert pair.sure == {(0, 0), (1, 1)}
    assert pair.possible == {(0, 0), (1, 1), (1, 2)}


def test_a_link_that_is_both_sure_and_possible_is_sure(tmp_path: Path) -> None:
    for number, gold in enumerate(("1-1 1p1", "1p1 1-1")):
        (tmp_path / str(number)).mkdir()
        (pair,) = load_gold_links(_write(tmp_path / str(number), "a ||| x\n", f"{gold}\n"))
        assert pair.sure == pair.possible == {(0, 0)}


@pytest.mark.parametrize(
    ("texts", "gold", "message"),
    [
        ("a ||| x\n", "1-1\n1-1\n", r"xx.gold has 2 lines but .*xx.src-tgt 1"),
        ("a x\n", "1-1\n", r"xx.src-tgt:1: no \|\|\|"),
        ("a ||| x\n", "0-0\n", r"xx.gold:1: links must be i-j or ipj, counted from 1"),
        ("a ||| x\n", "1:1\n", r"xx.gold:1: links must be i-j or ipj"),
    ],
)
def test_bad_files_raise(tmp_path: Path, texts: str, gold: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_gold_links(_write(tmp_path, texts, gold))


def test_links_beyond_the_words_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # An error would refuse the Japanese set, which has such links in four lines.
    load_gold_links(_write(tmp_path, "a b ||| x\n" * 3, "2-1\n1-1 1p2\n3-1 3-2\n"))
    (message,) = caplog.messages
    assert f"{tmp_path}/xx.gold:2: a link is beyond the words of {tmp_path}/xx.src-tgt, as in 2 of 3 lines" in message


def test_a_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file: .*xx.src-tgt"):
        load_gold_links(tmp_path / "xx")


def test_the_shared_gold_sets_load(assets: Path) -> None:
    sizes = {name: len(load_gold_links(assets / "data/word_alignment" / name)) for name in ("zhen", "jaen", "enfr")}
    assert sizes == {"zhen": 450, "jaen": 582, "enfr": 447}
