from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hf_xsent.tensors.attention import packed_attention


def _attention_by_loop(q: Tensor, k: Tensor, v: Tensor, lengths: list[int], window: int | None) -> Tensor:
    outputs, start = [], 0
    for length in lengths:
        for place in range(length):
            seen = [j for j in range(length) if window is None or abs(place - j) < window]
            rows = torch.tensor(seen) + start
            scores = torch.einsum("hd,jhd->hj", q[start + place], k[rows]) * 0.7
            outputs.append(torch.einsum("hj,jhd->hd", scores.softmax(-1), v[rows]))
        start += length
    return torch.stack(outputs)


@pytest.mark.parametrize("dropout", [0.0, 1e-12], ids=["fused", "plain"])
@pytest.mark.parametrize("window", [None, 2, 4])
def test_attention_stays_inside_each_sentence_and_window(window: int | None, dropout: float) -> None:
    lengths = [1, 1, 3, 6, 6]
    runs = [(2, 1), (1, 3), (2, 6)]
    q, k, v = torch.randn(3, sum(lengths), 2, 4, dtype=torch.float64)
    expected = _attention_by_loop(q, k, v, lengths, window)
    torch.testing.assert_close(packed_attention(q, k, v, runs, 0.7, dropout, window), expected)
    firsts = torch.tensor([0, 1, 2, 5, 11])
    torch.testing.assert_close(packed_attention(q[firsts], k, v, runs, 0.7, dropout, window), expected[firsts])


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("dropout", [1e-12, 0.3], ids=["without dropout", "with dropout"])
@pytest.mark.parametrize("first_tokens_only", [False, True])
def test_gradients_of_attention_in_training_are_those_of_its_output(
    first_tokens_only: bool, dropout: float, window: int | None
) -> None:
    """By finite differences; lengths on both sides of the change to torch's softmax."""
    runs = [(2, 1), (2, 3), (1, 17)]
    q, k, v = (x.requires_grad_() for x in torch.randn(3, 25, 2, 2, dtype=torch.float64).unbind())

    def attend(*inputs: Tensor) -> Tensor:
        torch.manual_seed(0)
        return packed_attention(*inputs, runs, 0.7, dropout, window)

    query = q[[0, 1, 2, 5, 8]].detach().requires_grad_() if first_tokens_only else q
    assert torch.autograd.gradcheck(attend, (query, k, v), fast_mode=True)


def test_attention_dropout_drops_weights_and_keeps_the_mean() -> None:
    q, k, v = torch.randn(3, 3, 1, 4)
    whole = packed_attention(q, k, v, [(1, 3)], 0.5)
    copies = 8000
    q, k, v = (x.repeat(copies, 1, 1) for x in (q, k, v))
    draws = packed_attention(q, k, v, [(copies, 3)], 0.5, dropout=0.3).unflatten(0, (copies, 3))
    assert not torch.equal(draws[0], draws[1])
    torch.testing.assert_close(draws.mean(0), whole, atol=0.05, rtol=0)


def test_attention_in_bfloat16_trains_without_the_slow_kernel_and_within_rounding() -> None:
    q, k, v = (x.requires_grad_() for x in torch.randn(3, 12, 2, 4).unbind())
    packed_attention(q, k, v, [(2, 6)], 0.5).square().sum().backward()
    halves = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
    before = torch.get_rng_state()
    context = packed_attention(*halves, [(2, 6)], 0.5)
    assert torch.equal(torch.get_rng_state(), before)  # draws nothing, as a pass without gradients
    nodes, pending = set(), [context.grad_fn]
    while pending:
        node = pending.pop()
        nodes.add(node.name())
        pending += [before for before, _ in node.next_functions if before is not None]
    assert not any("Flash" in name for name in nodes)
    context.float().square().sum().backward()
    for exact, half in zip((q, k, v), halves, strict=True):
        assert exact.grad is not None and half.grad is not None
        torch.testing.assert_close(half.grad.float(), exact.grad, atol=0.05, rtol=0.05)


def test_attention_with_dropout_keeps_no_scores_and_draws_the_same_again() -> None:
    """Its gradient is that of the weights that the forward pass drew."""
    q, k, v = torch.randn(3, 12, 2, 4, dtype=torch.float64).unbind()
    v.requires_grad_()
    kept: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: (kept.append(one.shape), one)[1], lambda one: one):
        context = packed_attention(q, k, v, [(2, 6)], 0.5, dropout=0.4)
    assert not any(shape[-2:] == (6, 6) for shape in kept)
    given = torch.randn_like(context)
    (context * given).sum().backward()
    assert v.grad is not None  # the context is linear in the values, so <gradient, v> is <given, context>
    torch.testing.assert_close((v.grad * v).sum(), (given * context).sum())


@pytest.mark.parametrize("first_tokens_only", [False, True])
def test_short_sentences_joined_in_one_product_do_not_attend_to_each_other(first_tokens_only: bool) -> None:
    torch.manual_seed(0)
    runs = [(1, 3), (7, 5), (11, 6), (4, 16), (3, 17), (1, 40)]
    tokens = sum(count * length for count, length in runs)
    query, key, value = (torch.randn(tokens, 2, 8).bfloat16() for _ in range(3))
    starts, start = [], 0
    for count, length in runs:
        starts += range(start, start + count * length, length)
        start += count * length
    ends = [*starts[1:], tokens]
    if first_tokens_only:
        query = query[starts]
    with torch.inference_mode():
        found = packed_attention(query, key, value, runs, 0.3)
        for number, (first, end) in enumerate(zip(starts, ends, strict=True)):
            rows = slice(number, number + 1) if first_tokens_only else slice(first, end)
            q, k, v = (one.double().transpose(0, 1) for one in (query[rows], key[first:end], value[first:end]))
            exact = ((q @ k.transpose(1, 2) * 0.3).softmax(-1) @ v).transpose(0, 1)
            torch.testing.assert_close(found[rows].double(), exact, atol=0.03, rtol=0.01)
