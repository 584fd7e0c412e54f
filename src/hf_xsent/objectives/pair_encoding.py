"""What every objective reads: a batch of sentence pairs, encoded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hf_xsent.packing import PackedSentences


class Encode(Protocol):
    """Another pass through the encoder, for objectives that change its input."""

    def __call__(self, packed: PackedSentences, tokens: Tensor, language_ids: Tensor | None) -> Tensor:
        """M × d last states of ``tokens``, M ascending numbers of packed tokens; ``language_ids`` one a token."""


@dataclass(frozen=True)
class TokenStates:
    """Last hidden states of the tokens that some objective reads."""

    packed: PackedSentences  # all sources, then all targets
    states: Tensor  # M × d
    tokens: Tensor | None  # M: the packed numbers of these tokens, ascending; None: all of them

    def at(self, tokens: Tensor) -> Tensor:
        """The states of these tokens, given by their packed numbers."""
        return self.states[tokens if self.tokens is None else torch.searchsorted(self.tokens, tokens)]


@dataclass(frozen=True)
class PairEncoding:
    """N pairs; row i of ``target`` is the translation of row i of ``source``."""

    source: Tensor  # N × d sentence vectors
    target: Tensor  # N × d
    source_identity: Tensor  # N: equal numbers where the sentences are equal
    target_identity: Tensor  # N
    tokens: TokenStates
    encode: Encode
    word_embeddings: Tensor  # V × d: the encoder's table, for heads that share it
    language_ids: Tensor | None  # 2N: of the sources, then of the targets
    padded_length: int  # of the batch as it came
