"""Pack the sentences of a batch end to end, sorted by length, so that nothing is computed on padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import ModelError


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
