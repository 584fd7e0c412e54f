from __future__ import annotations

import random

import pytest

from hf_xsent.data.sampling.choosing import RandomChoice


@pytest.mark.parametrize(("total", "count"), [(5, 10), (10, 10), (50_000, 700), (50_000, 3)])
def test_the_chosen_items_have_the_lowest_hashes(total: int, count: int) -> None:
    hashes = [random.Random(4).getrandbits(64) for _ in range(total)] if total < 20 else _hashes(total)
    choice = RandomChoice(count)
    accepted = [number for number in hashes if choice.accept(number)]
    chosen = {number for number, kept in zip(accepted, choice.chosen(), strict=True) if kept}
    assert chosen == set(sorted(set(hashes))[:count])
    if total > 1000 * count:
        assert len(accepted) < total / 5, "an item that cannot be chosen is refused at once"


def test_repeats_of_an_item_count_once() -> None:
    choice = RandomChoice(2)
    assert [choice.accept(number) for number in (5, 3, 3, 9, 5)] == [True] * 5
    assert choice.chosen().tolist() == [True, True, True, False, True]


def _hashes(total: int) -> list[int]:
    numbers = random.Random(0)
    return [numbers.getrandbits(64) for _ in range(total)]
