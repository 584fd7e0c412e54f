"""Pack the sentences of a batch end to end, sorted by length, so that nothing is computed on padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import ModelError
from hf_xsent.tensors.recomputing import recompute_in_backward
from hf_xsent.tensors.variable_length import attend_within_boundaries, fits_one_kernel

_JOINED_TOKENS = 32  # measured: 16 is no faster than no joining, 64 gains half as much as 32


@dataclass(frozen=True)
class PackedSentences:
    """N sentences with T tokens in total, sorted by length; ``restore`` maps back to the caller's order."""

    input_ids: Tensor  # T
    positions: Tensor  # T: position of each token in its sentence, from 0
    token_order: Tensor  # T: index of each token in the caller's rows, concatenated without padding
    lengths: Tensor  # N, ascending
    runs: tuple[tuple[int, int], ...]  # (number of sentences, their length), one for each length
    restore: Tensor  # N: packed index of the caller's i-th sentence
    types: Tensor | None = None  # T: token type, 0 or 1; None: all 0

    @cached_property
    def first_tokens(self) -> Tensor:
        """N: index of each packed sentence's first token, its [CLS]."""
        return self.lengths.cumsum(0) - self.lengths

    def with_positions(self, positions: Tensor) -> PackedSentences:
        """Return the same tokens with other positions."""
        return replace(self, positions=positions)

    def with_ids(self, input_ids: Tensor) -> PackedSentences:
        """Return other tokens at the same positions."""
        return replace(self, input_ids=input_ids)

    def with_types(self, callers_types: Tensor) -> PackedSentences:
        """Return the same tokens with token types, given in the caller's order."""
        return replace(self, types=callers_types[self.token_order])

    def token_mask(self, sentences: Tensor) -> Tensor:
        """Expand a mask over the caller's N sentences to their T packed tokens."""
        return torch.repeat_interleave(sentences[self.restore.argsort()], self.lengths)

    def select(self, sentences: Tensor) -> PackedSentences:
        """Return the sentences that a mask over the caller's N sentences selects."""
        lengths, tokens = self.lengths[sentences[self.restore.argsort()]], self.token_mask(sentences)
        return replace(
            self,
            input_ids=self.input_ids[tokens],
            positions=self.positions[tokens],
            types=None if self.types is None else self.types[tokens],
            token_order=self.token_order[tokens].argsort().argsort(),
            lengths=lengths,
            runs=_runs(lengths),
            restore=self.restore[sentences].argsort().argsort(),
        )

    @cached_property
    def boundaries(self) -> Tensor:
        """N + 1 cumulative lengths, the format of variable-length attention kernels."""
        return F.pad(self.lengths.cumsum(0), (1, 0)).to(torch.int32)


def pack(input_ids: Sequence[Tensor], attention_masks: Sequence[Tensor]) -> PackedSentences:
    """Pack the rows of one or more padded batches, such as sources and targets, into one batch."""
    lengths = torch.cat([mask.sum(1) for mask in attention_masks])
    if not lengths.all():
        number = int((lengths == 0).nonzero()[0])
        raise ModelError(f"sentence {number} of the batch has no tokens: its attention_mask is all zeros")
    flat = torch.cat([ids[mask.bool()] for ids, mask in zip(input_ids, attention_masks, strict=True)])
    return _sorted_by_length(flat, lengths)


def _runs(lengths: Tensor) -> tuple[tuple[int, int], ...]:
    """Count the sentences of each length, from ascending lengths."""
    return tuple((len(list(run)), length) for length, run in groupby(lengths.tolist()))


def _sorted_by_length(flat: Tensor, callers_lengths: Tensor) -> PackedSentences:
    """Pack sentences that are concatenated in the caller's order."""
    lengths, order = callers_lengths.sort(stable=True)
    restore = torch.empty_like(order)
    restore[order] = torch.arange(len(order), device=order.device)
    sentence_of_token = torch.repeat_interleave(lengths)
    starts = lengths.cumsum(0) - lengths
    positions = torch.arange(len(flat), device=flat.device) - starts[sentence_of_token]
    callers_starts = (callers_lengths.cumsum(0) - callers_lengths)[order]
    token_order = callers_starts[sentence_of_token] + positions
    return PackedSentences(flat[token_order], positions, token_order, lengths, _runs(lengths), restore)


@dataclass(frozen=True)
class JoinedPairs:
    """Packed rows, each of which is the concatenation of two sentences."""

    packed: PackedSentences  # T tokens; positions count from the start of the row
    origin: Tensor  # T: index of each token in the original packed batch
    in_second: Tensor  # T: whether the token belongs to the row's second sentence


