"""Representation translation learning (RTL): a small head rebuilds a sentence from its translation's states (DAP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from hf_xsent.objectives.pair_encoding import PairEncoding
from hf_xsent.packing import PackedSentences, join

DIRECTIONS = ("source_to_target", "target_to_source", "both")
NUMBERINGS = ("fixed", "padded")


@dataclass(frozen=True)
class TranslationRows:
    """What the head reads (eq. 4): per pair one packed row, the known sentence's states and then the wanted tokens."""

    packed: PackedSentences  # T tokens; positions as the head numbers them: wanted tokens after ``start``
    states: Tensor  # K × d: states of the tokens that are not masked
    masked: Tensor  # T: whether the head sees a [MASK] in this place
    own_positions: Tensor  # number of masked tokens: their places in their own sentence
    languages: Tensor | None  # number of masked tokens: the language of each
    labels: Tensor  # number of masked tokens: their word pieces


class TranslationHead(Protocol):
    """A stack of layers and a vocabulary projection."""

    def __call__(self, rows: TranslationRows) -> Tensor:
        """The mean cross entropy of the masked tokens (eq. 6)."""


def translation_rows(
    pairs: PairEncoding, known: Tensor, wanted: Tensor, start: int, ratio: float = 1.0, masked: Tensor | None = None
) -> TranslationRows:
    """Rows for the head: sentence ``known[i]`` tells, ``wanted[i]`` is told; numbers count sources, then targets.

    The first token of either, [CLS], takes no part. ``start`` is the position from which wanted sentences count. Each
    wanted token is masked with probability ``ratio``, or as ``masked`` says (a flag for each packed token); the others
    are shown as the encoder saw them.
    """
    tokens = pairs.tokens
    rows = join(tokens.packed, known, wanted, skip=(1, 1))
    own = tokens.packed.positions[rows.origin]
    hidden = rows.in_second
    if masked is not None:
        hidden = hidden & masked[rows.origin]
    elif ratio < 1:
        hidden = hidden & (torch.rand(len(hidden), device=hidden.device) < ratio)
    languages = None
    if pairs.language_ids is not None:
        joined = pairs.language_ids[wanted][torch.argsort(rows.packed.restore)]
        languages = torch.repeat_interleave(joined, rows.packed.lengths)[hidden]
    return TranslationRows(
        packed=rows.packed.at_positions(own + start * rows.in_second),
        states=tokens.at(rows.origin[~hidden]),
        masked=hidden,
        own_positions=own[hidden],
        languages=languages,
        labels=rows.packed.input_ids[hidden],
    )


class RepresentationTranslation(nn.Module):
    """RTL as an objective: which sentences tell which, and the head that does it."""

    def __init__(
        self,
        head: nn.Module,
        direction: str = "source_to_target",
        ratio: float = 1.0,
        numbering: str = "fixed",
        max_length: int = 128,
    ) -> None:
        super().__init__()
        self.head = head
        self.direction = direction
        self.ratio = ratio
        self.numbering = numbering
        self.max_length = max_length

    @property
    def reads(self) -> frozenset[str]:
        """The sides whose token states are needed."""
        if self.direction == "both" or self.ratio < 1:
            return frozenset(("source", "target"))
        return frozenset(("source" if self.direction == "source_to_target" else "target",))

    def forward(self, pairs: PairEncoding) -> Tensor:
        """The loss of the batch; in both directions, each on one half of the batch, the mean of the two."""
        count = len(pairs.source)
        source = torch.arange(count, device=pairs.source.device)
        target = source + count
        if self.direction == "source_to_target":
            return self._loss(pairs, source, target)
        if self.direction == "target_to_source":
            return self._loss(pairs, target, source)
        half = count // 2
        if not half:
            return self._loss(pairs, source, target)
        return (self._loss(pairs, source[:half], target[:half]) + self._loss(pairs, target[half:], source[half:])) / 2

    def _loss(self, pairs: PairEncoding, known: Tensor, wanted: Tensor) -> Tensor:
        start = self.max_length if self.numbering == "fixed" else pairs.padded_length
        loss: Tensor = self.head(translation_rows(pairs, known, wanted, start, self.ratio))
        return loss
