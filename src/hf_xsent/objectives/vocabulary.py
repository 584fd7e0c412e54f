"""Cross entropy over a vocabulary without ever holding all scores: linear layer, softmax and gradients in chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SCORES_AT_A_TIME = 1 << 25  # 128 MiB of float32


def vocabulary_cross_entropy(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    scores_at_a_time: int = SCORES_AT_A_TIME,
    dtype: torch.dtype | None = None,
    change: Callable[[Tensor, slice], None] | None = None,
    once: bool = True,
) -> Tensor:
    """Sum over the rows of -log softmax(states @ weight.T + bias) at their label.

    At most ``scores_at_a_time`` of the M × V scores exist at once, in float32 or wider; the gradients are made in the
    same pass, so that no score is computed twice. ``dtype`` is that of the matrix products: bfloat16 is faster where
    the hardware has it, and moves the loss and the gradients by about 1e-3 of their size. The default is autocast's
    where autocast is on, else that of ``states``. ``change`` may add constants to the scores of some rows, in place.
    ``once`` promises a single backward pass, which then needs no copy of a whole table's gradient.
    """
    device = states.device.type
    if dtype is None:
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):
        loss: Tensor = _VocabularyCrossEntropy.apply(
            states, weight, bias, labels, scores_at_a_time, dtype, change, once
        )
    return loss


class _VocabularyCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        scores_at_a_time: int,
        dtype: Any,
        change: Callable[[Tensor, slice], None] | None,
        once: bool,
    ) -> Tensor:
        wide = torch.promote_types(states.dtype, torch.float32)
        rows = max(1, scores_at_a_time // len(weight))
        loss = torch.zeros((), dtype=wide, device=states.device)
        want_states, want_weight, want_bias = ctx.needs_input_grad[:3]
        state_gradients, weight_gradient = [], None
        bias_gradient = torch.zeros_like(bias, dtype=wide) if want_bias else None
        inputs, table = states.to(dtype), weight.to(dtype)
        for start in range(0, max(1, len(inputs)), rows):
            some, places = inputs[start : start + rows], labels[start : start + rows, None]
            scores = torch.addmm(bias, some, table.T) if dtype == wide else (some @ table.T).to(wide).add_(bias)
            if change is not None:
                change(scores, slice(start, start + rows))
            above = scores.amax(1) - scores.gather(1, places).squeeze(1)  # the highest score, beside that of the label
            gradient = torch.softmax(scores, 1, out=scores) if not scores.is_cuda else scores.softmax(1)
            loss += (above - gradient.amax(1).log()).sum()  # the highest share is 1 / sum(exp(score - highest))
            if not any(ctx.needs_input_grad[:3]):
                continue
            gradient.scatter_add_(1, places, torch.full_like(places, -1, dtype=wide))  # softmax, less 1 at the label
            if bias_gradient is not None:
                bias_gradient += gradient.sum(0)
            narrow = gradient.to(dtype)
            if want_states:
                state_gradients.append(narrow @ table)
            if want_weight:
                weight_gradient = _add_product(weight_gradient, narrow.T, some, wide)
        ctx.once = once
        ctx.gradients = [
            torch.cat(state_gradients).to(states.dtype) if want_states else None,
            None if weight_gradient is None else weight_gradient.to(weight.dtype),
            None if bias_gradient is None else bias_gradient.to(bias.dtype),
        ]
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        if not ctx.once:
            gradients = [None if one is None else one * outer[0] for one in ctx.gradients]
        else:
            gradients = [None if one is None else one.mul_(outer[0]) for one in ctx.gradients]
            del ctx.gradients  # scaled in place: a second backward through the same loss would be wrong
        return (*gradients, None, None, None, None, None)


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, wide: torch.dtype) -> Tensor:
    """Add left @ right in the wide type, without another table where the types are the same."""
    if total is None:
        return (left @ right).to(wide)
    if left.dtype == wide:
        return total.addmm_(left, right)
    return total.add_(left @ right)


def sample_vocabulary(labels: Tensor, size: int, count: int) -> tuple[Tensor, Tensor]:
    """The rows that a sampled softmax scores, ascending, and what to add to each row's score.

    All labels of the batch are in, for themselves; of the other rows about ``count`` of ``size`` are drawn evenly and
    stand for all of them, so that the sum of exponentials is right on average.
    """
    wanted = torch.zeros(size, dtype=torch.bool, device=labels.device)
    drawn = torch.rand(size, device=labels.device) < count / size
    wanted[labels] = True
    rows = (wanted | drawn).nonzero().squeeze(1)
    share = torch.tensor(min(1.0, count / size), device=labels.device)
    return rows, torch.where(wanted[rows], 0.0, -share.log())
