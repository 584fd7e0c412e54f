from __future__ import annotations

import math
from itertools import product
from typing import Any, cast

import pytest
import torch
from every_objective import sentence_pairs
from torch import Tensor

from hf_xsent.objectives import translation_ranking
from hf_xsent.objectives.base import Parts
from hf_xsent.objectives.translation_ranking import TranslationRanking, translation_ranking_loss
from hf_xsent.tensors.chunked_softmax import chunked_cross_entropy


def _cosine(one: list[float], other: list[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one)) / math.sqrt(sum(b * b for b in other))


def _by_loop(
    source: Tensor,
    target: Tensor,
    temperature: float,
    margin: float,
    symmetric: bool,
    source_identity: list[int] | None,
    target_identity: list[int] | None,
    own_side: bool = False,
) -> float:
    """The equation, term by term, in Python's float64."""
    sources, targets = source.tolist(), target.tolist()
    count = len(sources)

    def logit(i: int, j: int) -> float:
        cosine = _cosine(sources[i], targets[j])
        return cosine / temperature - (margin if i == j else 0)

    def is_negative(i: int, j: int) -> bool:
        identities = [identity for identity in (source_identity, target_identity) if identity]
        return {identity[i] for identity in identities}.isdisjoint(identity[j] for identity in identities)

    def direction(logits: list[list[float]], queries: list[list[float]]) -> float:
        losses = []
        for i in range(count):
            allowed = [math.exp(logits[i][j]) for j in range(count) if j == i or is_negative(i, j)]
            if own_side:
                others = [j for j in range(count) if j != i and is_negative(i, j)]
                allowed += [math.exp(_cosine(queries[i], queries[j]) / temperature) for j in others]
            losses.append(math.log(sum(allowed)) - logits[i][i])
        return sum(losses) / count

    forward = [[logit(i, j) for j in range(count)] for i in range(count)]
    backward = [[logit(j, i) for j in range(count)] for i in range(count)]
    of_sources = direction(forward, sources)
    return (of_sources + direction(backward, targets)) / 2 if symmetric else of_sources


@pytest.mark.parametrize(("margin", "symmetric", "repeated"), [*product([0.0, 0.3], [False, True], [False, True])])
@pytest.mark.parametrize(("temperature", "own_side"), [(0.05, False), (0.7, True)])
def test_the_loss_is_the_equation(
    temperature: float, own_side: bool, margin: float, symmetric: bool, repeated: bool
) -> None:
    source, target = torch.randn(2, 7, 5, dtype=torch.float64)
    source_identity = [1, 2, 1, 4, 5, 6, 7] if repeated else None  # 0 and 2 share a source
    target_identity = [11, 12, 13, 6, 12, 12, 5] if repeated else None  # 1, 4 and 5 share a target; 3's is 5's source
    loss = translation_ranking_loss(
        source,
        target,
        temperature,
        margin,
        symmetric,
        torch.tensor(source_identity) if source_identity else None,
        torch.tensor(target_identity) if target_identity else None,
        own_side=own_side,
    )
    expected = _by_loop(source, target, temperature, margin, symmetric, source_identity, target_identity, own_side)
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("margin", [0.3, 0.3 / 0.05])
def test_float64_stays_exact_with_a_margin(margin: float) -> None:
    source, target = torch.randn(2, 7, 5, dtype=torch.float64)
    loss = translation_ranking_loss(source, target, 0.05, margin)
    assert loss.item() == pytest.approx(_by_loop(source, target, 0.05, margin, False, None, None), rel=1e-13)


@pytest.mark.parametrize("which", ["source", "target"])
def test_either_identity_alone_masks(which: str) -> None:
    source, target = torch.randn(2, 4, 5, dtype=torch.float64)
    identity = [1, 2, 3, 2]
    loss = translation_ranking_loss(source, target, **{f"{which}_identity": torch.tensor(identity)})
    expected = _by_loop(source, target, 0.05, 0, False, identity, None)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    assert loss.item() != pytest.approx(translation_ranking_loss(source, target).item())


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize(("margin", "own_side"), [(0.0, False), (0.2, False), (0.2, True)])
@pytest.mark.parametrize("logits_at_once", [0, 15, 48])  # one row at a time, two, and all but one
def test_the_chunked_kernel_gives_the_plain_loss_and_gradients(
    logits_at_once: int,
    margin: float,
    own_side: bool,
    repeated: bool,
    symmetric: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = torch.randn(2, 7, 5, dtype=torch.float64).requires_grad_().unbind()
    identities = (torch.tensor([1, 2, 1, 3, 4, 4, 5]), torch.tensor([1, 2, 3, 3, 4, 5, 2])) if repeated else ()
    calls = []

    def chunked(*args: Any, **options: Any) -> Tensor:
        calls.append(len(args[0]))
        return chunked_cross_entropy(*args, **options)

    def loss_and_gradients() -> tuple[Tensor, ...]:
        loss = translation_ranking_loss(source, target, 0.3, margin, symmetric, *identities, own_side=own_side)
        return loss, *torch.autograd.grad(3 * loss, (source, target))

    monkeypatch.setattr(translation_ranking, "chunked_cross_entropy", chunked)
    plain = loss_and_gradients()
    assert not calls
    monkeypatch.setattr(translation_ranking, "LOGITS_AT_ONCE", logits_at_once)
    torch.testing.assert_close(loss_and_gradients(), plain, rtol=1e-10, atol=1e-12)
    assert calls == [7] * (1 + symmetric)


def test_the_chunked_kernel_computes_in_float32_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = torch.randn(2, 32, 16)
    expected = translation_ranking_loss(source, target, 0.01)
    monkeypatch.setattr(translation_ranking, "LOGITS_AT_ONCE", 100)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = translation_ranking_loss(source, target, 0.01)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)


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
def test_a_batch_of_one_pair_has_zero_loss(symmetric: bool) -> None:
    source, target = torch.randn(2, 1, 4).requires_grad_()
    loss = translation_ranking_loss(source, target, margin=0.3, symmetric=symmetric)
    loss.backward()
    assert loss.item() == 0


