"""Triplet ranking against sums written out, and with several negatives, repeated sentences and processes."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from every_objective import sentence_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hf_xsent.objectives import triplet
from hf_xsent.objectives.base import Parts
from hf_xsent.objectives.triplet import TripletRanking, draw_bernoulli, triplet_ranking_loss


def _cosine(one: Tensor, other: Tensor) -> float:
    return float((one @ other) / one.norm() / other.norm())


def _slow(source: Tensor, target: Tensor, margin: float, same: set[tuple[int, int]] = frozenset()) -> float:  # type: ignore[assignment]
    """The mean cost with n = 1, one pair and one direction at a time."""
    total, costs, count = 0.0, 0, len(source)
    for i in range(count):
        others = [j for j in range(count) if j != i and (i, j) not in same]
        costs += 2 * bool(others)
        positive = _cosine(source[i], target[i])
        if others:
            total += max(0.0, margin - positive + max(_cosine(source[i], target[j]) for j in others))
            total += max(0.0, margin - positive + max(_cosine(source[j], target[i]) for j in others))
    return total / max(1, costs)


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
        assert triplet_ranking_loss(source, target, 0.4, negatives).item() == pytest.approx(expected / 60)


def test_the_hardest_negative_is_always_sampled_and_the_others_change() -> None:
    source, target = torch.randn(2, 8, 5, dtype=torch.float64)
    one = triplet_ranking_loss(source, target, 0.5).item()
    sampled = {round(triplet_ranking_loss(source, target, 0.5, 2).item(), 9) for _ in range(20)}
    assert len(sampled) > 5 and 2 * min(sampled) >= one - 1e-9
    torch.manual_seed(1)
    first = triplet_ranking_loss(source, target, 0.5, 2)
    torch.manual_seed(1)
    assert first == triplet_ranking_loss(source, target, 0.5, 2)


def _costs(source: Tensor, target: Tensor) -> Tensor:
    """The costs of all negatives, one of each direction first; of right ones -1, so that none is hardest."""
    scores = torch.tensor([[_cosine(one, other) for other in target] for one in source], dtype=torch.float64)
    rows = scores - scores.diagonal()[:, None]
    columns = (scores - scores.diagonal()).T
    return torch.stack((rows, columns)) - 9 * torch.eye(len(scores), dtype=torch.float64)


def test_without_the_hinge_the_hardest_cost_counts_also_below_0_and_the_margin_does_not() -> None:
    source = torch.eye(6, dtype=torch.float64)
    target = source + 0.1 * torch.rand(6, 6, dtype=torch.float64)
    expected = _costs(source, target).amax(2).mean()
    assert expected < 0
    for margin in (0.0, 0.5):
        assert triplet_ranking_loss(source, target, margin, hinge=False).item() == pytest.approx(expected.item())


def test_without_the_hinge_the_margin_drops_random_negatives_of_lower_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triplet, "draw_bernoulli", lambda others, count: torch.ones_like(others))
    source, target = torch.randn(2, 6, 5, dtype=torch.float64)
    costs = _costs(source, target)
    for margin in (0.0, 0.3, 2.0):
        kept = ((costs + margin >= 0) | (costs == costs.amax(2, keepdim=True))) & (costs > -5)
        loss = triplet_ranking_loss(source, target, margin, 2, hinge=False, random_negatives="bernoulli")
        assert loss.item() == pytest.approx(costs[kept].mean().item())


def test_coins_draw_each_candidate_as_often() -> None:
    torch.manual_seed(0)
    drawn = torch.stack([draw_bernoulli(torch.ones(8, 8, dtype=torch.bool), 2) for _ in range(400)]).double()
    assert drawn.mean().item() == pytest.approx(2 / 7, abs=0.01)
    assert len(drawn.sum(2).unique()) > 3
    assert not draw_bernoulli(torch.ones(1, 1, dtype=torch.bool), 0).any()


def test_weights_of_both_costs_mean_the_same_where_every_negative_is_wrong() -> None:
    """There the hinge of the paper changes nothing: λ is one number in both variants."""
    source, target = torch.eye(6, dtype=torch.float64), torch.eye(6, dtype=torch.float64).roll(1, 0)
    source = (source + 0.1 * torch.rand(6, 6, dtype=torch.float64)).requires_grad_()
    losses = [triplet_ranking_loss(source, target, hinge=hinge) for hinge in (True, False)]
    gradients = [torch.autograd.grad(loss, source)[0] for loss in losses]
    assert losses[0] > 0
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("negatives", [1, 3])
def test_repeated_sentences_are_no_negatives(negatives: int) -> None:
    source, target = torch.randn(2, 4, 5, dtype=torch.float64)
    target[2], source[3] = target[0], target[1]
    identities = (torch.tensor([0, 1, 2, 11]), torch.tensor([10, 11, 10, 13]))
    same = {(0, 2), (2, 0), (1, 3), (3, 1)}
    if negatives == 1:
        loss = triplet_ranking_loss(source, target, 0.3, 1, *identities).item()
        assert loss == pytest.approx(_slow(source, target, 0.3, same))
    all_repeated = (torch.zeros(4, dtype=torch.long),) * 2
    assert triplet_ranking_loss(source, target, 0.3, negatives, *all_repeated) == 0


def test_the_gradient_moves_the_pair_together() -> None:
    source, target = torch.randn(2, 6, 5, dtype=torch.float64).requires_grad_().unbind()
    pairs = sentence_pairs(source, target)
    objective = TripletRanking(TripletRanking.Settings(margin=0.5, negatives=2), cast(Parts, None))  # it builds nothing
    torch.manual_seed(0)
    before = objective.sentence_loss(pairs)
    gradients = torch.autograd.grad(before, (source, target))
    torch.manual_seed(0)
    after = triplet_ranking_loss(source - 1e-3 * gradients[0], target - 1e-3 * gradients[1], 0.5, 2)
    assert after < before
