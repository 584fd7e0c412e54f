from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.cleaning import repeats
from hf_xsent.data.cleaning.repeats import first_occurrences, hash_texts


def test_texts_that_differ_in_case_and_whitespace_have_the_same_hash_in_every_run() -> None:
    assert hash_texts(" Guten  TAG", "x") == hash_texts("guten tag", "X")
    assert hash_texts("a", "b") != hash_texts("a b") != hash_texts("b", "a")
    assert hash_texts("Tag", "day") == 5828794109186494092


@given(st.lists(st.integers(0, 40), max_size=200), st.sampled_from([3, 50, 1000]))
def test_first_occurrences_are_those_of_a_set(numbers: list[int], rows_at_once: int) -> None:
    hashes = np.array([number * 0x9E3779B97F4A7C15 % 2**64 for number in numbers], dtype=np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "ROWS_AT_ONCE", rows_at_once)
        first = first_occurrences(hashes)
        preferred = first_occurrences(hashes, np.arange(len(hashes)) % 2 == 1)
    seen: set[int] = set()
    assert first.tolist() == [not (value in seen or seen.add(value)) for value in numbers]
    rows = [min((row for row, other in enumerate(numbers) if other == value), key=lambda row: (row % 2 == 0, row))
            for value in {*numbers}]  # fmt: skip
    assert np.flatnonzero(preferred).tolist() == sorted(rows)
