"""What objectives read of a batch of sentence pairs that was encoded once, and what they are.

There are two kinds. Sentence objectives compare the vectors of the whole batch, of all processes; token objectives add
up over its pairs, so that a batch may be cut into chunks. Both return a loss whose gradients, averaged over processes,
are those of one process with the whole batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from hf_xsent.packing import PackedSentences


class Encode(Protocol):
    """Another pass through the encoder, for objectives that change its input."""

    def __call__(self, packed: PackedSentences, tokens: Tensor, language_ids: Tensor | None) -> Tensor:
        """M × d last states of ``tokens``, M ascending numbers of packed tokens; ``language_ids`` one a token."""


@dataclass(frozen=True)
class SentencePairs:
    """N pairs of sentence vectors; row i of ``target`` is the translation of row i of ``source``."""

    source: Tensor  # N × d
    target: Tensor  # N × d
    source_identity: Tensor  # N: equal numbers where the sentences are equal
    target_identity: Tensor  # N
    teacher: Tensor | None = None  # N × d: what another model makes of the targets
    keys: Tensor | None = None  # N × d: what a momentum encoder makes of the targets, without gradient

    @classmethod
    def joined(cls, parts: Sequence[SentencePairs]) -> SentencePairs:
        """The pairs of all parts as one batch."""
        together = {
            field.name: [getattr(part, field.name) for part in parts if getattr(part, field.name) is not None]
            for field in fields(cls)
        }
        return cls(**{name: torch.cat(some) for name, some in together.items() if some})

    @property
    def both(self) -> Tensor:
        """2N × d: all sources, then all targets."""
        return torch.cat((self.source, self.target))


@dataclass(frozen=True)
class WordLinks:
    """Which word pieces are one word, and which words of a pair translate each other."""

    words: Tensor  # T: number of the packed token's word in its sentence; -1: of none
    links: Tensor  # N × L × 2: numbers of a source and a target word, best link of a word first; rows end in -1


@dataclass(frozen=True)
class PairTokens:
    """The tokens of N pairs: all sources, then all targets."""

    packed: PackedSentences  # 2N sentences
    target_identity: Tensor  # N
    language_ids: Tensor | None  # 2N
    padded_length: int  # of the batch as it came
    word_links: WordLinks | None = None

    def languages_of_tokens(self) -> Tensor | None:
        """T, where sentences have languages."""
        if self.language_ids is None:
            return None
        return torch.repeat_interleave(self.language_ids[self.packed.restore.argsort()], self.packed.lengths)


@dataclass(frozen=True)
class TokenStates:
    """Last hidden states of those tokens that some objective reads, and what else an encoder has to give."""

    packed: PackedSentences
    states: Tensor  # M × d
    tokens: Tensor | None  # M: the packed numbers of these tokens, ascending; None: all of them
    encode: Encode
    word_embeddings: Tensor  # V × d: the encoder's table, for heads that share it

    def at(self, tokens: Tensor) -> Tensor:
        """The states of these tokens, given by their packed numbers."""
        return self.states[tokens if self.tokens is None else torch.searchsorted(self.tokens, tokens)]


@dataclass(frozen=True)
class Draw:
    """What a token objective chose at random before anything was encoded."""

    rows: Any
    count: Tensor  # over how many tokens the loss is the mean


class SentenceObjective(nn.Module, ABC):
    """A loss over the sentence vectors of the whole batch."""

    vectors = frozenset(("source", "target"))  # the sides of which it reads vectors; others may hold anything

    @abstractmethod
    def forward(self, pairs: SentencePairs) -> Tensor:
        """The loss."""


class TokenObjective(nn.Module, ABC):
    """The mean of the parts' losses, each a mean over the tokens that were drawn for it."""

    @property
    def reads(self) -> frozenset[str]:
        """The sides, source and target, whose token states are needed."""
        return frozenset()

    @abstractmethod
    def draw(self, pairs: PairTokens) -> Sequence[Draw]:
        """Make all random choices, so that a second pass through the same pairs may repeat them; one draw a part."""

    @abstractmethod
    def forward(self, pairs: PairTokens, states: TokenStates, draw: Draw) -> Tensor:
        """The sum of the losses of the tokens of one part."""
