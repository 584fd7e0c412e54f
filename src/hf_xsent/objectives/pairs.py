"""Define the inputs of objectives: embeddings, tokens and hidden states of a batch of sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from hf_xsent.tensors.packing import PackedSentences
from hf_xsent.tensors.word_grid import WordLinks


class Encode(Protocol):
    """Another pass through the encoder, for objectives that change its input."""

    def __call__(self, packed: PackedSentences, tokens: Tensor | None, language_ids: Tensor | None) -> Tensor:
        """Return the last hidden states (M × d) of the packed tokens with the indices ``tokens`` (None: of all)."""


@dataclass(frozen=True)
class SentencePairs:
    """N source and N target embeddings; with paired data, row i of ``target`` translates row i of ``source``."""

    source: Tensor  # N × d
    target: Tensor  # N × d
    source_identity: Tensor  # N: hashes of the sentences
    target_identity: Tensor  # N
    teacher: Tensor | None = None  # N × d: another model's embeddings of the targets
    momentum_target: Tensor | None = None  # N × d: the momentum encoder's embeddings of the targets, without gradient
    source_negatives: Tensor | None = None  # S × d: mined negatives of all N pairs, in the sources' languages
    target_negatives: Tensor | None = None  # T × d
    source_negative_identity: Tensor | None = None  # S
    target_negative_identity: Tensor | None = None  # T

    @classmethod
    def joined(cls, parts: Sequence[SentencePairs]) -> SentencePairs:
        """Concatenate the pairs of all parts into one batch."""
        together = {
            field.name: [getattr(part, field.name) for part in parts if getattr(part, field.name) is not None]
            for field in fields(cls)
        }
        return cls(**{name: torch.cat(some) for name, some in together.items() if some})

    def truncated(self, width: int) -> SentencePairs:
        """Return the pairs with embeddings truncated to this width."""
        embeddings = {name: one[:, :width] for name, one in self.trained().items()}
        return replace(self, **embeddings)

    def trained(self) -> dict[str, Tensor]:
        """Return the embeddings that receive gradients, by field name."""
        names = ("source", "target", "source_negatives", "target_negatives")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def both(self) -> Tensor:
        """2N × d: all sources, then all targets."""
        return torch.cat((self.source, self.target))


@dataclass(frozen=True)
class PairTokens:
    """The tokens of N pairs: all sources, then all targets."""

    packed: PackedSentences  # 2N sentences
    target_identity: Tensor  # N
    language_ids: Tensor | None  # 2N
    padded_length: int  # width of the padded batch before packing
    word_links: WordLinks | None = None

    def languages_of_tokens(self) -> Tensor | None:
        """Return the language id of each of the T tokens, or None without language ids."""
        if self.language_ids is None:
            return None
        return torch.repeat_interleave(self.language_ids[self.packed.restore.argsort()], self.packed.lengths)


@dataclass(frozen=True)
class TokenStates:
    """What token objectives read: last hidden states, embeddings, and a function that runs the encoder again."""

    packed: PackedSentences
    states: Tensor  # M × d
    tokens: Tensor | None  # M: the packed tokens that the rows of ``states`` belong to, ascending; None: all tokens
    encode: Encode
    word_embeddings: Tensor  # V × d: the encoder's table, for heads that share it
    embeddings: Tensor  # 2N × d: the sentence embeddings, all sources, then all targets
    of_layers: Mapping[int, Tensor] = field(default_factory=dict)  # T × d of each layer in an objective's layers_read

    def at(self, tokens: Tensor) -> Tensor:
        """Return the hidden states of these tokens, given by packed indices."""
        return self.states[tokens if self.tokens is None else torch.searchsorted(self.tokens, tokens)]


@dataclass(frozen=True)
class SampledTargets:
    """The tokens that a token objective sampled before encoding."""

    rows: Any
    # The loss summed over all processes is divided by this count, summed likewise: the number of predicted tokens; for
    # WTR, the number of sentences; for AWP, the number of sentences × masked_share × word_share.
    count: Tensor
