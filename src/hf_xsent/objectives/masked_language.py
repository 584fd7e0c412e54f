"""Masked language modelling, on single sentences (MLM) or on a sentence with its translation (TLM).

    L = -1/|M| Σ_{t in M} log p(w_t | the sentence, or the pair, with the pieces of M masked)

BERT's rule: 15% of the word pieces are in M; of these, 80% become [MASK], 10% a random piece, 10% do not change.

>>> masking = Masking(mask_id=9, vocabulary_size=10, special_ids=(0, 1), probability=0.5)
>>> ids = torch.randint(10, (10_000,))
>>> masked, predicted = masking(ids)
>>> bool((masked[~predicted] == ids[~predicted]).all()), bool(torch.isin(ids[predicted], torch.tensor([0, 1])).any())
(True, False)
>>> round(float((masked[predicted] == 9).float().mean()), 1)  # 80%, and some that have id 9 by chance
0.8
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.base import Needs, Parts, PretrainedWeights, TokenObjective
from hf_xsent.objectives.pairs import PairTokens, SampledTargets, TokenStates
from hf_xsent.objectives.settings import VocabularySettings
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.packing import PackedSentences, join


@dataclass(frozen=True)
class MaskedLanguageModelingSettings(VocabularySettings):
    """The settings of masked language modelling."""

    masked_share: float = setting(0.15, "Fraction of the word pieces to predict.", above=0, below=1)
    untied_embeddings: bool = setting(
        False, "Give the head separate output embeddings, not tied to the encoder's, as in DAP's authors' code."
    )


@dataclass(frozen=True)
class TranslationLanguageModelingSettings(MaskedLanguageModelingSettings):
    """The settings of translation language modelling."""

    reset_positions: bool = setting(
        True,
        "Number the translation's positions from 0, as XLM and the baseline in DAP's paper do; false continues the "
        "source's numbers, as PPA does.",
    )


@dataclass(frozen=True)
class Masking:
    """BERT's masking rule."""

    mask_id: int
    vocabulary_size: int
    special_ids: tuple[int, ...]  # never masked
    probability: float = 0.15

    @classmethod
    def of(cls, parts: Parts, share: float) -> Masking:
        """Return the rule for the model that an objective belongs to."""
        return cls(parts.mask_token_id, parts.encoder_config.vocab_size, tuple(parts.special_token_ids), share)

    def __call__(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the T ids after masking, and for each token whether to predict it."""
        special = torch.tensor(self.special_ids, device=input_ids.device)
        predicted = torch.rand(input_ids.shape, device=input_ids.device) < self.probability
        predicted &= ~torch.isin(input_ids, special)
        fate = torch.rand(input_ids.shape, device=input_ids.device)
        other = torch.randint_like(input_ids, self.vocabulary_size)
        changed = torch.where(fate < 0.8, self.mask_id, torch.where(fate < 0.9, other, input_ids))
        return torch.where(predicted, changed, input_ids), predicted


@dataclass(frozen=True)
class MaskedRows:
    """Masked sentences, the input of a second pass through the encoder."""

    packed: PackedSentences
    predicted: Tensor  # ascending indices of the packed tokens to predict
    labels: Tensor  # the ids to predict: the original ones, or those of a translation (AWP)
    language_ids: Tensor | None  # one per token

    @classmethod
    def sample(cls, packed: PackedSentences, language_ids: Tensor | None, masking: Any) -> MaskedRows:
        """Mask packed sentences by a ``Masking``."""
        changed, predicted = masking(packed.input_ids)
        places = predicted.nonzero().squeeze(1)
        return cls(packed.with_ids(changed), places, packed.input_ids[places], language_ids)


class MaskedPrediction(TokenObjective):
    """Predict pieces at masked places of a second pass through the encoder, by the head ``head``."""

    head: Any

    def start(self, pretrained: PretrainedWeights) -> None:
        """Copy the checkpoint's MLM head."""
        self.head.start_from(pretrained.mlm_head, pretrained.word_embeddings, None)

    def token_loss(self, pairs: PairTokens, states: TokenStates, sampled: SampledTargets) -> Tensor:
        """Sum the cross entropy of the predicted pieces, from another pass through the encoder."""
        rows: MaskedRows = sampled.rows
        masked = states.encode(rows.packed, rows.predicted, rows.language_ids)
        loss: Tensor = self.head(masked, rows.labels, states.word_embeddings)
        return loss


class MaskedLanguageModeling(MaskedPrediction):
    """Predict masked word pieces of each sentence of the batch (MLM)."""

    Settings = MaskedLanguageModelingSettings
    needs = Needs(pairs=False, mask_token=True)

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        size = parts.encoder_config.vocab_size if settings.untied_embeddings else None
        self.head = parts.mlm_head(size=size, sample=settings.sampled_pieces)
        self.masking = Masking.of(parts, settings.masked_share)

    def sample(self, pairs: PairTokens) -> Sequence[SampledTargets]:
        """Sample the masked tokens."""
        packed, origin = self.rows(pairs)
        languages = pairs.languages_of_tokens()
        rows = MaskedRows.sample(packed, None if languages is None else languages[origin], self.masking)
        return (SampledTargets(rows, torch.tensor(len(rows.labels), device=packed.input_ids.device)),)

    def rows(self, pairs: PairTokens) -> tuple[PackedSentences, Tensor]:
        """Return the rows to mask and, for each of their tokens, its index in the batch."""
        packed = pairs.packed
        return packed, torch.arange(len(packed.input_ids), device=packed.input_ids.device)


class TranslationLanguageModeling(MaskedLanguageModeling):
    """TLM: concatenate source and translation, so that each helps to predict the other's masked tokens.

    With ``reset_positions``, the row is [CLS] source [SEP] [CLS] translation [SEP], and positions restart at the
    second [CLS]. Without, the second [CLS] is dropped, and positions continue.
    """

    Settings = TranslationLanguageModelingSettings
    needs = Needs(mask_token=True)

    @classmethod
    def check(cls, settings: Any, config: Any) -> None:
        """Raise an error if the encoder has too few positions for both sentences of a pair."""
        longest = (config.max_positions + 1) // 2
        if not settings.reset_positions and config.max_length > longest:
            raise RecipeError(
                f"max_length {config.max_length} leaves too few positions for both sentences of a pair in one row: use "
                f"at most {longest}, or reset_positions: true"
            )

    def rows(self, pairs: PairTokens) -> tuple[PackedSentences, Tensor]:
        """Return one row per pair."""
        source, target = torch.arange(len(pairs.packed.lengths), device=pairs.packed.lengths.device).chunk(2)
        reset = self.settings.reset_positions
        joined = join(pairs.packed, source, target, skip=(0, 0) if reset else (0, 1))
        if not reset:
            return joined.packed, joined.origin
        return joined.packed.with_positions(pairs.packed.positions[joined.origin]), joined.origin
