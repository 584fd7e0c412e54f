"""The loss, the momentum update and the queue against slow computations of the equations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from every_objective import sentence_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.objectives.momentum_contrast import MomentumContrast, momentum_contrast_loss
from hf_xsent.objectives.pairs import SentencePairs


def _unit(*shape: int) -> Tensor:
    return F.normalize(torch.randn(*shape, dtype=torch.float64), dim=1)


def _objective(size: int = 5, momentum: float = 0.9, **settings: Any) -> MomentumContrast:
    torch.manual_seed(0)
    parts: Any = SimpleNamespace(encoder_config=SimpleNamespace(hidden_size=4), encoder=lambda: nn.Linear(4, 4))
    chosen = MomentumContrast.Settings(projection=3, queue_size=size, momentum=momentum, **settings)
    objective = MomentumContrast(chosen, parts)
    for name, value in objective.initial_tensors().items():
        objective.get_buffer(name).copy_(value)
    return objective.train()


def _pairs(first: int, count: int, same: tuple[int, int] | None = None) -> SentencePairs:
    """Random vectors; sentences are numbered from ``first``, sources and targets in turn."""
    numbers = first + torch.arange(2 * count).view(count, 2)
    if same is not None:
        numbers[same[0], same[1]] = 1
    vectors = torch.randn(3, count, 4)
    return sentence_pairs(vectors[0].requires_grad_(), vectors[1], *numbers.T, momentum_target=vectors[2])


def test_the_loss_is_infonce_over_own_key_and_queue() -> None:
    queries, keys, queue = _unit(3, 4), _unit(3, 4), _unit(7, 4)
    expected = torch.zeros((), dtype=torch.float64)
    for query, key in zip(queries, keys, strict=True):
        positive = (query @ key / 0.1).exp()
        negatives = sum((query @ one / 0.1).exp() for one in queue)
        expected = expected - (positive / (positive + negatives)).log() / 3
    torch.testing.assert_close(momentum_contrast_loss(queries, keys, queue, temperature=0.1), expected)


def test_repeated_keys_are_no_negatives() -> None:
    queries, keys, queue = _unit(2, 4), _unit(2, 4), _unit(3, 4)
    repeated = torch.tensor([[False, True, False], [False, False, False]])
    expected = (
        momentum_contrast_loss(queries[:1], keys[:1], queue[[0, 2]])
        + momentum_contrast_loss(queries[1:], keys[1:], queue)
    ) / 2
    torch.testing.assert_close(momentum_contrast_loss(queries, keys, queue, repeated=repeated), expected)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("side", [0, 1])
def test_a_pair_that_shares_a_sentence_with_a_queued_one_is_found(mask: bool, side: int) -> None:
    """Whichever of its sentences was the key: after shuffling it may be either."""
    objective = _objective(mask_repeated=mask)
    objective.sentence_loss(_pairs(1, 2))  # sentences 1 and 2, 3 and 4
    objective.end_step(nn.Linear(4, 4))
    pairs = _pairs(11, 3, same=(1, side))
    query = F.normalize(objective.projection(pairs.source), dim=1)
    key = F.normalize(objective.key_projection(pairs.momentum_target), dim=1)
    repeated = torch.zeros(3, 5, dtype=torch.bool)
    repeated[1, 0] = mask
    expected = momentum_contrast_loss(query, key, objective.queue, repeated=repeated)
    torch.testing.assert_close(objective.sentence_loss(pairs), expected)


def test_the_key_side_follows_equation_1_and_gets_no_gradient() -> None:
    objective, encoder = _objective(momentum=0.9), nn.Linear(4, 4)
    before = [one.clone() for one in objective.key_encoder.parameters()]
    heads = [one.clone() for one in objective.key_projection.parameters()]
    pairs = _pairs(0, 2)
    objective.sentence_loss(pairs).backward()
    assert pairs.source.grad is not None and pairs.source.grad.abs().sum() > 0
    assert all(one.grad is not None for one in objective.projection.parameters())
    sides = (objective.key_encoder, objective.key_projection)
    assert all(one.grad is None and not one.requires_grad for side in sides for one in side.parameters())
    objective.end_step(encoder)
    for key, old, query in zip(objective.key_encoder.parameters(), before, encoder.parameters(), strict=True):
        torch.testing.assert_close(key.data, 0.9 * old + 0.1 * query.data)
    for key, old, query in zip(
        objective.key_projection.parameters(), heads, objective.projection.parameters(), strict=True
    ):
        torch.testing.assert_close(key.data, 0.9 * old + 0.1 * query.data)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_the_queue_holds_the_last_keys_whatever_the_batches(size: int, batches: list[int]) -> None:
    objective = _objective(size)
    slow = [(key, (0, 0)) for key in objective.queue.clone()]
    place = 0
    for number, count in enumerate(batches):
        pairs = _pairs(100 * number, count)
        keys = F.normalize(objective.key_projection(pairs.momentum_target), dim=1).detach()
        objective.sentence_loss(pairs)
        torch.testing.assert_close(objective.queue, torch.stack([key for key, _ in slow]))  # not before the step ends
        objective.end_step(nn.Linear(4, 4))
        for row, key in enumerate(keys):
            slow[place] = (key, (int(pairs.source_identity[row]), int(pairs.target_identity[row])))
            place = (place + 1) % size
        torch.testing.assert_close(objective.queue, torch.stack([key for key, _ in slow]))
        assert objective.identities.tolist() == [list(names) for _, names in slow]
        assert int(objective.pointer) == place


def test_nothing_enters_the_queue_outside_of_training() -> None:
    objective = _objective().eval()
    before = objective.queue.clone()
    objective.sentence_loss(_pairs(0, 2))
    objective.end_step(objective.key_encoder)
    assert torch.equal(objective.queue, before)
    assert int(objective.pointer) == 0
