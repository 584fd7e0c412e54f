"""The losses of the critic, of the encoder and of the cycle against sums written out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from every_objective import sentence_pairs
from torch import Tensor, nn

from hf_xsent.objectives.adversarial import Adversarial, CycleConsistency
from hf_xsent.objectives.pairs import SentencePairs


def _pairs(count: int = 6) -> SentencePairs:
    source, target = torch.randn(2, count, 5)
    return sentence_pairs(source.requires_grad_(), target.requires_grad_())


def _objective(kind: Any, **settings: Any) -> Any:
    """Build an objective over sentence embeddings of width 5, with random weights."""
    parts = SimpleNamespace(
        encoder_config=SimpleNamespace(hidden_size=5), linear_map=lambda width: nn.Linear(5, width, bias=False)
    )
    objective = kind(kind.Settings(**settings), parts)
    for weight in objective.parameters():
        nn.init.normal_(weight)
    return objective


def test_the_losses_of_critic_and_encoder_are_opposite_mean_differences() -> None:
    objective, pairs = _objective(Adversarial), _pairs()
    score = objective.critic.weight[0].detach()
    expected = (
        sum(float(score @ one) for one in pairs.source.detach()) / 6
        - sum(float(score @ one) for one in pairs.target.detach()) / 6
    )
    assert objective.critic_loss(
        pairs.source, pairs.target, dict(objective.critic.named_parameters())
    ).item() == pytest.approx(expected)
    assert objective.sentence_loss(pairs).item() == pytest.approx(-expected)


def test_the_encoder_s_loss_moves_no_critic_and_the_critic_s_no_encoder() -> None:
    objective, pairs = _objective(Adversarial), _pairs()
    objective.critic.requires_grad_()
    objective.sentence_loss(pairs).backward()
    assert objective.critic.weight.grad is None and pairs.source.grad is not None
    pairs.source.grad = None
    objective.critic_loss(pairs.source, pairs.target, dict(objective.critic.named_parameters())).backward()
    assert objective.critic.weight.grad is not None and pairs.source.grad is None


def _hinge(queries: Tensor, candidates: Tensor, margin: float) -> float:
    total = 0.0
    similarity = torch.cosine_similarity
    for i in range(len(queries)):
        positive = similarity(queries[i], candidates[i], dim=0)
        others = [j for j in range(len(queries)) if j != i]
        total += max(0.0, float(margin - positive + max(similarity(queries[j], candidates[i], dim=0) for j in others)))
        total += max(0.0, float(margin - positive + max(similarity(queries[i], candidates[j], dim=0) for j in others)))
    return total / (2 * len(queries))  # the mean of all costs


def test_the_cycle_loss_is_h_of_both_returns() -> None:
    objective, pairs = _objective(CycleConsistency, margin=0.3), _pairs()
    forth, back = objective.to_target.weight, objective.to_source.weight
    source_again = torch.stack([back @ (forth @ one) for one in pairs.source])
    target_again = torch.stack([forth @ (back @ one) for one in pairs.target])
    expected = _hinge(pairs.source, source_again, 0.3) + _hinge(target_again, pairs.target, 0.3)
    assert objective.sentence_loss(pairs).item() == pytest.approx(expected, rel=1e-4)
    objective.sentence_loss(pairs).backward()
    assert all(weight.grad is not None for weight in objective.parameters()) and pairs.target.grad is not None


def test_maps_that_undo_each_other_cost_nothing() -> None:
    objective, pairs = _objective(CycleConsistency), _pairs()
    objective.to_source.weight.data = torch.linalg.inv(objective.to_target.weight.data)
    assert objective.sentence_loss(pairs).item() == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_critic_takes_steps_of_adam(steps: int) -> None:
    objective = _objective(Adversarial, critic_steps=steps)
    batches = [_pairs() for _ in range(steps)]
    weight = objective.critic.weight.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=0.1)
    for pairs in batches:
        optimizer.zero_grad()
        ((pairs.source.detach() @ weight.T).mean() - (pairs.target.detach() @ weight.T).mean()).backward()
        optimizer.step()
    objective.train_critic(iter(batches).__next__, 0.1)
    torch.testing.assert_close(objective.critic.weight, weight.detach())
    assert not objective.critic.weight.requires_grad and objective.critic.weight.grad is None
    assert int(objective.steps_taken) == steps
