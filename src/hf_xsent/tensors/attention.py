"""Compute attention within each sentence of a packed batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from hf_xsent.tensors.dropout import dropout_factors
from hf_xsent.tensors.variable_length import attend_within_boundaries, fits_one_kernel

Runs = Sequence[tuple[int, int]]  # (number of sentences, their length), one for each length

_JOINED_TOKENS = 32  # measured: 16 is no faster than no joining, 64 gains half as much as 32
_FEW = 16  # torch's softmax takes 3 to 6 times as long as the plain one for rows of fewer elements


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Runs,
    scaling: float,
    dropout: float = 0.0,
    window: int | None = None,
    boundaries: Tensor | None = None,
) -> Tensor:
    """Compute attention within each sentence; with ``window``, only between tokens closer than this.

    ``key`` and ``value`` are T × heads × size; ``query`` too, or N × heads × size if only first tokens are queries.
    With ``boundaries``, a GPU computes all lengths in one kernel if the kernel supports the other arguments.
    """
    if boundaries is not None and fits_one_kernel(query, key, dropout, window):
        return attend_within_boundaries(query, key, value, boundaries, runs[-1][1], scaling, window)
    if query.device.type == "cpu" and (dropout > 0 or (query.requires_grad and query.dtype == torch.bfloat16)):
        result: Tensor = _TrainingOnCpu.apply(query, key, value, runs, scaling, dropout, window)
        return result
    return _attention_by_runs(query, key, value, runs, scaling, dropout, window)


def _attention_by_runs(
    query: Tensor, key: Tensor, value: Tensor, runs: Runs, scaling: float, dropout: float, window: int | None
) -> Tensor:
    """Call torch's attention once for each length."""
    first_tokens_only = len(query) != len(key)
    joins = query.device.type == "cpu" and query.dtype == torch.bfloat16 and not first_tokens_only and window is None
    blocks = _joined_blocks(runs) if joins else [(*run, run[1]) for run in runs]
    sizes = [count * width for count, width, _ in blocks]
    queries = query.split([count for count, _, _ in blocks] if first_tokens_only else sizes)
    outputs = []
    for (count, width, length), q, k, v in zip(blocks, queries, key.split(sizes), value.split(sizes), strict=True):
        q, k, v = (x.unflatten(0, (count, -1)).transpose(1, 2) for x in (q, k, v))
        mask = None
        if width > length:
            sentences = torch.arange(width, device=key.device) // length
            mask = sentences[:, None] == sentences
        elif window is not None and length > window:
            mask = _within(window, q.shape[2], length, key.device)
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scaling)
        outputs.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)


def _joined_blocks(runs: Runs) -> list[tuple[int, int, int]]:
    """Return blocks (number, width, length): sentences of up to half ``_JOINED_TOKENS`` share one, others do not.

    torch's kernel computes two small products per sentence and head. In bfloat16 on CPUs, fewer and larger ones take a
    fifth less time, although a mask excludes most of each result.
    """
    blocks = []
    for count, length in runs:
        joined = max(1, _JOINED_TOKENS // length)
        blocks += [(count // joined, joined * length, length), (count % joined, length, length)]
    return [block for block in blocks if block[0]]


def _within(window: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """Return a mask of keys closer than ``window`` to each query, which starts at the first token."""
    places = torch.arange(keys, device=device)
    return (places[:queries, None] - places).abs() < window


class _TrainingOnCpu(torch.autograd.Function):
    """Attention with dropout or in bfloat16 on a CPU: stores no scores and computes them again in the backward pass.

    torch 2.13 has no fused kernel with dropout there, and its bfloat16 kernel takes 2 to 10 times as long in the
    backward pass. Scores are normalized in float32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        runs: Runs,
        scaling: float,
        dropout: float,
        window: int | None,
    ) -> Tensor:
        """Attend run by run."""
        seed = int(torch.randint(2**62, ())) if dropout else 0  # as a pass without gradients, which draws none
        draws = Generator().manual_seed(seed)
        output = query.new_empty(query.shape)
        with torch.autocast("cpu", enabled=False):
            for q, k, v, out in _by_run(runs, query, key, value, output):
                probabilities = _softmax(_scores(q, k, scaling, window))
                if dropout:
                    probabilities *= dropout_factors(probabilities.shape, probabilities.dtype, dropout, draws)
                _write(probabilities.to(v.dtype) @ _matrices(v), out)
        ctx.settings = runs, scaling, dropout, window, seed
        ctx.save_for_backward(query, key, value, output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, keys and values."""
        query, key, value, output = ctx.saved_tensors
        runs, scaling, dropout, window, seed = ctx.settings
        draws = Generator().manual_seed(seed)
        # The softmax subtracts the sum of probabilities times their gradients: the output times its own gradient.
        sums = (_at_least_float32(gradient) * output).sum(-1, keepdim=True)
        gradients = [x.new_empty(x.shape) for x in (query, key, value)]
        for q, k, v, g, total, to_q, to_k, to_v in _by_run(runs, query, key, value, gradient, sums, *gradients):
            probabilities = dropped = _softmax(_scores(q, k, scaling, window))
            q, k, v, g = (_matrices(x) for x in (q, k, v, g))
            change = _at_least_float32(g @ v.mT)
            if dropout:
                factors = dropout_factors(probabilities.shape, probabilities.dtype, dropout, draws)
                dropped = probabilities * factors
                change *= factors
            _write(dropped.to(g.dtype).mT @ g, to_v)
            change = change.sub_(_matrices(total)).mul_(probabilities).mul_(scaling).to(k.dtype)
            _write(change @ k, to_q)
            _write(change.mT @ q, to_k)
        return *gradients, None, None, None, None


def _by_run(runs: Runs, *tensors: Tensor) -> Iterator[list[Tensor]]:
    """Yield the part of each tensor in each run: count × length (1 if of first tokens) × heads × size."""
    tokens = sum(count * length for count, length in runs)
    sizes = [[count * length if len(x) == tokens else count for count, length in runs] for x in tensors]
    for (count, _), *parts in zip(runs, *(x.split(size) for x, size in zip(tensors, sizes, strict=True)), strict=True):
        yield [part.unflatten(0, (count, -1)) for part in parts]


def _matrices(part: Tensor) -> Tensor:
    """Return one matrix for each sentence and head of a run."""
    return part.transpose(1, 2).flatten(0, 1)


def _write(matrices: Tensor, part: Tensor) -> None:
    """Write one matrix for each sentence and head into a run."""
    part.copy_(matrices.unflatten(0, (len(part), -1)).transpose(1, 2))


def _scores(query: Tensor, key: Tensor, scaling: float, window: int | None) -> Tensor:
    """Return the scores of a run, at least in float32."""
    scores = _at_least_float32((_matrices(query) * scaling) @ _matrices(key).mT)
    if window is not None and key.shape[1] > window:
        scores.masked_fill_(~_within(window, query.shape[1], key.shape[1], scores.device), -torch.inf)
    return scores


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _softmax(scores: Tensor) -> Tensor:
    if scores.shape[-1] >= _FEW:
        return scores.softmax(-1)
    powers = (scores - scores.amax(-1, keepdim=True)).exp_()
    return powers.div_(powers.sum(-1, keepdim=True))
