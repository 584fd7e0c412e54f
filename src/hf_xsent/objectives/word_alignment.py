"""WACSE's supervision by word links: aligned word prediction (AWP) and word translation ranking (WTR).

    L_AWP = -1/2N Σ_{(j, k) linked} log p(pieces of y_k | x with x_j masked, at x_j)                  (eq. 4, 5)
    L_WTR = -1/2N Σ_{(j, k) linked} log softmax_k' sim(h_j, h_k') at k' = k, over all words of y       (eq. 6-8)

Both losses are computed in both directions. The similarity of two words is the mean cosine over pairs of their pieces.

Where the two words of a link differ in length, AWP predicts as many pieces as the shorter one has. By default it masks
all linked words of a sentence together.

>>> x, y = torch.eye(2), torch.tensor([[1.0, 1], [0, 1]])  # hidden states of two words each; word j is linked to word j
>>> cosines = F.normalize(x, dim=1) @ F.normalize(y, dim=1).T
>>> plain = sum((logits.logsumexp(1) - logits.diagonal()).sum() for logits in (cosines, cosines.T))
>>> numbers = torch.arange(4)  # words of one piece: two of the source, then two of the target
>>> words = BatchWords(numbers, numbers, numbers // 2, numbers, torch.ones(4), torch.tensor([0, 2]))
>>> links = LinkedWords(numbers, torch.tensor([2, 3, 0, 1]))
>>> torch.allclose(word_ranking_loss(torch.cat((x, y)), words, links), plain)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.base import SIDES, Needs, Parts, TokenObjective
from hf_xsent.objectives.masked_language import MaskedPrediction, MaskedRows
from hf_xsent.objectives.pairs import PairTokens, SampledTargets, TokenStates
from hf_xsent.objectives.settings import ObjectiveSettings, VocabularySettings
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.word_grid import (
    BatchWords,
    LinkedWords,
    linked_words,
    mean_directions,
    ranking_logits,
    standardize_pairs,
    translated_pieces,
)


@dataclass(frozen=True)
class AlignedWordPredictionSettings(VocabularySettings):
    """The settings of aligned word prediction."""

    masked_share: float = setting(
        1.0, "In each step, mask the linked words of this fraction of the sentences.", above=0, at_most=1
    )
    word_share: float = setting(
        1.0,
        "In each sentence that masked_share selects, mask this fraction of the linked words; the others remain as "
        "context.",
        above=0,
        at_most=1,
    )


@dataclass(frozen=True)
class WordTranslationRankingSettings(ObjectiveSettings):
    """The settings of word translation ranking."""

    temperature: float = setting(1.0, "Divide cosines of words by this; the paper states no temperature.", above=0)
    layer: int | None = setting(
        None,
        "Compare words by the hidden states of this layer, standardized as by the command hf-xsent align-words: each "
        "sentence's mean is subtracted, and each dimension is divided by its root mean square over the pair (default: "
        "by the last hidden states, as in the paper).",
        at_least=1,
    )


def _words_and_links(pairs: PairTokens) -> tuple[BatchWords, LinkedWords]:
    if pairs.word_links is None:
        raise TypeError("objectives over words need word_links: pass source_words, target_words and links")
    return linked_words(pairs.packed, pairs.word_links)


class AlignedWordPrediction(MaskedPrediction):
    """AWP: mask linked words; at the position of each, predict the pieces of its translation.

    With ``masked_share`` below 1, each sentence is selected with that probability, and words are masked in selected
    sentences only. With ``word_share`` below 1, each linked word of a selected sentence is masked with that
    probability, and the others remain as context. The loss is divided by both shares, so that its scale does not depend
    on them. The paper's eq. 4 masks one word at a time, which would take a pass per word.
    """

    Settings = AlignedWordPredictionSettings
    needs = Needs(links=True, mask_token=True)

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.head = parts.mlm_head(sample=settings.sampled_pieces)
        self.mask_id = parts.mask_token_id

    def sample(self, pairs: PairTokens) -> Sequence[SampledTargets]:
        """Mask words, and select the sentences with a masked word for another pass through the encoder.

        Without a masked word, select one sentence: each process must run the encoder, and each weight needs a gradient.
        """
        packed, share = pairs.packed, self.settings.masked_share
        words, links = _words_and_links(pairs)
        linked, translations = links.words, links.translations
        if share < 1:
            sampled = torch.rand(len(packed.lengths), device=linked.device) < share
            selected = sampled[words.sentence[linked]]
            linked, translations = linked[selected], translations[selected]
        if self.settings.word_share < 1:
            selected = torch.rand(len(linked), device=linked.device) < self.settings.word_share
            linked, translations = linked[selected], translations[selected]
            share *= self.settings.word_share
        masked = torch.zeros_like(words.lengths, dtype=torch.bool)
        masked[linked] = True
        ids = packed.input_ids.clone()
        ids[words.pieces[masked[words.word_of_piece]]] = self.mask_id
        sentences = torch.zeros_like(packed.lengths, dtype=torch.bool)
        sentences[words.sentence[linked]] = True
        sentences[0] |= ~sentences.any()

        place, translation = translated_pieces(words, linked, translations)
        encoded = packed.token_mask(sentences)
        predicted, order = (encoded.cumsum(0) - 1)[place].sort()
        languages = pairs.languages_of_tokens()
        rows = MaskedRows(
            packed=packed.with_ids(ids).select(sentences),
            predicted=predicted,
            labels=packed.input_ids[translation[order]],
            language_ids=None if languages is None else languages[encoded],
        )
        return (SampledTargets(rows, torch.tensor(share * len(packed.lengths), device=predicted.device)),)


def word_ranking_loss(pieces: Tensor, words: BatchWords, links: LinkedWords, temperature: float = 1.0) -> Tensor:
    """Sum WTR over the linked words of both directions, from the hidden states of the words' pieces."""
    cosines, positives = ranking_logits(mean_directions(pieces, words), words, links)
    return F.cross_entropy(cosines / temperature, positives, reduction="sum")


