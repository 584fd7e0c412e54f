from __future__ import annotations

import logging
import time
from collections import Counter
from itertools import islice

import pytest

from hf_xsent.data.sampling.mixing import ProcessBatches, TemperatureSampler, mixing_probabilities
from hf_xsent.errors import DataError

RANGES = {"de": range(0, 9000), "fr": range(9000, 9900), "tl": range(9900, 9990)}


def test_probabilities_follow_the_temperature() -> None:
    assert mixing_probabilities([90, 10], 1) == pytest.approx([0.9, 0.1])
    assert mixing_probabilities([90, 10], 0) == pytest.approx([0.5, 0.5])
    assert mixing_probabilities([90, 10], 0.5) == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize(("sizes", "alpha"), [([], 1), ([3, 0], 1), ([3], 1.5), ([3], -1)])
def test_invalid_shares_raise(sizes: list[int], alpha: float) -> None:
    with pytest.raises(DataError):
        mixing_probabilities(sizes, alpha)


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_each_language_comes_as_often_as_its_share_and_evenly(alpha: float) -> None:
    rows = list(TemperatureSampler(RANGES, alpha, seed=3))
    shares = mixing_probabilities([len(rows) for rows in RANGES.values()], alpha)
    assert len(rows) == 9990
    for (_, language), share in zip(RANGES.items(), shares, strict=True):
        counts = Counter(row for row in rows if row in language)
        assert sum(counts.values()) == pytest.approx(9990 * share, abs=1)
        assert max(counts.values()) - min(counts.get(row, 0) for row in language) <= 1
        early = sum(row in language for row in rows[:3000])
        assert early == pytest.approx(3000 * share, abs=100)


def test_proportional_mixing_is_a_shuffle() -> None:
    rows = list(TemperatureSampler(RANGES, 1.0))
    assert sorted(rows) == list(range(9990)) != rows


def test_rows_are_a_function_of_seed_and_epoch() -> None:
    sampler = TemperatureSampler(RANGES, 0.5, seed=1)
    first = list(sampler)
    assert first == list(sampler) == list(TemperatureSampler(RANGES, 0.5, seed=1))
    assert first != list(TemperatureSampler(RANGES, 0.5, seed=2))
    sampler.set_epoch(1)
    assert first != list(sampler)
    sampler.set_epoch(0)
    assert list(islice(sampler, 4000, 4100)) == first[4000:4100]


def test_an_epoch_continues_where_the_last_one_ended() -> None:
    sampler = TemperatureSampler({"de": range(1000)}, num_samples=300)
    rows: list[int] = []
    for epoch in range(10):
        sampler.set_epoch(epoch)
        rows += sampler
    assert set(Counter(rows).values()) == {3}
    assert len(set(rows[:1000])) == len(set(rows[1000:2000])) == 1000
    assert rows[:1000] != rows[1000:2000]


def test_the_table_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        TemperatureSampler(RANGES, 0.0)
    assert "tl                90       0.3333    37.00" in caplog.text
    assert not any(record.levelname == "WARNING" for record in caplog.records)


