"""Compute softmax cross entropy over many classes in chunks, without all logits in memory.

The plain computation: ``F.cross_entropy(states @ weight.T + bias, labels, reduction="sum")``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hf_xsent.errors import TrainingError

LOGITS_AT_ONCE = 1 << 25  # 128 MiB of float32


def chunked_cross_entropy(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    logits_at_once: int = LOGITS_AT_ONCE,
    edit_logits: Callable[[Tensor, slice], None] | None = None,
) -> Tensor:
    """Sum over the rows of -log softmax(states @ weight.T + bias) at their label.

    A chunk has at most ``logits_at_once`` of the M × V logits, at least one row, in float32 or wider. The forward pass
    computes the gradients, so that each logit is computed once. Products use autocast's dtype if autocast is on.
    ``edit_logits`` may add constants (masks, margins) to the logits of some rows in place. Only one backward pass is
    possible, since it scales the gradients in place to save memory.
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    with torch.autocast(device, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(states, weight, bias, labels, (logits_at_once, dtype, edit_logits))
    return loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, options: Any) -> Tensor:
        logits_at_once, dtype, edit_logits = options
        wide = torch.promote_types(states.dtype, torch.float32)
        rows = max(1, logits_at_once // len(weight))
        loss = torch.zeros((), dtype=wide, device=states.device)
        want_states, want_weight, want_bias = ctx.needs_input_grad[:3]
        state_gradient = torch.empty_like(states) if want_states else None
        weight_gradient = None
        bias_gradient = torch.zeros_like(bias, dtype=wide) if want_bias else None
        inputs, table = states.to(dtype), weight.to(dtype)
        for start in range(0, max(1, len(inputs)), rows):
            states, places = inputs[start : start + rows], labels[start : start + rows, None]
            logits = torch.addmm(bias, states, table.T) if dtype == wide else (states @ table.T).to(wide).add_(bias)
            if edit_logits is not None:
                edit_logits(logits, slice(start, start + rows))
            above = logits.amax(1) - logits.gather(1, places).squeeze(1)  # from the label's logit to the highest
            gradient = torch.softmax(logits, 1, out=logits) if not logits.is_cuda else logits.softmax(1)
            loss += (above - gradient.amax(1).log()).sum()  # the highest probability is 1 / Σ exp(logit - highest)
            if not any(ctx.needs_input_grad[:3]):
                continue
            gradient.scatter_add_(1, places, torch.full_like(places, -1, dtype=wide))  # softmax, less 1 at the label
            if bias_gradient is not None:
                bias_gradient += gradient.sum(0)
            narrow = gradient.to(dtype)
            if state_gradient is not None:
                state_gradient[start : start + rows] = narrow @ table
            if want_weight:
                weight_gradient = _add_product(weight_gradient, narrow.T, states, wide)
        ctx.gradients = [
            state_gradient,
            None if weight_gradient is None else weight_gradient.to(weight.dtype),
            None if bias_gradient is None else bias_gradient.to(bias.dtype),
        ]
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise TrainingError("this loss allows only one backward pass: compute the loss again for another one")
        gradients = [None if gradient is None else gradient.mul_(outer) for gradient in ctx.gradients]
        ctx.gradients = None
        return (*gradients, None, None)


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, wide: torch.dtype) -> Tensor:
    """Add left @ right in the wide dtype, in place if the dtypes are equal."""
    if total is None:
        return (left @ right).to(wide)
    if left.dtype == wide:
        return total.addmm_(left, right)
    return total.add_(left @ right)


def sample_vocabulary(labels: Tensor, size: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the ascending rows of a sampled softmax, and the correction to add to each row's logit.

    Rows are all labels of the batch, and each other of the ``size`` rows with probability ``count / size``. With the
    correction, the expected sum of exponentials is that of the full softmax.
    """
    wanted = torch.zeros(size, dtype=torch.bool, device=labels.device)
    sampled = torch.rand(size, device=labels.device) < count / size
    wanted[labels] = True
    wanted[0] |= ~(wanted | sampled).any()  # a softmax over no rows has no gradient
    rows = (wanted | sampled).nonzero().squeeze(1)
    share = torch.tensor(min(1.0, count / size), device=labels.device)
    return rows, torch.where(wanted[rows], 0.0, -share.log())