def test_a_batch_that_repeats_one_pair_has_zero_loss_and_finite_gradients() -> None:
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
def test_the_objective_passes_on_its_settings(mask_repeated: bool) -> None:
    source, target = torch.randn(2, 4, 5)
    source_identity, target_identity = torch.tensor([1, 1, 2, 3]), torch.tensor([1, 2, 3, 3])
    settings = TranslationRanking.Settings(temperature=0.2, margin=0.1, symmetric=True, mask_repeated=mask_repeated)
    objective = TranslationRanking(settings, cast(Parts, None))  # it builds nothing
    loss = objective.sentence_loss(sentence_pairs(source, target, source_identity, target_identity))
    identities = (source_identity, target_identity) if mask_repeated else ()
    expected = translation_ranking_loss(source, target, 0.2, 0.1, True, *identities)
    assert torch.equal(loss, expected)


def _with_negatives_by_loop(
    source: Tensor, target: Tensor, negatives: Tensor, identity: list[int], own: list[list[int]], own_side: bool
) -> float:
    """One direction, term by term: all negatives are candidates of all queries, except copies of its pair."""
    sources, targets, losses = source.tolist(), target.tolist(), []
    for i, query in enumerate(sources):
        others = [*targets]
        others += [
            one for one, same in zip(negatives.tolist(), identity, strict=True) if same not in (own[0][i], own[1][i])
        ]
        others += [one for j, one in enumerate(sources) if j != i and own_side]
        logits = [_cosine(query, one) / 0.3 for one in others]
        losses.append(math.log(sum(map(math.exp, logits))) - _cosine(query, targets[i]) / 0.3)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("logits_at_once", [0, 1 << 21])
@pytest.mark.parametrize(("symmetric", "own_side"), [(False, False), (True, False), (True, True)])
def test_mined_negatives_are_candidates_of_all_queries(
    symmetric: bool, own_side: bool, logits_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = torch.randn(2, 6, 5, dtype=torch.float64)
    of_source, of_target = torch.randn(3, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    own = [[1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16]]
    identity = [[2, 70, 71], [80, 81, 14, 82, 14, 83, 2]]  # with copies of own sentences: 2 is a source
    monkeypatch.setattr(translation_ranking, "LOGITS_AT_ONCE", logits_at_once)
    objective = TranslationRanking(
        TranslationRanking.Settings(temperature=0.3, symmetric=symmetric, own_side=own_side, hard_negatives=2),
        cast(Parts, None),
    )
    identities = [torch.tensor(one) for one in own]
    pairs = sentence_pairs(
        source,
        target,
        *identities,
        source_negatives=of_source,
        target_negatives=of_target,
        source_negative_identity=torch.tensor(identity[0]),
        target_negative_identity=torch.tensor(identity[1]),
        source_negative_number=torch.zeros(3),
        target_negative_number=torch.arange(7) % 2,
    )
    expected = _with_negatives_by_loop(source, target, of_target, identity[1], own, own_side)
    if symmetric:
        expected = (expected + _with_negatives_by_loop(target, source, of_source, identity[0], own, own_side)) / 2
    assert objective.sentence_loss(pairs).item() == pytest.approx(expected, rel=1e-10)
    plain = TranslationRanking(TranslationRanking.Settings(temperature=0.3, symmetric=symmetric), cast(Parts, None))
    assert plain.sentence_loss(pairs).item() < expected


@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_objective_reads_its_own_number_of_negatives(count: int) -> None:
    """Another objective of the same batch may read more of them."""
    source, target, negatives = torch.randn(3, 6, 5, dtype=torch.float64)
    numbers, identity = torch.tensor([0, 1, 2, 0, 1, 0]), torch.arange(100, 106)
    pairs = sentence_pairs(
        source,
        target,
        target_negatives=negatives,
        target_negative_identity=identity,
        target_negative_number=numbers,
    )
    objective = TranslationRanking(TranslationRanking.Settings(hard_negatives=count), cast(Parts, None))
    first = numbers < count
    expected = translation_ranking_loss(
        source, target, target_negatives=(negatives[first], identity[first]) if count else None
    )
    torch.testing.assert_close(objective.sentence_loss(pairs), expected)
