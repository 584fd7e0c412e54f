"""Define the inputs of objectives: embeddings, tokens and hidden states of a batch of sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Protocol

import torch
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.tensors.packing import PackedSentences
from hf_xsent.tensors.word_grid import WordLinks


class Encode(Protocol):
    """Another pass through the encoder, for objectives that change its input."""

    def __call__(self, packed: PackedSentences, tokens: Tensor | None, language_ids: Tensor | None) -> Tensor:
        """Return the last hidden states (M × d) of the packed tokens with the indices ``tokens`` (None: of all)."""


@dataclass(frozen=True, kw_only=True)
class SentencePairs:
    """N source and N target embeddings; with paired data, row i of ``target`` translates row i of ``source``."""

    source: Tensor  # N × d
    target: Tensor  # N × d
    source_identity: Tensor  # N: hashes of the sentences
    target_identity: Tensor  # N
    teacher: Mapping[str, Tensor] = field(default_factory=dict)  # by side, N × d: the embeddings of its teacher
    momentum_target: Tensor | None = None  # N × d: the momentum encoder's embeddings of the targets, without gradient
    source_negatives: Tensor | None = None  # S × d: mined negatives of all N pairs, in the sources' languages
    target_negatives: Tensor | None = None  # T × d
    source_negative_identity: Tensor | None = None  # S
    target_negative_identity: Tensor | None = None  # T
    source_negative_number: Tensor | None = None  # S: 0 for the first negative of its pair, 1 for the second, …
    target_negative_number: Tensor | None = None  # T

    @classmethod
    def joined(cls, parts: Sequence[SentencePairs]) -> SentencePairs:
        """Concatenate the pairs of all parts, which have no teacher, into one batch."""
        names = [name for name, value in vars(parts[0]).items() if isinstance(value, Tensor)]
        joined: Any = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return cls(**joined)

    def taught(self, objective: str, teacher: Mapping[str, Tensor | None]) -> SentencePairs:
        """Return the pairs with the embeddings of this objective's teacher by side, which must have equal width."""
        checked = {}
        for side, vectors in teacher.items():
            if vectors is None:
                raise ModelError(f"{objective} needs its teacher's embeddings: pass {objective}_teacher_{side}")
            if vectors.shape != self.source.shape:
                raise ModelError(
                    f"the teacher's {side} embeddings for {objective} have the shape {tuple(vectors.shape)}, those of "
                    f"the student {tuple(self.source.shape)}: choose models of equal width"
                )
            checked[side] = vectors
        return replace(self, teacher=checked)

    def first_negatives(self, side: str, count: int) -> tuple[Tensor, Tensor] | None:
        """Return embeddings and identities of the first ``count`` mined negatives of each pair, or None."""
        vectors = getattr(self, f"{side}_negatives")
        if not count or vectors is None:
            return None
        first = getattr(self, f"{side}_negative_number") < count
        return vectors[first], getattr(self, f"{side}_negative_identity")[first]

    def truncated(self, width: int) -> SentencePairs:
        """Return the pairs with embeddings truncated to this width."""
        truncated: Any = {name: vectors[:, :width] for name, vectors in self.trained().items()}
        return replace(self, **truncated)

    def trained(self) -> dict[str, Tensor]:
        """Return the embeddings that receive gradients, by field name."""
        names = ("source", "target", "source_negatives", "target_negatives")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def both(self) -> Tensor:
        """2N × d: all sources, then all targets."""
        return torch.cat((self.source, self.target))


def share_sentence(pairs: Tensor, others: Tensor) -> Tensor:
    """Return N × M flags: whether two pairs, rows of the identities of both sentences, have a sentence in common.

    >>> share_sentence(torch.tensor([[1, 2]]), torch.tensor([[2, 3], [3, 4]]))
    tensor([[ True, False]])
    """
    shared = torch.zeros(len(pairs), len(others), dtype=torch.bool, device=pairs.device)
    for side, other_side in product(pairs.T, others.T):
        shared |= side[:, None] == other_side
    return shared


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
