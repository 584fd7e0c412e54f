from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_xsent.mining.scoring import score_pairs

from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError, OutputError
from hf_xsent.mining import scoring
from hf_xsent.mining.neighbours import nearest_one_way
from hf_xsent.mining.top_k import Neighbours


class Letters:
    """A model whose vector is how often each of the first letters occurs."""

    def encode(self, sentences: list[str]) -> np.ndarray:
        return np.array(
            [[1 + sentence.count(letter) for letter in "abcdef"] for sentence in sentences], dtype=np.float32
        )


PAIRS = [("aab", "aab"), ("abc", "fff"), ("de\u00e9", "ddee")]


def _write(folder: Path) -> BitextSource:
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    return BitextSource("und", str(folder / "pairs.tsv"))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _cosines(left: list[str], right: list[str]) -> np.ndarray:
    one, other = (Letters().encode(side).astype(np.float64) for side in (left, right))
    return (one / np.linalg.norm(one, axis=1)[:, None]) @ (other / np.linalg.norm(other, axis=1)[:, None]).T


def test_every_pair_keeps_its_place_and_gets_its_cosine(tmp_path: Path) -> None:
    assert score_pairs(_write(tmp_path), tmp_path / "scored.tsv", Letters()) == 3
    rows = _rows(tmp_path / "scored.tsv")
    assert [(row["source"], row["target"]) for row in rows] == PAIRS
    expected = np.diag(_cosines([a for a, _ in PAIRS], [b for _, b in PAIRS]))
    np.testing.assert_allclose([float(row["cosine"]) for row in rows], expected, atol=1e-5)
    assert [row["score"] for row in rows] == [row["cosine"] for row in rows]


def test_pools_give_margins(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pools = [["".join(generator.choice(list("abcdef"), 5)) for _ in range(30)] for _ in range(2)]
    vectors = (Letters().encode(pools[0]), Letters().encode(pools[1]))
    score_pairs(_write(tmp_path), tmp_path / "scored.tsv", Letters(), vectors, k=4)
    for row in _rows(tmp_path / "scored.tsv"):
        there = np.sort(_cosines([row["source"]], pools[1])[0])[-4:].mean()
        back = np.sort(_cosines([row["target"]], pools[0])[0])[-4:].mean()
        assert float(row["score"]) == pytest.approx(float(row["cosine"]) / ((there + back) / 2), abs=1e-4)


def test_a_bad_line_raises_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nonly one\n")
    with pytest.raises(DataError, match="pairs.tsv:2"):
        score_pairs(BitextSource("und", str(tmp_path / "pairs.tsv")), tmp_path / "scored.tsv", Letters())
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "cannot be written"), ("pairs.tsv", "pairs.tsv would overwrite an input"), ("pairs.tsv/x", "written")],
)
def test_an_unwritable_output_raises_before_encoding(tmp_path: Path, name: str, message: str) -> None:
    source = _write(tmp_path)
    before = (tmp_path / "pairs.tsv").read_bytes()
    with pytest.raises(OutputError, match=message):
        score_pairs(source, tmp_path / name, None)  # type: ignore[arg-type]
    assert (tmp_path / "pairs.tsv").read_bytes() == before


def test_a_line_break_in_a_text_breaks_no_row(tmp_path: Path) -> None:
    rows = [{"source": "aa\nb\u2028c", "target": "a\tb\r\nc"}]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = BitextSource("und", str(tmp_path / "pairs.jsonl"), source_column="source", target_column="target")
    assert score_pairs(source, tmp_path / "scored.tsv", Letters()) == 1
    _, row = (tmp_path / "scored.tsv").read_text(encoding="utf-8").splitlines()
    assert row.split("\t")[2:] == ["aa b c", "a b c"]


def test_neighbours_are_sought_on_the_device_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    def noting(*arguments: Any, device: Any) -> Neighbours:
        devices.append(device)
        return nearest_one_way(*arguments)

    monkeypatch.setattr(scoring, "nearest_one_way", noting)
    pool = Letters().encode(["a", "b", "c", "dd"])
    score_pairs(_write(tmp_path), tmp_path / "scored.tsv", Letters(), (pool, pool), device="cuda:1")
    assert devices == ["cuda:1", "cuda:1"]