@pytest.mark.parametrize(("size", "group", "batch"), [(150, 256, 256), (150, 1000, 1000), (1, 1, 25)])
def test_each_language_has_its_share_over_epochs_with_fewer_batches_than_languages(
    size: int, group: int, batch: int
) -> None:
    sampler = TemperatureSampler(
        {f"l{n}": range(size * n, size * n + size) for n in range(36)}, 0.0, seed=7, group=group, batch=batch
    )
    rows = []
    for epoch in range(36):
        sampler.set_epoch(epoch)
        rows += [*sampler]
        assert len(rows) == len(sampler) * (epoch + 1)
    languages = Counter(row // size for row in rows)
    assert [languages[n] / group for n in range(36)] == pytest.approx([len(sampler) / group] * 36, abs=2)
    for language in range(36):
        passes = Counter(row for row in rows if row // size == language).values()
        assert max(passes) - min(passes) <= 1 and len(passes) == size, "each epoch continues the pass of the last"


def test_a_rare_language_has_its_turn() -> None:
    sampler = TemperatureSampler({"de": range(640), "fr": range(640, 642)}, 1.0, group=64, batch=64)
    drawn = Counter[int]()
    for epoch in range(64):
        sampler.set_epoch(epoch)
        drawn.update(sampler)
    assert drawn[640] == drawn[641] > 0


@pytest.mark.parametrize("alpha", [0, 1])
def test_grouped_draws_are_of_one_language_and_mix_as_before(alpha: float) -> None:
    sampler = TemperatureSampler(RANGES, alpha, seed=1, group=45)
    rows = list(sampler)
    assert len(rows) == len(sampler) == 9990 // 45 * 45
    languages = ["de" if row < 9000 else "fr" if row < 9900 else "tl" for row in rows]
    groups = [languages[start : start + 45] for start in range(0, len(rows), 45)]
    assert all(len(set(group)) == 1 for group in groups)
    assert len({group[0] for group in groups[:40]}) > 1, "languages take turns"
    shares = mixing_probabilities([9000, 900, 90], alpha)
    for language, share in zip(RANGES, shares, strict=True):
        assert languages.count(language) == pytest.approx(len(rows) * share, abs=45)
    assert rows == list(TemperatureSampler(RANGES, alpha, seed=1, group=45))


def test_groups_larger_than_an_epoch_are_refused() -> None:
    with pytest.raises(DataError, match="50 pairs per epoch are fewer than one batch of 99 pairs"):
        TemperatureSampler(RANGES, num_samples=50, group=99)


@pytest.mark.parametrize("group", [1, 7])
def test_rows_from_a_position_are_those_of_the_whole_epoch(group: int) -> None:
    sampler = TemperatureSampler(RANGES, 0.3, seed=5, group=group, batch=42)
    sampler.set_epoch(2)
    rows = list(sampler)
    for start in range(0, len(rows), 42 * 13):
        assert list(islice(sampler.rows_from(start), 100)) == rows[start : start + 100]


def test_the_end_of_four_million_pairs_is_found_in_seconds() -> None:
    sampler = TemperatureSampler({str(n): range(n * 10**6, (n + 1) * 10**6) for n in range(4)}, 0.5, batch=512)
    batches = ProcessBatches(sampler, 64, process=3, processes=8)
    batches.skipped = len(batches) - 10
    start = time.perf_counter()
    last = [batch for batch in batches if batch]
    assert time.perf_counter() - start < 5  # half a second on an idle core
    assert [len(batch) for batch in last] == [64] * 10


def test_the_pairs_of_a_step_are_the_same_for_any_number_of_processes() -> None:
    ranges = {"de": range(0, 30), "fr": range(30, 37)}

    def steps(processes: int, skipped: int = 0) -> list[list[int]]:
        sampler = TemperatureSampler(ranges, batch=8)
        of_each = [ProcessBatches(sampler, 8 // processes, one, processes) for one in range(processes)]
        for one in of_each:
            one.skipped = skipped
        return [sum(parts, []) for parts in zip(*of_each, strict=True)]

    whole = steps(1)
    assert [len(step) for step in whole] == [8] * 4, "37 pairs are four full batches; the next epoch draws the others"
    assert whole == steps(2) == steps(4)
    assert steps(4, skipped=2) == [[], [], *whole[2:]]


def test_the_pairs_that_do_not_fill_a_batch_come_in_the_next_epoch() -> None:
    sampler = TemperatureSampler({"de": range(37)}, batch=8)
    rows: list[int] = []
    for epoch in range(37):
        sampler.set_epoch(epoch)
        rows += sampler
    assert set(Counter(rows).values()) == {32}


def test_fewer_pairs_than_a_batch_are_one_batch_of_all() -> None:
    sampler = TemperatureSampler({"de": range(5)}, batch=8)
    assert [sorted(batch) for batch in ProcessBatches(sampler, 8)] == [[0, 1, 2, 3, 4]]