class WordTranslationRanking(TokenObjective):
    """WTR: rank the translation of each linked word among all words of the other sentence.

    With a middle ``layer``, words are compared by the hidden states of that layer. This loss does not train the layers
    above that layer (their gradient is zero), although the sentence embedding comes from the last one.
    """

    Settings = WordTranslationRankingSettings
    needs = Needs(states=SIDES, links=True)

    @classmethod
    def check(cls, settings: Any, config: Any) -> None:
        """Raise an error if the encoder does not have the layer."""
        depth = config.encoder_config.num_hidden_layers
        if settings.layer is not None and settings.layer > depth:
            raise RecipeError(
                f"word_translation_ranking.layer {settings.layer} does not exist: this encoder has {depth} layers"
            )

    @property
    def layers_read(self) -> frozenset[int]:
        """The setting ``layer``, if given."""
        return frozenset() if self.settings.layer is None else frozenset({self.settings.layer})

    def sample(self, pairs: PairTokens) -> Sequence[SampledTargets]:
        """Find the linked words, without random choices."""
        count = torch.tensor(len(pairs.packed.lengths), device=pairs.packed.lengths.device)
        return (SampledTargets(_words_and_links(pairs), count),)

    def token_loss(self, pairs: PairTokens, states: TokenStates, sampled: SampledTargets) -> Tensor:
        """Sum the cross entropy over the linked words of both sides."""
        words, links = sampled.rows
        nothing = states.states.sum() * 0  # gives the layers above ``layer`` a gradient, which is zero
        if not len(links.words):
            return nothing
        with torch.autocast(states.states.device.type, enabled=False):
            if self.settings.layer is None:
                pieces = states.at(words.pieces)
            else:
                pieces = standardize_pairs(states.of_layers[self.settings.layer], pairs.packed)[words.pieces]
            return nothing + word_ranking_loss(pieces, words, links, self.settings.temperature)
