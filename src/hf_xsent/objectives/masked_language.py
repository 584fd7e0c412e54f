"""Masked language modelling, on single sentences (MLM) or on a sentence with its translation (TLM)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hf_xsent.objectives.pair_encoding import PairEncoding
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


class MaskedLanguageModeling(nn.Module):
    """MLM: every sentence of the batch by itself."""

    reads: frozenset[str] = frozenset()

    def __init__(self, head: nn.Module, masking: Masking) -> None:
        super().__init__()
        self.head = head
        self.masking = masking

    def forward(self, pairs: PairEncoding) -> Tensor:
        """Mean cross entropy of the masked word pieces, from another pass through the encoder."""
        languages = pairs.language_ids
        packed, origin = self.rows(pairs)
        if languages is not None:
            by_sentence = languages[torch.argsort(pairs.tokens.packed.restore)]
            languages = torch.repeat_interleave(by_sentence, pairs.tokens.packed.lengths)[origin]
        changed, drawn = self.masking(packed.input_ids)
        states = pairs.encode(packed.with_ids(changed), drawn.nonzero().squeeze(1), languages)
        loss: Tensor = self.head(states, packed.input_ids[drawn], pairs.word_embeddings)
        return loss

    def rows(self, pairs: PairEncoding) -> tuple[PackedSentences, Tensor]:
        """What is masked and encoded, and each token's number among those of the batch."""
        packed = pairs.tokens.packed
        return packed, torch.arange(len(packed.input_ids), device=packed.input_ids.device)


class TranslationLanguageModeling(MaskedLanguageModeling):
    """TLM: source and translation in one row, so that each helps to guess the other's masked pieces.

    With ``reset_positions`` the translation counts its positions from 0 again (DAP's baseline, XLM); without, the row
    is [CLS] source [SEP] translation [SEP], counted through.
    """

    def __init__(self, head: nn.Module, masking: Masking, reset_positions: bool = True) -> None:
        super().__init__(head, masking)
        self.reset_positions = reset_positions

    def rows(self, pairs: PairEncoding) -> tuple[PackedSentences, Tensor]:
        """One row a pair."""
        count = len(pairs.source)
        source = torch.arange(count, device=pairs.source.device)
        joined = join(pairs.tokens.packed, source, source + count, skip=(0, 0) if self.reset_positions else (0, 1))
        if not self.reset_positions:
            return joined.packed, joined.origin
        return joined.packed.at_positions(pairs.tokens.packed.positions[joined.origin]), joined.origin
