"""Triplet ranking against sums written out, and with several negatives, repeated sentences and processes."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hf_xsent.objectives.base import Parts
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.triplet import TripletRanking, triplet_ranking_loss


def _cosine(one: Tensor, other: Tensor) -> float:
    return float((one @ other) / one.norm() / other.norm())


def _slow(source: Tensor, target: Tensor, margin: float, same: set[tuple[int, int]] = frozenset()) -> float:  # type: ignore[assignment]
    """n = 1, one pair and one direction at a time."""
    total, count = 0.0, len(source)
    for i in range(count):
        others = [j for j in range(count) if j != i and (i, j) not in same]
        positive = _cosine(source[i], target[i])
        if others:
            total += max(0.0, margin - positive + max(_cosine(source[i], target[j]) for j in others))
            total += max(0.0, margin - positive + max(_cosine(source[j], target[i]) for j in others))
    return total / count


@given(st.integers(1, 7), st.floats(0, 1), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_loss_is_the_hinge_of_the_hardest_negative_of_each_direction(count: int, margin: float, seed: int) -> None:
    torch.manual_seed(seed)
    source, target = torch.randn(2, count, 5, dtype=torch.float64)
    torch.testing.assert_close(
        triplet_ranking_loss(source, target, margin).item(), _slow(source, target, margin), atol=1e-12, rtol=1e-9
    )


def test_with_enough_negatives_each_counts_once() -> None:
    source, target = torch.randn(2, 6, 5, dtype=torch.float64)
    expected = 0.0
    for i in range(6):
        for j in {*range(6)} - {i}:
            expected += max(0.0, 0.4 - _cosine(source[i], target[i]) + _cosine(source[i], target[j]))
            expected += max(0.0, 0.4 - _cosine(source[i], target[i]) + _cosine(source[j], target[i]))
    for negatives in (5, 9):
        assert triplet_ranking_loss(source, target, 0.4, negatives).item() == pytest.approx(expected / 6)


def test_the_hardest_negative_is_always_sampled_and_the_others_change() -> None:
    source, target = torch.randn(2, 8, 5, dtype=torch.float64)
    one = triplet_ranking_loss(source, target, 0.5).item()
    sampled = {round(triplet_ranking_loss(source, target, 0.5, 2).item(), 9) for _ in range(20)}
    assert len(sampled) > 5 and min(sampled) >= one - 1e-9
    torch.manual_seed(1)
    first = triplet_ranking_loss(source, target, 0.5, 2)
    torch.manual_seed(1)
    assert first == triplet_ranking_loss(source, target, 0.5, 2)


@pytest.mark.parametrize("negatives", [1, 3])
def test_repeated_sentences_are_no_negatives(negatives: int) -> None:
    source, target = torch.randn(2, 4, 5, dtype=torch.float64)
    target[2] = target[0]
    identities = (torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 0, 3]))
    same = {(0, 2), (2, 0)}
    if negatives == 1:
        loss = triplet_ranking_loss(source, target, 0.3, 1, *identities).item()
        assert loss == pytest.approx(_slow(source, target, 0.3, same))
    all_repeated = (torch.zeros(4, dtype=torch.long),) * 2
    assert triplet_ranking_loss(source, target, 0.3, negatives, *all_repeated) == 0


def test_the_gradient_moves_the_pair_together() -> None:
    source, target = torch.randn(2, 6, 5, dtype=torch.float64).requires_grad_().unbind()
    pairs = SentencePairs(source, target, torch.arange(6), torch.arange(6))
    objective = TripletRanking(TripletRanking.Settings(margin=0.5, negatives=2), cast(Parts, None))  # it builds nothing
    torch.manual_seed(0)
    before = objective.sentence_loss(pairs)
    gradients = torch.autograd.grad(before, (source, target))
    torch.manual_seed(0)
    after = triplet_ranking_loss(source - 1e-3 * gradients[0], target - 1e-3 * gradients[1], 0.5, 2)
    assert after < before
