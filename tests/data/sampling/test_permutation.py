from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_xsent.data.sampling.permutation import Permutation


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**32))
def test_every_number_comes_once(size: int, seed: int) -> None:
    numbers = Permutation(size, seed)[np.arange(size)]
    np.testing.assert_array_equal(np.sort(numbers), np.arange(size))


def test_it_depends_on_the_seed_alone() -> None:
    rows = np.arange(1000)
    first = Permutation(1000, 1)[rows]
    np.testing.assert_array_equal(first, Permutation(1000, 1)[rows])
    np.testing.assert_array_equal(first[500:], Permutation(1000, 1)[rows[500:]])
    assert (first != Permutation(1000, 2)[rows]).mean() > 0.9


def test_neighbours_land_anywhere() -> None:
    numbers = Permutation(100_000, 3)[np.arange(100_000)]
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02
    assert numbers[:1000].mean() == pytest.approx(50_000, rel=0.06)


def test_thirty_six_million_rows_need_no_index() -> None:
    numbers = Permutation(36_000_000, 0)[np.arange(1 << 16)]
    assert len(np.unique(numbers)) == 1 << 16
    assert numbers.min() >= 0 and numbers.max() < 36_000_000
