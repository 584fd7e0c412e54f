from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_xsent.objectives import translation_ranking
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.translation_ranking import TranslationRanking, translation_ranking_loss


def _cosine(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one)) / math.sqrt(sum(b * b for b in other))


def _by_loop(
    source: Tensor,
    target: Tensor,
    temperature: float,
    margin: float,
    symmetric: bool,
    margin_before_temperature: bool,
    source_identity: list[int] | None,
    target_identity: list[int] | None,
) -> float:
    """The equation, term by term, in Python's float64."""
    sources, targets = source.tolist(), target.tolist()
    count = len(sources)

    def logit(i: int, j: int) -> float:
        cosine = _cosine(sources[i], targets[j])
        if i == j and margin_before_temperature:
            return (cosine - margin) / temperature
        return cosine / temperature - (margin if i == j else 0)

    def is_negative(i: int, j: int) -> bool:
        identities = [identity for identity in (source_identity, target_identity) if identity]
        return not any(identity[i] == identity[j] for identity in identities)

    def direction(logits: list[list[float]]) -> float:
        losses = []
        for i in range(count):
            allowed = [math.exp(logits[i][j]) for j in range(count) if j == i or is_negative(i, j)]
            losses.append(math.log(sum(allowed)) - logits[i][i])
        return sum(losses) / count

    forward = [[logit(i, j) for j in range(count)] for i in range(count)]
    backward = [[logit(j, i) for j in range(count)] for i in range(count)]
    return (direction(forward) + direction(backward)) / 2 if symmetric else direction(forward)


@pytest.mark.parametrize(
    ("margin", "symmetric", "before", "repeated"),
    [*product([0.0, 0.3], [False, True], [False, True], [False, True])],
)
@pytest.mark.parametrize("temperature", [0.05, 0.7])
def test_the_loss_is_the_equation(
    temperature: float, margin: float, symmetric: bool, before: bool, repeated: bool
) -> None:
    source, target = torch.randn(2, 7, 5, dtype=torch.float64)
    source_identity = [1, 2, 1, 4, 5, 6, 7] if repeated else None  # 0 and 2 share a source
    target_identity = [1, 2, 3, 4, 2, 2, 7] if repeated else None  # 1, 4 and 5 share a target
    loss = translation_ranking_loss(
        source,
        target,
        temperature,
        margin,
        symmetric,
        before,
        torch.tensor(source_identity) if source_identity else None,
        torch.tensor(target_identity) if target_identity else None,
    )
    expected = _by_loop(source, target, temperature, margin, symmetric, before, source_identity, target_identity)
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("before", [False, True])
def test_float64_stays_exact_with_a_margin(before: bool) -> None:
    source, target = torch.randn(2, 7, 5, dtype=torch.float64)
    loss = translation_ranking_loss(source, target, 0.05, 0.3, margin_before_temperature=before)
    assert loss.item() == pytest.approx(_by_loop(source, target, 0.05, 0.3, False, before, None, None), rel=1e-13)


@pytest.mark.parametrize("which", ["source", "target"])
def test_either_identity_alone_masks(which: str) -> None:
    source, target = torch.randn(2, 4, 5, dtype=torch.float64)
    identity = [1, 2, 3, 2]
    loss = translation_ranking_loss(source, target, **{f"{which}_identity": torch.tensor(identity)})
    expected = _by_loop(source, target, 0.05, 0, False, False, identity, None)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert loss.item() != pytest.approx(translation_ranking_loss(source, target).item())


def test_length_of_vectors_does_not_count() -> None:
    source, target = torch.randn(2, 4, 5, dtype=torch.float64)
    lengths = torch.rand(4, 1, dtype=torch.float64) + 0.1
    loss = translation_ranking_loss(source * lengths, target * 3, margin=0.2)
    torch.testing.assert_close(loss, translation_ranking_loss(source, target, margin=0.2))


@pytest.mark.parametrize("symmetric", [False, True])
def test_scores_in_blocks_change_nothing(symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = torch.randn(2, 7, 5, dtype=torch.float64).requires_grad_()
    settings: Any = (0.3, 0.2, symmetric, True, torch.tensor([1, 2, 1, 3, 4, 4, 5]))
    whole = translation_ranking_loss(source, target, *settings)
    gradients = torch.autograd.grad(whole, (source, target))
    monkeypatch.setattr(translation_ranking, "LOGITS_AT_A_TIME", 15)  # two rows, and one at the end
    blocks = translation_ranking_loss(source, target, *settings)
    torch.testing.assert_close(blocks, whole)
    torch.testing.assert_close(torch.autograd.grad(blocks, (source, target)), gradients)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_gradients(symmetric: bool, repeated: bool) -> None:
    source, target = torch.randn(2, 4, 3, dtype=torch.float64).requires_grad_()
    identity = torch.tensor([1, 2, 1, 3]) if repeated else None

    def loss(source: Tensor, target: Tensor) -> Tensor:
        return translation_ranking_loss(source, target, 0.3, 0.2, symmetric, True, identity)

    assert torch.autograd.gradcheck(loss, (source, target))


def test_logits_are_float32_under_bfloat16_autocast() -> None:
    source, target = torch.randn(2, 32, 16)
    expected = translation_ranking_loss(source, target, 0.01)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = translation_ranking_loss(source, target, 0.01)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)


def test_bfloat16_vectors_give_a_float32_loss() -> None:
    source, target = torch.randn(2, 8, 16).bfloat16()
    loss = translation_ranking_loss(source, target)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, translation_ranking_loss(source.float(), target.float()))


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_batch_of_one_costs_nothing(symmetric: bool) -> None:
    source, target = torch.randn(2, 1, 4).requires_grad_()
    loss = translation_ranking_loss(source, target, margin=0.3, symmetric=symmetric)
    loss.backward()
    assert loss.item() == 0


def test_a_batch_that_repeats_one_pair_costs_nothing_and_stays_finite() -> None:
    source, target = torch.randn(2, 3, 4, requires_grad=True)
    same = torch.zeros(3, dtype=torch.long)
    loss = translation_ranking_loss(source, target, symmetric=True, source_identity=same, target_identity=same)
    gradients = torch.autograd.grad(loss, (source, target))
    assert loss.item() == 0
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_zero_vector_stays_finite() -> None:
    source, target = torch.randn(2, 3, 4)
    source[1] = 0
    source.requires_grad_()
    loss = translation_ranking_loss(source, target)
    loss.backward()
    assert loss.isfinite() and source.grad is not None and source.grad.isfinite().all()


@pytest.mark.parametrize("mask_repeated", [False, True])
def test_the_objective_passes_its_settings_on(mask_repeated: bool) -> None:
    source, target = torch.randn(2, 4, 5)
    source_identity, target_identity = torch.tensor([1, 1, 2, 3]), torch.tensor([1, 2, 3, 3])
    objective = TranslationRanking(0.2, 0.1, True, True, mask_repeated)
    loss = objective(SentencePairs(source, target, source_identity, target_identity))
    identities = (source_identity, target_identity) if mask_repeated else ()
    expected = translation_ranking_loss(source, target, 0.2, 0.1, True, True, *identities)
    assert torch.equal(loss, expected)


def test_repeated_sentences_are_masked_by_default() -> None:
    assert TranslationRanking().mask_repeated
