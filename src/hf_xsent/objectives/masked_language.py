"""Masked language modelling, on single sentences (MLM) or on a sentence with its translation (TLM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hf_xsent.objectives.pairs import Draw, PairTokens, TokenObjective, TokenStates
from hf_xsent.packing import PackedSentences, join


@dataclass(frozen=True)
class Masking:
    """BERT's rule: of the word pieces drawn, 80% become [MASK], 10% another piece, 10% stay."""

    mask_id: int
    vocabulary_size: int
    special_ids: tuple[int, ...]  # never drawn
    probability: float = 0.15

    def __call__(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The changed ids, and which of the T places are to be predicted."""
        special = torch.tensor(self.special_ids, device=input_ids.device)
        drawn = torch.rand(input_ids.shape, device=input_ids.device) < self.probability
        drawn &= ~torch.isin(input_ids, special)
        fate = torch.rand(input_ids.shape, device=input_ids.device)
        other = torch.randint_like(input_ids, self.vocabulary_size)
        changed = torch.where(fate < 0.8, self.mask_id, torch.where(fate < 0.9, other, input_ids))
        return torch.where(drawn, changed, input_ids), drawn


@dataclass(frozen=True)
class MaskedRows:
    """What is encoded anew."""

    packed: PackedSentences  # with [MASK]s
    wanted: Tensor  # ascending numbers of the packed tokens to predict
    labels: Tensor  # their word pieces
    language_ids: Tensor | None  # one a token


class MaskedLanguageModeling(TokenObjective):
    """MLM: every sentence of the batch by itself."""

    def __init__(self, head: nn.Module, masking: Masking) -> None:
        super().__init__()
        self.head = head
        self.masking = masking

    def draw(self, pairs: PairTokens) -> Sequence[Draw]:
        """Mask."""
        packed, origin = self.rows(pairs)
        languages = pairs.languages_of_tokens()
        if languages is not None:
            languages = languages[origin]
        changed, drawn = self.masking(packed.input_ids)
        wanted = drawn.nonzero().squeeze(1)
        rows = MaskedRows(packed.with_ids(changed), wanted, packed.input_ids[wanted], languages)
        return (Draw(rows, drawn.sum()),)

    def forward(self, pairs: PairTokens, states: TokenStates, draw: Draw) -> Tensor:
        """Cross entropy of the masked word pieces, from another pass through the encoder."""
        rows: MaskedRows = draw.rows
        masked = states.encode(rows.packed, rows.wanted, rows.language_ids)
        loss: Tensor = self.head(masked, rows.labels, states.word_embeddings)
        return loss

    def rows(self, pairs: PairTokens) -> tuple[PackedSentences, Tensor]:
        """What is masked and encoded, and each token's number among those of the batch."""
        packed = pairs.packed
        return packed, torch.arange(len(packed.input_ids), device=packed.input_ids.device)


class TranslationLanguageModeling(MaskedLanguageModeling):
    """TLM: source and translation in one row, so that each helps to guess the other's masked pieces.

    With ``reset_positions`` the translation counts its positions from 0 again (DAP's baseline, XLM); without, the row
    is [CLS] source [SEP] translation [SEP], counted through.
    """

    def __init__(self, head: nn.Module, masking: Masking, reset_positions: bool = True) -> None:
        super().__init__(head, masking)
        self.reset_positions = reset_positions

    def rows(self, pairs: PairTokens) -> tuple[PackedSentences, Tensor]:
        """One row a pair."""
        source, target = torch.arange(len(pairs.packed.lengths), device=pairs.packed.lengths.device).chunk(2)
        joined = join(pairs.packed, source, target, skip=(0, 0) if self.reset_positions else (0, 1))
        if not self.reset_positions:
            return joined.packed, joined.origin
        return joined.packed.at_positions(pairs.packed.positions[joined.origin]), joined.origin
