"""Packed batches: sentences laid end to end, shortest first, so that no operation is spent on padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import ModelError
from hf_xsent.tensors.recomputing import recomputed


@dataclass(frozen=True)
class PackedSentences:
    """N sentences of T tokens in all, sorted by length; ``restore`` gives back the caller's order."""

    input_ids: Tensor  # T
    positions: Tensor  # T: place of each token in its sentence, from 0
    token_order: Tensor  # T: place of each token among the caller's tokens, read row by row without padding
    lengths: Tensor  # N, ascending
    runs: tuple[tuple[int, int], ...]  # (number of sentences, their length): sentences of one length stand together
    restore: Tensor  # N: packed number of the caller's i-th sentence
    types: Tensor | None = None  # T: which of two joined texts a token is of, 0 or 1; None: all of the first

    @property
    def sizes(self) -> list[int]:
        """How many tokens each run holds."""
        return [count * length for count, length in self.runs]

    @cached_property
    def first_tokens(self) -> Tensor:
        """N: where each packed sentence starts, the place of its [CLS]."""
        return self.lengths.cumsum(0) - self.lengths

    def at_positions(self, positions: Tensor) -> PackedSentences:
        """The same tokens in other places of their sentences."""
        return replace(self, positions=positions)

    def with_ids(self, input_ids: Tensor) -> PackedSentences:
        """Other tokens in the same places."""
        return replace(self, input_ids=input_ids)

    def with_types(self, callers_types: Tensor) -> PackedSentences:
        """The same tokens with their types, given in the caller's order."""
        return replace(self, types=callers_types[self.token_order])

    def whole(self, sentences: Tensor) -> Tensor:
        """T: whether a token is of one of these sentences, a flag for each of the caller's N."""
        return torch.repeat_interleave(sentences[self.restore.argsort()], self.lengths)

    def only(self, sentences: Tensor) -> PackedSentences:
        """The sentences that a flag for each of the caller's N chooses: the tokens of ``whole``."""
        kept = sentences[self.restore.argsort()]
        lengths, tokens = self.lengths[kept], self.whole(sentences)
        return replace(
            self,
            input_ids=self.input_ids[tokens],
            positions=self.positions[tokens],
            types=None if self.types is None else self.types[tokens],
            token_order=self.token_order[tokens].argsort().argsort(),
            lengths=lengths,
            runs=runs_of(lengths),
            restore=self.restore[sentences].argsort().argsort(),
        )

    @cached_property
    def boundaries(self) -> Tensor:
        """N + 1 cumulative lengths, as variable-length attention kernels take them."""
        return F.pad(self.lengths.cumsum(0), (1, 0)).to(torch.int32)


def pack(input_ids: Sequence[Tensor], attention_masks: Sequence[Tensor]) -> PackedSentences:
    """Pack one or several padded batches (both sides of a pair, say) into one, in this order of rows."""
    lengths = torch.cat([mask.sum(1) for mask in attention_masks])
    if not lengths.all():
        number = int((lengths == 0).nonzero()[0])
        raise ModelError(f"sentence {number} of the batch has no tokens: its attention_mask is all zeros")
    flat = torch.cat([ids[mask.bool()] for ids, mask in zip(input_ids, attention_masks, strict=True)])
    return _sorted_by_length(flat, lengths)


def runs_of(lengths: Tensor) -> tuple[tuple[int, int], ...]:
    """How many sentences of which length stand together, from ascending lengths."""
    return tuple((len(list(run)), length) for length, run in groupby(lengths.tolist()))


def _sorted_by_length(flat: Tensor, callers_lengths: Tensor) -> PackedSentences:
    """Pack the tokens of sentences that lie end to end in the caller's order."""
    lengths, order = callers_lengths.sort(stable=True)
    restore = torch.empty_like(order)
    restore[order] = torch.arange(len(order), device=order.device)
    sentence_of_token = torch.repeat_interleave(lengths)
    starts = lengths.cumsum(0) - lengths
    positions = torch.arange(len(flat), device=flat.device) - starts[sentence_of_token]
    callers_starts = (callers_lengths.cumsum(0) - callers_lengths)[order]
    token_order = callers_starts[sentence_of_token] + positions
    return PackedSentences(
        input_ids=flat[token_order],
        positions=positions,
        token_order=token_order,
        lengths=lengths,
        runs=runs_of(lengths),
        restore=restore,
    )


