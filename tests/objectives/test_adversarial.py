"""The critic's and the encoder's loss, the cycle, and the two ways to keep the critic within bounds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hf_xsent.objectives.adversarial import Adversarial, CycleConsistency
from hf_xsent.objectives.pairs import SentencePairs


def _pairs(count: int = 6) -> SentencePairs:
    source, target = torch.randn(2, count, 5)
    return SentencePairs(
        source.requires_grad_(), target.requires_grad_(), torch.arange(count), torch.arange(count) + count
    )


def _drawn(objective: nn.Module) -> None:
    for weight in objective.parameters():
        nn.init.normal_(weight)


def test_the_losses_of_critic_and_encoder_are_opposite_mean_differences() -> None:
    objective, pairs = Adversarial(5), _pairs()
    _drawn(objective)
    score = objective.critic.weight[0]
    expected = sum(float(score @ one) for one in pairs.source) / 6 - sum(float(score @ one) for one in pairs.target) / 6
    assert objective.critic_loss(pairs.source, pairs.target, objective.critic.weight).item() == pytest.approx(expected)
    assert objective(pairs).item() == pytest.approx(-expected)


def test_the_encoder_s_loss_moves_no_critic_and_the_critic_s_no_encoder() -> None:
    objective, pairs = Adversarial(5), _pairs()
    objective.critic.requires_grad_()
    objective(pairs).backward()
    assert objective.critic.weight.grad is None and pairs.source.grad is not None
    pairs.source.grad = None
    objective.critic_loss(pairs.source, pairs.target, objective.critic.weight).backward()
    assert objective.critic.weight.grad is not None and pairs.source.grad is None


def test_clipping_and_penalty() -> None:
    pairs = _pairs()
    clipped = Adversarial(5, clip=0.01)
    _drawn(clipped)
    clipped.clip_critic()
    assert clipped.critic.weight.abs().max() <= 0.01
    plain, penalised = Adversarial(5), Adversarial(5, penalty=10.0)
    weight = torch.randn(1, 5)
    added = penalised.critic_loss(pairs.source, pairs.target, weight) - plain.critic_loss(
        pairs.source, pairs.target, weight
    )
    between = torch.rand(6, 1) * pairs.source.detach() + pairs.target.detach()
    (gradient,) = torch.autograd.grad((between.requires_grad_() @ weight.T).sum(), between)
    assert added.item() == pytest.approx(10 * (gradient.norm(dim=1) - 1).square().mean().item(), rel=1e-4)


def _hinge(asking: Tensor, answering: Tensor, margin: float) -> float:
    total = 0.0
    similarity = torch.cosine_similarity
    for i in range(len(asking)):
        right = similarity(asking[i], answering[i], dim=0)
        others = [j for j in range(len(asking)) if j != i]
        total += max(0.0, float(margin - right + max(similarity(asking[j], answering[i], dim=0) for j in others)))
        total += max(0.0, float(margin - right + max(similarity(asking[i], answering[j], dim=0) for j in others)))
    return total / len(asking)


def test_the_cycle_loss_is_h_of_both_returns() -> None:
    objective, pairs = CycleConsistency(5, margin=0.3), _pairs()
    _drawn(objective)
    forth, back = objective.to_target.weight, objective.to_source.weight
    source_again = torch.stack([back @ (forth @ one) for one in pairs.source])
    target_again = torch.stack([forth @ (back @ one) for one in pairs.target])
    expected = _hinge(pairs.source, source_again, 0.3) + _hinge(target_again, pairs.target, 0.3)
    assert objective(pairs).item() == pytest.approx(expected, rel=1e-4)
    objective(pairs).backward()
    assert all(weight.grad is not None for weight in objective.parameters()) and pairs.target.grad is not None


def test_maps_that_undo_each_other_cost_nothing() -> None:
    objective, pairs = CycleConsistency(5), _pairs()
    _drawn(objective)
    objective.to_source.weight.data = torch.linalg.inv(objective.to_target.weight.data)
    assert objective(pairs).item() == pytest.approx(0, abs=1e-4)
