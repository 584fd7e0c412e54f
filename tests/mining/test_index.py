from __future__ import annotations

import logging

import numpy as np
import pytest

from hf_xsent.errors import DataError
from hf_xsent.mining.index import choose_index, nearest_by_index
from hf_xsent.mining.margin import mine_bitext, pairs_of_neighbours

pytest.importorskip("faiss", reason="faiss is not installed: the extra hf-xsent[mining] brings it")


def _sides(count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    source = generator.standard_normal((count, 16)).astype(np.float32)
    return source, source[::-1] + 0.3 * generator.standard_normal((count, 16)).astype(np.float32)


def test_an_index_that_looks_everywhere_finds_what_comparing_finds() -> None:
    source, target = _sides()
    exact = mine_bitext(source, target)
    *nearest, _ = nearest_by_index(source, target, 4, "IVF8,Flat", probes=8)
    mined = pairs_of_neighbours(*nearest, "ratio", "max")
    assert np.array_equal(mined.source, exact.source)
    assert np.array_equal(mined.target, exact.target)
    np.testing.assert_allclose(mined.score, exact.score, rtol=1e-5)


def test_its_recall_is_measured_and_a_low_one_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    source, target = _sides()
    with caplog.at_level(logging.INFO, logger="hf_xsent"):
        *_, everything = nearest_by_index(source, target, 4, "IVF32,Flat", probes=32)
        assert caplog.records[-1].levelname == "INFO"
        *_, little = nearest_by_index(source, target, 4, "IVF32,Flat", probes=1)
        assert caplog.records[-1].levelname == "WARNING"
    assert everything == 1
    assert little < 0.9
    assert f"finds {100 * little:.1f}% of the 4 nearest" in caplog.text


def test_probes_are_as_many_as_the_recall_needs() -> None:
    source, target = _sides()
    *_, recall = nearest_by_index(source, target, 4, "IVF32,Flat")
    assert recall >= 0.95


def test_auto_compares_all_until_it_would_take_hours() -> None:
    assert choose_index("auto", 10**6, 10**6) is None
    assert choose_index("auto", 10**7, 10**6) == "IVF4096,Flat"
    assert choose_index("auto", 1000, 10**10) == "IVF128,Flat"  # which the smaller side can train
    assert choose_index("HNSW32", 10, 10) == "HNSW32"


def test_cells_with_too_few_vectors_leave_no_gaps() -> None:
    source, target = _sides(40)
    of_source, of_target, _ = nearest_by_index(source, target, 4, "IVF16,Flat", probes=1)
    assert of_source.indices.min() >= 0 and of_target.indices.min() >= 0
    assert of_source.cosines.isfinite().all()


@pytest.mark.parametrize("index", ["PQ4x4", "IVF4,PQ4x4"])
def test_cosines_are_those_of_the_vectors_whatever_the_index_keeps(index: str) -> None:
    sides = _sides()
    units = [side / np.linalg.norm(side, axis=1)[:, None] for side in sides]
    of_source, of_target, _ = nearest_by_index(*sides, 4, index)
    for nearest, own, others in ((of_source, units[0], units[1]), (of_target, units[1], units[0])):
        expected = np.einsum("nd,nkd->nk", own, others[nearest.indices.numpy()])
        np.testing.assert_allclose(nearest.cosines.numpy(), expected, atol=1e-6)
        assert (np.diff(nearest.cosines.numpy()) <= 0).all(), "nearest first"


@pytest.mark.parametrize(
    ("index", "reason"),
    [("IVFF", "IVFF"), ("IVF999,Flat", "999"), ("PQ4x10", "1024"), ("IDMap,Flat", "add does not make")],
)
def test_an_index_that_faiss_cannot_make_raises(index: str, reason: str) -> None:
    with pytest.raises(DataError, match=f"cannot make the index '{index}' of 600 vectors .*{reason}.*: use a factory"):
        nearest_by_index(*_sides(), 4, index)