def join(packed: PackedSentences, first: Tensor, second: Tensor, skip: tuple[int, int] = (0, 0)) -> JoinedPairs:
    """Join ``first[i]`` without its first ``skip[0]`` tokens and ``second[i]`` without ``skip[1]`` into row i."""
    sentences = torch.stack((packed.restore[first], packed.restore[second]), 1).flatten()
    skipped = torch.tensor(skip, device=sentences.device).repeat(len(first))
    lengths = packed.lengths[sentences] - skipped
    if not (lengths > 0).all():
        raise ModelError("a sentence of the batch has no token after [CLS]: use a tokenizer that adds a [SEP]")
    parts = torch.repeat_interleave(lengths)
    starts = packed.first_tokens[sentences] + skipped - (lengths.cumsum(0) - lengths)
    origin = starts[parts] + torch.arange(len(parts), device=parts.device)
    joined = _sorted_by_length(packed.input_ids[origin], lengths.view(-1, 2).sum(1))
    return JoinedPairs(joined, origin[joined.token_order], (parts % 2 == 1)[joined.token_order])


def hash_sentences(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Return N 64-bit hashes of the sentences: sums of mixed (token, position) pairs, independent of padding."""
    places = attention_mask.cumsum(1)
    mixed = (input_ids + 0x9E3779B9) * (2 * places + 0x85EBCA6B) * -0x61C8864680B583EB
    mixed = (mixed ^ (mixed >> 29)) * -0x4B47D0C5A1B2F6A3
    return ((mixed ^ (mixed >> 32)) * attention_mask).sum(1)


def unpack(states: Tensor, packed: PackedSentences, attention_mask: Tensor) -> Tensor:
    """Unpack T × d hidden states into the padded batch of ``attention_mask``, with zeros as padding."""
    callers = torch.empty_like(states)
    callers[packed.token_order] = states
    padded = states.new_zeros(*attention_mask.shape, states.shape[-1])
    padded[attention_mask.bool()] = callers
    return padded


POOLINGS = {
    "cls": lambda sentences: sentences[:, 0],
    "mean": lambda sentences: sentences.mean(1, dtype=torch.promote_types(sentences.dtype, torch.float32)),
    "max": lambda sentences: sentences.amax(1),
    "sum": lambda sentences: sentences.sum(1, dtype=torch.promote_types(sentences.dtype, torch.float32)),
}


def pool(states: Tensor, packed: PackedSentences, pooling: str) -> Tensor:
    """Pool T × d hidden states into one vector per sentence, N × d in packed order."""
    sizes = [count * length for count, length in packed.runs]
    runs = zip(states.split(sizes), packed.runs, strict=True)
    return torch.cat([POOLINGS[pooling](run.unflatten(0, shape)) for run, shape in runs])


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Sequence[tuple[int, int]],
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
    plain = query.device.type == "cpu" and (dropout > 0 or (query.requires_grad and query.dtype == torch.bfloat16))
    arguments = (query, key, value, runs, scaling, dropout, window, plain)
    if plain:  # autograd would store the scores up to three times
        return recompute_in_backward(_attention_by_runs, *arguments, random=dropout > 0)
    return _attention_by_runs(*arguments)


def _attention_by_runs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Any,
    scaling: float,
    dropout: float,
    window: int | None,
    plain: bool,
) -> Tensor:
    first_tokens_only = len(query) != len(key)
    joins = query.device.type == "cpu" and query.dtype == torch.bfloat16
    joins = joins and not (plain or first_tokens_only or window is not None)
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
            places = torch.arange(length, device=key.device)
            mask = (places[: q.shape[2], None] - places).abs() < window
        attend = _plain_attention if plain else F.scaled_dot_product_attention
        output = attend(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scaling)
        outputs.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)


def _joined_blocks(runs: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return blocks (number, width, length): sentences of up to half ``_JOINED_TOKENS`` share one, others do not.

    torch's kernel computes two small products per sentence and head. In bfloat16 on CPUs, fewer and larger ones take a
    fifth less time, although a mask excludes most of each result.
    """
    blocks = []
    for count, length in runs:
        joined = max(1, _JOINED_TOKENS // length)
        blocks += [(count // joined, joined * length, length), (count % joined, length, length)]
    return [block for block in blocks if block[0]]


def _plain_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float, scale: float
) -> Tensor:
    """Compute ``scaled_dot_product_attention`` on CPUs in the cases where torch's kernel is slow.

    torch 2.13 has no fused kernel with dropout, and its bfloat16 kernel takes 2 to 10 times as long in the backward
    pass. Unlike torch's fallback, this scales only the queries and does not check for rows without keys.
    """
    scores = (query * scale) @ key.transpose(-1, -2)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    return fast_dropout(scores.softmax(-1), dropout_p) @ value


def fast_dropout(x: Tensor, probability: float) -> Tensor:
    """Apply dropout on a CPU from 16 random bits per element, in half the time of ``torch.dropout``.

    The probability is rounded to a multiple of 2^-16; scaling by the rounded one leaves the mean exact.
    """
    dropped = round(probability * 2**16)
    if dropped in (0, 2**16):
        return x if dropped == 0 else x * 0
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    stays = words.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
    return x * stays.to(x.dtype).mul_(2**16 / (2**16 - dropped))
