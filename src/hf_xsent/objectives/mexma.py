"""MEXMA (Janeiro et al., 2025): predict each side's masked tokens from the other side's sentence embedding.

    L_mlm   = ½ [ CE(masked pieces of x | m(x), s_y) + CE(masked pieces of y | m(y), s_x) ], each a mean over its pieces
    L_align = MSE(s_x, s_y)
    L_koleo = ½ Σ_sides -1/N Σ_i log ‖s_i - s_nearest(i)‖, of embeddings scaled to length 1
    L       = L_mlm + L_align + 0.01 L_koleo

s is the sentence embedding of a clean pass. The head's input is the hidden states of the masked side, with the state of
[CLS] replaced by the other side's s. It consists of K transformer layers and a projection onto the token embeddings.
Gradients reach the encoder through the masked side's states and through s.

>>> x = F.normalize(torch.tensor([[1.0, 0], [0, 1], [0.6, 0.8]]), dim=1)
>>> distances = torch.cdist(x, x) + 9 * torch.eye(3)
>>> torch.allclose(koleo_loss(x), -distances.amin(1).log().mean())
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.objectives.base import SIDES, Needs, Parts, PretrainedWeights, SentenceObjective, TokenObjective
from hf_xsent.objectives.masked_language import MaskedRows, Masking
from hf_xsent.objectives.pairs import PairTokens, SampledTargets, SentencePairs, TokenStates
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.chunked_softmax import chunked_cross_entropy
from hf_xsent.tensors.gathering import gather_rows, mean_over_rows

# KoLeo's epsilon, as in the authors' code: the smallest divisor when a vector is normalized; also added to each
# component of vector differences, and to distances before the logarithm.
EPS = 1e-8


@dataclass(frozen=True)
class MexmaSettings(ObjectiveSettings):
    """The settings of MEXMA, with a weight for each of its three losses."""

    masked_share: float = setting(0.4, "Fraction of the word pieces of each side to predict.", above=0, below=1)
    head_layers: int = setting(
        6, "Layers of the head, copied from the encoder's last layers; all if it has fewer.", at_least=1
    )
    mlm_weight: float = setting(1.0, "Weight of masked language modelling (L_mlm).", at_least=0)
    alignment_weight: float = setting(
        1.0, "Weight of the mean squared error between the embeddings of a pair (L_align).", at_least=0
    )
    koleo_weight: float = setting(
        0.01, "Weight of KoLeo, which spreads the embeddings of a batch (L_koleo).", at_least=0
    )


def koleo_loss(vectors: Tensor) -> Tensor:
    """Compute the mean of -log(distance to the nearest other vector in the batch of all processes)."""
    vectors = F.normalize(vectors, dim=-1, eps=EPS)
    everywhere, first = gather_rows(vectors)
    own = torch.arange(first, first + len(vectors), device=vectors.device)
    with torch.no_grad():
        cosines = vectors @ everywhere.T
        nearest = cosines.scatter(1, own[:, None], -1).argmax(1)
    distances = F.pairwise_distance(vectors, everywhere[nearest], eps=EPS)
    return mean_over_rows(-(distances + EPS).log().sum(), vectors)


class Mexma(SentenceObjective, TokenObjective):
    """Predict each side's masked tokens from the other side's embedding (L_mlm), and add L_align and L_koleo."""

    Settings = MexmaSettings
    needs = Needs(embeddings=SIDES, mask_token=True)

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.masking = Masking.of(parts, settings.masked_share)
        self.layers = parts.last_layers(settings.head_layers, embeddings=False, attention_dropout=False)
        self.bias = nn.Parameter(torch.zeros(parts.encoder_config.vocab_size))

    @classmethod
    def continues(cls, settings: Any, earlier: Any) -> bool:
        """Return whether the head of the earlier stage has the same number of layers."""
        return bool(settings.head_layers == earlier.head_layers)

    def initial_tensors(self) -> dict[str, Tensor]:
        """Return the projection's bias, zero."""
        return {"bias": torch.zeros_like(self.bias)}

    def start(self, pretrained: PretrainedWeights) -> None:
        """Copy the encoder's last layers."""
        self.layers.start_from(pretrained.encoder, pretrained.mask_token_id)

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute the weighted sum of L_align and L_koleo."""
        with torch.autocast(pairs.source.device.type, enabled=False):
            kind = torch.promote_types(pairs.source.dtype, torch.float32)
            source, target = pairs.source.to(kind), pairs.target.to(kind)
            alignment = mean_over_rows((source - target).square().mean(1).sum(), source)
            koleo = (koleo_loss(source) + koleo_loss(target)) / 2
        return self.settings.alignment_weight * alignment + self.settings.koleo_weight * koleo

    def sample(self, pairs: PairTokens) -> Sequence[SampledTargets]:
        """Mask each side; part 0 predicts sources, part 1 targets."""
        count, languages = len(pairs.packed.lengths), pairs.languages_of_tokens()
        sampled = []
        for side in (torch.arange(count) < count // 2, torch.arange(count) >= count // 2):
            flags = side.to(pairs.packed.lengths.device)
            packed = pairs.packed.select(flags)
            of_tokens = None if languages is None else languages[pairs.packed.token_mask(flags)]
            rows = MaskedRows.sample(packed, of_tokens, self.masking)
            sampled.append(SampledTargets((rows, ~flags), torch.tensor(len(rows.labels), device=flags.device)))
        return sampled

    def token_loss(self, pairs: PairTokens, states: TokenStates, sampled: SampledTargets) -> Tensor:
        """Sum the cross entropy of one side's masked pieces, given the other side's embeddings."""
        rows, other_side = sampled.rows
        hidden = states.encode(rows.packed, None, rows.language_ids)
        others = states.embeddings[other_side].to(hidden.dtype)
        hidden = hidden.index_copy(0, rows.packed.first_tokens[rows.packed.restore], others)
        outputs = self.layers(hidden, rows.packed, rows.predicted)
        loss = chunked_cross_entropy(outputs, states.word_embeddings, self.bias, rows.labels)
        return self.settings.mlm_weight * loss
