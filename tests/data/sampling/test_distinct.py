from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.sampling.mixing import DistinctSampler, TemperatureSampler

RANGES = {"de": range(0, 300), "fr": range(300, 500)}


def _hash_pairs(kinds: int) -> np.ndarray:
    """Sources all different, ``kinds`` different targets."""
    rows = np.arange(500, dtype=np.uint64)
    return np.stack((rows, rows * 7919 % kinds), 1)


def _blocks(rows: list[int], batch: int) -> list[list[int]]:
    return [rows[start : start + batch] for start in range(0, len(rows), batch)]


@given(batch=st.integers(2, 40), kinds=st.integers(150, 500), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_no_sentence_comes_twice_and_the_languages_stay_as_they_were(
    batch: int, kinds: int, seed: int, epoch: int
) -> None:
    hashes = _hash_pairs(kinds)
    sampler = DistinctSampler(RANGES, lambda rows: hashes[rows], batch, alpha=0.5, seed=seed)
    plain = TemperatureSampler(RANGES, alpha=0.5, seed=seed, batch=batch)
    for one in (sampler, plain):
        one.set_epoch(epoch)
    rows, as_drawn = list(sampler), list(plain)
    assert len(rows) == len(sampler) == len(as_drawn)
    assert [row < 300 for row in rows] == [row < 300 for row in as_drawn]
    for block in _blocks(rows, batch):
        assert len(set(hashes[block, 1].tolist())) == len(set(block)) == len(block)
    assert rows == list(sampler)  # all processes, and a resumed run


def test_what_repeats_nothing_stays_where_it_was() -> None:
    hashes = _hash_pairs(500)
    sampler = DistinctSampler(RANGES, lambda rows: hashes[rows], 10, alpha=1.0, seed=3)
    assert list(sampler) == list(TemperatureSampler(RANGES, alpha=1.0, seed=3))


def test_batches_across_many_chunks_stay_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_xsent.data.sampling.mixing.CHUNK_ROWS", 50)
    hashes = _hash_pairs(200)
    rows = list(DistinctSampler(RANGES, lambda rows: hashes[rows], 16, seed=1))
    assert all(len(set(hashes[block, 1].tolist())) == len(block) for block in _blocks(rows, 16))


def test_batches_of_one_language_stay_so() -> None:
    hashes = _hash_pairs(200)
    rows = list(DistinctSampler(RANGES, lambda rows: hashes[rows], 8, alpha=0.5, group=8))
    for block in _blocks(rows, 8):
        assert len({row < 300 for row in block}) == 1
        assert len(set(hashes[block, 1].tolist())) == 8


def test_a_language_of_one_sentence_repeats_it() -> None:
    sampler = DistinctSampler(RANGES, lambda rows: np.zeros((len(rows), 2), dtype=np.uint64), 8)
    assert len(list(sampler)) == 496  # 62 batches


def test_sentences_are_known_by_hash_in_every_part_of_a_bitext(tmp_path: Path) -> None:
    pairs = {
        "de": [(f"Satz {n}", f"Sentence {n % 9}") for n in range(30)],
        "fr": [(f"Phrase {n}", f"sentence  {n % 9}") for n in range(20)],
    }
    for language, some in pairs.items():
        (tmp_path / f"{language}.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in some))
    whole = load_bitext(str(tmp_path / "{language}.tsv"), cleaning=None, cache_dir=tmp_path / "cache")
    train, dev = whole.train_dev_split(1)
    for bitext in (whole, train, dev):
        hashes = bitext.side_hashes(np.arange(len(bitext)))
        known: dict[str, int] = {}
        for row, pair in enumerate(bitext.__getitems__(range(len(bitext)))):
            assert known.setdefault(pair["source"], hashes[row, 0]) == hashes[row, 0]
            assert known.setdefault(" ".join(pair["target"].lower().split()), hashes[row, 1]) == hashes[row, 1]
        assert len(set(known.values())) == len(known)
    assert sorted(path.name for path in (tmp_path / "cache").rglob("sides*")) == ["sides.hashes"] * 2
