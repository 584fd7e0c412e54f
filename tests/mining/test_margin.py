from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_xsent.errors import HfXsentError
from hf_xsent.mining import margin as margins
from hf_xsent.mining.margin import CANDIDATES, MARGINS, mine_bitext

Pairs = list[tuple[int, int, float]]


def _vectors(seed: int, count: int, width: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def _by_hand(source: np.ndarray, target: np.ndarray, k: int, margin: str, candidates: str) -> Pairs:
    """The definition, one pair at a time, in float64."""
    x, y = (
        side.astype(np.float64) / np.linalg.norm(side.astype(np.float64), axis=1)[:, None] for side in (source, target)
    )
    cosine = x @ y.T
    near_x = [sorted(range(len(y)), key=lambda j: (-cosine[i, j], j))[:k] for i in range(len(x))]
    near_y = [sorted(range(len(x)), key=lambda i: (-cosine[i, j], i))[:k] for j in range(len(y))]

    def score(i: int, j: int) -> float:
        average = (np.mean(cosine[i, near_x[i]]) + np.mean(cosine[near_y[j], j])) / 2
        ratio = cosine[i, j] / average if min(cosine[i, j], average) > 0 else cosine[i, j]
        return {"ratio": ratio, "distance": cosine[i, j] - average, "absolute": cosine[i, j]}[margin]

    forward = {(i, min(near_x[i], key=lambda j: (-score(i, j), j))) for i in range(len(x))}
    backward = {(min(near_y[j], key=lambda i: (-score(i, j), i)), j) for j in range(len(y))}
    selected = {
        "forward": forward,
        "backward": backward,
        "intersection": forward & backward,
        "max": forward | backward,
    }[candidates]
    ordered = sorted(((i, j, score(i, j)) for i, j in selected), key=lambda pair: (-pair[2], pair[0], pair[1]))
    if candidates != "max":
        return ordered
    kept: Pairs = []
    for pair in ordered:
        if all(pair[0] != other[0] and pair[1] != other[1] for other in kept):
            kept.append(pair)
    return kept


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(4, 40), st.integers(4, 40)),
    k=st.integers(1, 4),
    margin=st.sampled_from(MARGINS),
    candidates=st.sampled_from(CANDIDATES),
    seed=st.integers(0, 1000),
)
def test_mined_pairs_are_those_of_the_definition(
    sizes: tuple[int, int], k: int, margin: str, candidates: str, seed: int
) -> None:
    source, target = _vectors(seed, sizes[0]), _vectors(seed + 1, sizes[1])
    mined = mine_bitext(source, target, k, margin, candidates)
    expected = _by_hand(source, target, k, margin, candidates)
    if margin == "ratio" and any(abs(score) > 20 for _, _, score in expected):
        return  # an average near zero: float32 cannot order such scores
    assert list(zip(mined.source.tolist(), mined.target.tolist(), strict=True)) == [(i, j) for i, j, _ in expected]
    np.testing.assert_allclose(mined.score, [score for _, _, score in expected], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("memory", [0, 1, 3, 64])
def test_blocks_of_any_size_find_the_same(memory: int) -> None:
    source, target = _vectors(0, 700), _vectors(1, 500)
    whole = mine_bitext(source, target, memory_mib=1024)
    blocked = mine_bitext(source, target, memory_mib=memory)
    assert np.array_equal(blocked.source, whole.source)
    assert np.array_equal(blocked.target, whole.target)
    np.testing.assert_allclose(blocked.score, whole.score, rtol=1e-5)


def test_equal_sentences_have_a_stated_order() -> None:
    """Six equal vectors on either side: neighbours and pairs are the lowest numbers."""
    axes = np.eye(3, dtype=np.float32)
    source, target = axes[[0, 1, 0, 0, 0, 2, 0, 0]], axes[[2, 0, 0, 0, 1, 0, 0, 0]]
    mined = mine_bitext(source, target, candidates="forward", margin="absolute")
    pairs = dict(zip(mined.source.tolist(), mined.target.tolist(), strict=True))
    assert pairs == {0: 1, 1: 4, 2: 1, 3: 1, 4: 1, 5: 0, 6: 1, 7: 1}
    tensors = [torch.tensor(side, requires_grad=True) for side in (source, target)]  # as a model returns them
    again = mine_bitext(*tensors, candidates="forward", margin="absolute", memory_mib=0)
    assert np.array_equal(again.target, mined.target)


def test_ranks_are_places_among_the_neighbours() -> None:
    source, target = _vectors(0, 60), _vectors(1, 50)
    mined = mine_bitext(source, target)
    cosine = (source / np.linalg.norm(source, axis=1)[:, None]) @ (target / np.linalg.norm(target, axis=1)[:, None]).T
    for i, j, target_rank, source_rank in zip(
        mined.source, mined.target, mined.target_rank, mined.source_rank, strict=True
    ):
        assert target_rank == min(5, 1 + (cosine[i] > cosine[i, j]).sum())
        assert source_rank == min(5, 1 + (cosine[:, j] > cosine[i, j]).sum())
    assert {*mined.target_rank} | {*mined.source_rank} >= {1, 2, 5}


def test_a_threshold_keeps_what_scores_at_least_so_much() -> None:
    mined = mine_bitext(_vectors(0, 30), _vectors(1, 30))
    threshold = float(mined.score[4])
    assert len(mined.above(threshold)) == 5
    assert [len(mined.above(score)) for score in mined.score] == list(range(1, len(mined) + 1))
    assert [len(mined.above(round(float(score), 6))) for score in mined.score] == list(range(1, len(mined) + 1))
    assert len(mined.above(float("inf"))) == 0
    assert len(mined.above(-float("inf"))) == len(mined)


def test_memory_maps_are_read_in_blocks(tmp_path: Path) -> None:
    source = _vectors(0, 300)
    np.save(tmp_path / "source.npy", source)
    mapped = np.load(tmp_path / "source.npy", mmap_mode="r")
    target = _vectors(1, 200)
    assert np.array_equal(mine_bitext(mapped, target, memory_mib=0).source, mine_bitext(source, target).source)


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        (_vectors(0, 5), _vectors(0, 5, 7), {}, "source vectors have 5 dimensions and target vectors 7"),
        (_vectors(0, 5), _vectors(0, 0), {}, "the target vectors have shape (0, 5)"),
        (_vectors(0, 5)[0], _vectors(0, 5), {}, "the source vectors have shape (5,)"),
        (["Ein Hund."], ["A dog."], {}, "the source vectors are a list: give a matrix with one row per sentence"),
        (_vectors(0, 5), _vectors(0, 3), {}, "k is 4, but a side has only 3 sentences"),
        (_vectors(0, 5), _vectors(0, 5), {"k": 0}, "k is 0"),
        (_vectors(0, 5), np.full((6, 5), np.nan, np.float32), {}, "row 0 (from 0) of 6 vectors is zero or not finite"),
        (
            np.ones((90, 5)) * (np.arange(90) != 77)[:, None],
            _vectors(0, 5),
            {"memory_mib": 0},
            "row 77 (from 0) of 90 ",
        ),
        (_vectors(0, 5), _vectors(0, 5), {"margin": "ration"}, "unknown margin 'ration': use one of ratio, distance"),
        (_vectors(0, 5), _vectors(0, 5), {"candidates": "both"}, "unknown candidates 'both'"),
        (_vectors(0, 5), _vectors(0, 5), {"device": "gpu"}, "device 'gpu' is not available, use cpu or cuda"),
        (
            _vectors(0, 5),
            _vectors(0, 5),
            {"dtype": "bfloat16"},
            "dtype is 'bfloat16': use torch.float32 or torch.bfloat16",
        ),
        (_vectors(0, 5), _vectors(0, 5), {"memory_mib": 0.5}, "memory_mib takes a whole number, not 0.5"),
    ],
)
def test_what_cannot_be_mined_is_an_error(source: Any, target: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HfXsentError) as error:
        mine_bitext(source, target, **options)
    assert str(error.value).startswith(message)


