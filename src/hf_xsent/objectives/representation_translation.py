"""Representation translation learning (RTL): a small head rebuilds a sentence from its translation's states (DAP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hf_xsent.objectives.pairs import Draw, PairTokens, TokenObjective, TokenStates
from hf_xsent.packing import PackedSentences, join

DIRECTIONS = ("source_to_target", "target_to_source", "both")
NUMBERINGS = ("fixed", "padded")


@dataclass(frozen=True)
class TranslationRows:
    """What the head reads (eq. 4): per pair one packed row, the known sentence's states and then the wanted tokens."""

    packed: PackedSentences  # T tokens; positions as the head numbers them: wanted tokens after ``start``
    masked: Tensor  # T: whether the head sees a [MASK] in this place, else the encoder's state
    shown: Tensor  # numbers, in the batch, of the tokens that are not masked
    own_positions: Tensor  # of the masked tokens: their places in their own sentence
    languages: Tensor | None  # of the masked tokens
    labels: Tensor  # of the masked tokens: their word pieces


def translation_rows(
    pairs: PairTokens, known: Tensor, wanted: Tensor, start: int, ratio: float = 1.0, masked: Tensor | None = None
) -> TranslationRows:
    """Rows for the head: sentence ``known[i]`` tells, ``wanted[i]`` is told; numbers count sources, then targets.

    The first token of either, [CLS], takes no part. ``start`` is the position from which wanted sentences count. Each
    wanted token is masked with probability ``ratio``, or as ``masked`` says (a flag for each packed token); the others
    are shown as the encoder saw them.
    """
    rows = join(pairs.packed, known, wanted, skip=(1, 1))
    own = pairs.packed.positions[rows.origin]
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
        masked=hidden,
        shown=rows.origin[~hidden],
        own_positions=own[hidden],
        languages=languages,
        labels=rows.packed.input_ids[hidden],
    )


class RepresentationTranslation(TokenObjective):
    """RTL as an objective: which sentences tell which, and the head that does it.

    ``head`` takes rows and the states of shown tokens, and gives the summed cross entropy of the masked ones (eq. 6).
    """

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

    def draw(self, pairs: PairTokens) -> Sequence[Draw]:
        """Rows for the head. For both directions two parts, and the target sentence decides which one a pair is in."""
        source, target = torch.arange(len(pairs.packed.lengths), device=pairs.packed.lengths.device).chunk(2)
        parts = [(source, target), (target, source)]
        if self.direction == "both":
            there = pairs.target_identity % 2 == 0
            parts = [(source[there], target[there]), (target[~there], source[~there])]
        elif self.direction == "source_to_target":
            parts = parts[:1]
        else:
            parts = parts[1:]
        start = self.max_length if self.numbering == "fixed" else pairs.padded_length
        rows = [translation_rows(pairs, known, wanted, start, self.ratio) for known, wanted in parts]
        return [Draw(one, torch.tensor(len(one.labels), device=source.device)) for one in rows]

    def forward(self, pairs: PairTokens, states: TokenStates, draw: Draw) -> Tensor:
        """The summed cross entropy of one direction."""
        rows: TranslationRows = draw.rows
        if not len(rows.packed.lengths):  # all pairs of a small batch are in the other part
            return states.states.sum() * 0
        loss: Tensor = self.head(rows, states.at(rows.shown))
        return loss