@dataclass(frozen=True)
class JoinedPairs:
    """Two packed sentences laid end to end in each row, packed anew."""

    packed: PackedSentences  # T tokens; positions count from the start of the row
    origin: Tensor  # T: number of each token among the packed tokens that were joined
    in_second: Tensor  # T: whether the token is of the row's second sentence


def join(packed: PackedSentences, first: Tensor, second: Tensor, skip: tuple[int, int] = (0, 0)) -> JoinedPairs:
    """Row i holds the caller's sentence ``first[i]`` without its ``skip[0]`` first tokens, then ``second[i]``."""
    sentences = torch.stack((packed.restore[first], packed.restore[second]), 1).flatten()
    skipped = torch.tensor(skip, device=sentences.device).repeat(len(first))
    lengths = packed.lengths[sentences] - skipped
    if not (lengths > 0).all():
        raise ModelError("a sentence of the batch is a lone [CLS] or less: its tokenizer must add a [SEP], too")
    parts = torch.repeat_interleave(lengths)
    starts = packed.first_tokens[sentences] + skipped - (lengths.cumsum(0) - lengths)
    origin = starts[parts] + torch.arange(len(parts), device=parts.device)
    joined = _sorted_by_length(packed.input_ids[origin], lengths.view(-1, 2).sum(1))
    return JoinedPairs(joined, origin[joined.token_order], (parts % 2 == 1)[joined.token_order])


def fingerprints(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """N 64-bit numbers, equal where the sentences are: sums of mixed (token, place), so padding does not count."""
    places = attention_mask.cumsum(1)
    mixed = (input_ids + 0x9E3779B9) * (2 * places + 0x85EBCA6B) * -0x61C8864680B583EB
    mixed = (mixed ^ (mixed >> 29)) * -0x4B47D0C5A1B2F6A3
    return ((mixed ^ (mixed >> 32)) * attention_mask).sum(1)


def unpack(states: Tensor, packed: PackedSentences, attention_mask: Tensor) -> Tensor:
    """T × d packed states as the padded batch of ``attention_mask``, with zeros at the padding."""
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
    """One vector a sentence, N × d in packed order, from T × d token states."""
    runs = zip(states.split(packed.sizes), packed.runs, strict=True)
    return torch.cat([POOLINGS[pooling](run.unflatten(0, shape)) for run, shape in runs])


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Sequence[tuple[int, int]],
    scaling: float,
    dropout: float = 0.0,
    window: int | None = None,
) -> Tensor:
    """Attention of each sentence to itself; a token sees those closer than ``window``.

    ``key`` and ``value`` are T × heads × size; ``query`` too, or N × heads × size where only first tokens ask.
    """
    arguments = (query, key, value, runs, scaling, dropout, window)
    if dropout and query.device.type == "cpu":  # without a fused kernel, every score would be kept, thrice
        return recomputed(_attention_by_runs, *arguments, random=True)
    return _attention_by_runs(*arguments)


def _attention_by_runs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Sequence[tuple[int, int]],
    scaling: float,
    dropout: float,
    window: int | None,
) -> Tensor:
    first_tokens_only = len(query) != len(key)
    sizes = [count * length for count, length in runs]
    queries = query.split([count for count, _ in runs] if first_tokens_only else sizes)
    outputs = []
    for (count, length), q, k, v in zip(runs, queries, key.split(sizes), value.split(sizes), strict=True):
        q, k, v = (x.unflatten(0, (count, -1)).transpose(1, 2) for x in (q, k, v))
        mask = None
        if window is not None and length > window:
            places = torch.arange(length, device=key.device)
            mask = (places[: q.shape[2], None] - places).abs() < window
        attend = _plain_attention if dropout and q.device.type == "cpu" else F.scaled_dot_product_attention
        output = attend(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scaling)
        outputs.append(output.transpose(1, 2).flatten(0, 1))
    return torch.cat(outputs)


def _plain_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float, scale: float
) -> Tensor:
    """What ``scaled_dot_product_attention`` computes, for CPUs, where torch has no fused kernel with dropout.

    Its fallback there scales both sides and looks for rows without any key; this does neither.
    """
    scores = (query * scale) @ key.transpose(-1, -2)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    return F.dropout(scores.softmax(-1), dropout_p) @ value