def test_a_sentence_without_any_similar_one_has_a_finite_score() -> None:
    """All cosines of a sentence and of its neighbours are 0, so that the ratio would be 0 / 0."""
    mined = mine_bitext(np.eye(8, dtype=np.float32)[:4], np.eye(8, dtype=np.float32)[4:])
    assert set(mined.score) == {0.0}


def test_opposite_sentences_do_not_score_above_translations() -> None:
    cosines = torch.tensor([0.8, 0.5, 0.3, 0.0, -0.1, -0.995])
    averages = torch.tensor([0.6, -0.1, 0.0, 0.0, 0.2, -0.147])
    scores = margins.margin_score(cosines, averages, averages)
    torch.testing.assert_close(scores, torch.tensor([0.8 / 0.6, 0.5, 0.3, 0.0, -0.1, -0.995]))


def test_taking_pairs_without_repetition_holds_few_bytes_a_pair() -> None:
    count = 1 << 17
    generator = np.random.default_rng(0)
    source, target = (generator.integers(0, count, count) for _ in range(2))
    score = np.linspace(2, 1, count, dtype=np.float32)
    pairs = margins.MinedPairs(source, target, score, score, source, target)
    tracemalloc.start()
    try:
        kept = margins._without_repetition(pairs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * count, f"{peak / count:.0f} bytes a pair, of which what is kept takes 40"
    taken: tuple[set[int], set[int]] = (set(), set())
    rows = []
    for row in range(count):
        if source[row] not in taken[0] and target[row] not in taken[1]:
            taken[0].add(source[row])
            taken[1].add(target[row])
            rows.append(row)
    assert np.array_equal(kept.score, score[rows])
