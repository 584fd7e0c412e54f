from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import TrainingError
from hf_xsent.tensors.chunked_softmax import chunked_cross_entropy, sample_vocabulary

Parts = tuple[Tensor, Tensor, Tensor, Tensor]


def _parts(rows: int, size: int, dtype: torch.dtype = torch.float64) -> Parts:
    states, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((rows, 6), (size, 6), (size,)))
    for one in (states, weight, bias):
        one.requires_grad_()
    return states, weight, bias, torch.randint(size, (rows,))


def _all_at_once(states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(states, weight, bias), labels, reduction="sum")


def _gradients(loss: Tensor, parts: Parts) -> tuple[Tensor, ...]:
    return torch.autograd.grad(3 * loss, parts[:3])


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 12), size=st.integers(2, 30), at_once=st.integers(1, 400))
def test_loss_and_gradients_are_exact_whatever_the_chunks(rows: int, size: int, at_once: int) -> None:
    parts = _parts(rows, size)
    loss = chunked_cross_entropy(*parts, logits_at_once=at_once)
    expected = _all_at_once(*parts)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(_gradients(loss, parts), _gradients(expected, parts), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_no_rows_cost_nothing_and_leave_zero_gradients() -> None:
    parts = _parts(0, 5)
    loss = chunked_cross_entropy(*parts)
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in _gradients(loss, parts))


def test_scores_beyond_exp_do_not_overflow() -> None:
    states, weight, bias, labels = _parts(4, 9, torch.float32)
    loss = chunked_cross_entropy(states * 1000, weight, bias, labels)
    assert loss.isfinite()
    torch.testing.assert_close(loss, _all_at_once(states * 1000, weight, bias, labels))


def test_frozen_parts_get_no_gradient() -> None:
    states, weight, bias, labels = _parts(4, 9)
    loss = chunked_cross_entropy(states, weight.detach(), bias.detach(), labels)
    (gradient,) = torch.autograd.grad(loss, [states])
    (expected,) = torch.autograd.grad(_all_at_once(states, weight, bias, labels), [states])
    torch.testing.assert_close(gradient, expected)


def test_bfloat16_of_autocast_stays_close_to_float32() -> None:
    parts = states, weight, bias, labels = _parts(64, 500, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = chunked_cross_entropy(states, weight, bias, labels)
    expected = _all_at_once(states, weight, bias, labels)
    assert loss.dtype == torch.float32
    assert 0 < (loss - expected).abs() / expected < 1e-3
    for ours, theirs in zip(_gradients(loss, parts), _gradients(expected, parts), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() / theirs.norm() < 1e-2


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 12), size=st.integers(2, 30), at_once=st.integers(1, 400))
def test_logits_are_edited_in_place_whatever_the_chunks(rows: int, size: int, at_once: int) -> None:
    parts = states, weight, bias, labels = _parts(rows, size)
    masked = (torch.rand(rows, size) < 0.4).scatter(1, labels[:, None], False)
    added = torch.randn(rows, size, dtype=torch.float64)

    def edit_logits(logits: Tensor, chunk: slice) -> None:
        logits.add_(added[chunk]).masked_fill_(masked[chunk], -torch.inf)

    loss = chunked_cross_entropy(*parts, logits_at_once=at_once, edit_logits=edit_logits)
    logits = (F.linear(states, weight, bias) + added).masked_fill(masked, -torch.inf)
    expected = F.cross_entropy(logits, labels, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(_gradients(loss, parts), _gradients(expected, parts), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_only_one_backward_pass_is_possible() -> None:
    parts = _parts(7, 9)
    loss = chunked_cross_entropy(*parts, logits_at_once=20)
    expected = _gradients(_all_at_once(*parts), parts)
    torch.testing.assert_close(torch.autograd.grad(3 * loss, parts[:3], retain_graph=True), expected)
    with pytest.raises(TrainingError, match="compute the loss again"):
        torch.autograd.grad(loss, parts[:3])


def test_second_derivatives_are_refused() -> None:
    parts = _parts(7, 9)
    squared = chunked_cross_entropy(*parts, logits_at_once=20).square()
    first = torch.autograd.grad(squared, parts[0], create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_a_sampled_softmax_is_right_on_average() -> None:
    """The mean of the estimated sums of exponentials is the whole sum, and the labels are always included."""
    size, count = 200, 40
    scores = torch.randn(size, dtype=torch.float64)
    labels = torch.tensor([3, 3, 150])
    sums = []
    for _ in range(3000):
        rows, correction = sample_vocabulary(labels, size, count)
        assert {3, 150} <= set(rows.tolist())
        assert rows.equal(rows.unique())
        sums.append((scores[rows] + correction).exp().sum())
    assert torch.stack(sums).mean() == pytest.approx(scores.exp().sum().item(), rel=0.02)


def test_sampling_everything_is_the_whole_softmax() -> None:
    rows, correction = sample_vocabulary(torch.tensor([1]), 7, 7)
    assert rows.tolist() == list(range(7))
    assert not correction.any()
