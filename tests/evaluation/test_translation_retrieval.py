from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba, tatoeba_groups
from hf_xsent.errors import DataError
from hf_xsent.evaluation.pairs import PairsTask, retrieval_by_language
from hf_xsent.evaluation.registry import load_tasks
from hf_xsent.evaluation.translation_retrieval import TatoebaTask, pair_hits, retrieval_hits, unit


class _Letters:
    """Counts letters: equal sentences get equal vectors, others mostly do not."""

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        self.calls += 1
        table = np.zeros((len(sentences), 128), dtype=np.float32)
        for row, sentence in enumerate(sentences):
            for letter in sentence:
                table[row, ord(letter) % 128] += 1
        return table + 0.01


def _unit(degrees: Sequence[float]) -> np.ndarray:
    angles = np.deg2rad(np.asarray(degrees, dtype=np.float64))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _figures(source: np.ndarray, target: np.ndarray) -> tuple[float, float, float]:
    """Return the accuracy of both directions, and that beside the own side."""
    lines = np.arange(len(source))
    metrics = PairsTask.metrics(pair_hits(source, target, (lines, lines))[0])
    return metrics["forward"], metrics["backward"], metrics["beside"]


def _accuracy(source: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    return _figures(source, target)[:2]


# Accuracy, worked by hand: vectors are directions in the plane, the nearest is the one with the smallest angle between


def test_each_direction_is_counted_on_its_own() -> None:
    source = _unit([0, 40, 100])
    target = _unit([10, 12, 80])
    # forward: 0 → 10 ✓, 40 → 12 ✓ (28 against 30), 100 → 80 ✓; backward: 10 → 0 ✓, 12 → 0 ✗, 80 → 100 ✓
    # beside: 10 and 12 are nearer to each other than to a translation
    assert _figures(source, target) == pytest.approx((100, 200 / 3, 400 / 6))
    assert _figures(target, source) == pytest.approx((200 / 3, 100, 400 / 6))
    assert TatoebaTask.metrics(retrieval_hits(source, target))["mean"] == pytest.approx(250 / 3)


_SCALE = np.array([[1.0], [1000.0], [0.001]])


@pytest.mark.parametrize(
    ("source", "target", "forward", "backward"),
    [
        (_unit([0, 40, 100]) * _SCALE, _unit([10, 12, 80]) / _SCALE, 100, 200 / 3),  # lengths and types do not count
        (_unit([0, 0, 90]), _unit([0, 0, 90]), 200 / 3, 200 / 3),  # a repeated sentence counts once
        (_unit([0]), _unit([170]), 100, 100),
        (np.vstack([_unit([0, 90]), np.zeros((1, 2))]), _unit([0, 90, 180]), 200 / 3, 200 / 3),  # zeros are no hit
        (np.zeros((2, 2)), _unit([0, 90]), 0, 0),
    ],
)
def test_special_vectors_have_these_accuracies(
    source: np.ndarray, target: np.ndarray, forward: float, backward: float
) -> None:
    assert _accuracy(source, target) == pytest.approx((forward, backward))


@pytest.mark.parametrize("seed", range(20))
def test_a_text_whose_translation_has_no_vector_remains_a_candidate(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sides = [unit(generator.standard_normal((9, 3))) * (generator.random((9, 1)) > 0.3) for _ in range(2)]
    hits, found = pair_hits(sides[0], sides[1], [np.arange(9), np.arange(9, 18)])
    for direction, (own, other) in enumerate((sides, sides[::-1])):
        for row in range(9):
            alone = np.where(other.any(1), other @ own[row], -np.inf)
            beside = np.where(own.any(1) & (np.arange(9) != row), own @ own[row], -np.inf)
            known = own[row].any() and other[row].any()
            expected = [alone.argmax() == row, row in (-alone).argsort()[:5], alone[row] > beside.max()]
            expected[2] &= expected[0]
            assert hits[row, [direction, 2 + direction, 6 + direction]].tolist() == [
                known and right for right in expected
            ]
            place = alone.argmax() if alone.max() > beside.max() else 9 + beside.argmax()
            assert found[row, direction] == (place if known else -1)


def test_of_equal_scores_the_first_line_counts() -> None:
    same = np.ones((4, 2), dtype=np.float32)
    assert _accuracy(same, same) == (25.0, 25.0)
    target = _unit([0, 0, 90])
    source = _unit([0, 1, 90])
    # forward: 0 → line 0 ✓, 1 → line 0 of the two equal ones ✗, 90 ✓; backward: 0 → 0 ✓, the second 0 → 0 ✗, 90 ✓
    assert _accuracy(source, target) == (pytest.approx(200 / 3), pytest.approx(200 / 3))


@pytest.mark.parametrize(("count", "width"), [(97, 32), (1013, 384)])
def test_rounding_does_not_choose_among_repeats(count: int, width: int) -> None:
    """The same cosine comes out different by where it stands in the product of two matrices."""
    generator = np.random.default_rng(count)
    distinct = generator.standard_normal((count // 2, width)).astype(np.float32)
    some = np.concatenate((distinct, distinct))[generator.permutation(2 * (count // 2))]
    assert _accuracy(some, some) == (50.0, 50.0)
    near = some + 0.01 * generator.standard_normal(some.shape).astype(np.float32)
    assert _accuracy(near, some)[0] == 50.0 == _accuracy(some, near)[1]


def test_a_vector_that_is_nan_is_an_error() -> None:
    with pytest.raises(DataError, match="zero or not finite"):
        _accuracy(_unit([0, np.nan, 90]), _unit([0, 40, 90]))


@pytest.mark.parametrize(("sources", "targets"), [(3, 2), (0, 0), (0, 1)])
def test_unequal_sides_are_refused(sources: int, targets: int) -> None:
    with pytest.raises(DataError, match=f"got {sources} source and {targets} target vectors"):
        _accuracy(np.ones((sources, 2)), np.ones((targets, 2)))


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2100])
def test_it_is_what_the_whole_matrix_gives(count: int) -> None:
    generator = np.random.default_rng(count)
    source = generator.standard_normal((count, 12)).astype(np.float32)
    target = source + 1.1 * generator.standard_normal((count, 12)).astype(np.float32)
    a = source.astype(np.float64) / np.linalg.norm(source.astype(np.float64), axis=1, keepdims=True)
    b = target.astype(np.float64) / np.linalg.norm(target.astype(np.float64), axis=1, keepdims=True)
    scores = a @ b.T
    lines = np.arange(count)
    forward, backward = _accuracy(source, target)
    assert forward == pytest.approx(100 * np.mean(scores.argmax(1) == lines), abs=0.01)
    assert backward == pytest.approx(100 * np.mean(scores.argmax(0) == lines), abs=0.01)
    assert 5 < forward < 95 and forward != backward


def test_every_language_is_measured_apart() -> None:
    pairs = {"de": (["abc", "dd"], ["abc", "dd"]), "fr": (["abc", "dd"], ["dd", "ab"])}
    results = retrieval_by_language(_Letters(), pairs)
    assert list(results) == ["de", "fr"]
    assert [results[code]["forward"] for code in results] == [100.0, 0.0]
    assert {figures["pairs"] for figures in results.values()} == {2}


# The task


def _sets(*languages: str) -> list[PairSet]:
    return [PairSet(language, [f"{language} a", "bbb", "cd"], [f"{language} a", "bbb", "xy"]) for language in languages]


def test_other_sentences_give_another_fingerprint() -> None:
    sets = _sets("deu", "fra")
    changed = [*sets[:1], PairSet("fra", sets[1].sources, [*sets[1].targets[:2], "xyz"])]
    assert len({TatoebaTask(some).fingerprint for some in (sets, changed, sets[:1])}) == 3


def test_groups_are_reported_only_when_complete() -> None:
    groups = {name: codes for name, codes in tatoeba_groups().items() if codes}
    name, codes = min(groups.items(), key=lambda one: len(one[1]))
    whole = TatoebaTask(_sets(*codes)).score(_Letters().encode)
    assert name in whole.groups and "all" in whole.groups
    part = TatoebaTask(_sets(*codes[1:])).score(_Letters().encode)
    assert name not in part.groups
    assert part.groups["all"]["pairs"] == 3 * (len(codes) - 1)


def test_a_group_is_the_mean_over_languages_not_over_pairs() -> None:
    sets = [
        PairSet("deu", ["ab", "cd", "ef", "gh"], ["ab", "cd", "ef", "gh"]),
        PairSet("fra", ["ab", "cd"], ["cd", "ab"]),
    ]
    scores = TatoebaTask(sets).score(_Letters().encode)
    assert scores.groups["all"] == {"pairs": 6, "forward": 50.0, "backward": 50.0, "mean": 50.0}


# The real test sets


def test_the_real_tatoeba_sets(assets: Path) -> None:
    """Line i of one side is line i of the other; a model that finds nothing but copies knows few of them."""
    folder = assets / "data" / "tatoeba"
    assert load_tasks({"tatoeba": folder}, {"tatoeba": ["de"]})[0].data == "mteb/tatoeba-bitext-mining"
    sets = load_tatoeba(folder, ["de", "fra", "tl"])
    assert [one.language for one in sets] == ["deu", "fra", "tgl"]
    assert all(len(one.sources) == len(one.targets) == 1000 for one in sets)
    for figures in TatoebaTask(sets).score(_Letters().encode).languages.values():
        assert figures["pairs"] == 1000
        assert 1 < figures["mean"] < 60
    english = [PairSet(one.language, one.targets, one.targets) for one in sets]
    for one in english:
        repeats = 1000 - len(set(one.targets))
        found = TatoebaTask([one]).score(_Letters().encode)
        assert 100 - found.languages[one.language]["forward"] >= 100 * repeats / 1000
