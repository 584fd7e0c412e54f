from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_xsent.data.cleaning.repeats import RepeatFinder, hash_texts


def test_texts_that_differ_in_case_and_whitespace_have_the_same_hash_in_every_run() -> None:
    assert hash_texts(" Guten  TAG", "x") == hash_texts("guten tag", "X")
    assert hash_texts("a", "b") != hash_texts("a b") != hash_texts("b", "a")
    assert hash_texts("Tag", "day") == 5828794109186494092


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 40), max_size=60), max_size=6))
def test_first_occurrences_are_those_of_a_set(tmp_path: Path, batches: list[list[int]]) -> None:
    finder = RepeatFinder(tmp_path)
    seen: set[int] = set()
    expected = []
    for batch in batches:
        hashes = [number * 0x9E3779B97F4A7C15 % 2**64 for number in batch]  # spread over the buckets
        finder.add(hashes)
        for value in hashes:
            expected.append(value not in seen)
            seen.add(value)
        np.testing.assert_array_equal(finder.first_rows(), expected)
    finder.close()
    assert not list(tmp_path.iterdir())
